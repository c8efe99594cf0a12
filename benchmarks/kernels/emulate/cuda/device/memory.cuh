// cuda/device/memory.cuh on a CPU. A misaligned store ends the program.
#pragma once

#include <cstdlib>

namespace convt2d::cuda {

template <int BYTES>
uint32_t load_if(const void* from, int index, int left) {
  uint32_t word = 0;
  if (index < left) std::memcpy(&word, from, BYTES);
  return word;
}
inline void load_16_if(const void* from, int index, int left, uint32_t (&word)[4]) {
  std::memset(word, 0, 16);
  if (index >= left) return;
  if (reinterpret_cast<uintptr_t>(from) % 16 != 0) std::abort();
  std::memcpy(word, from, 16);
}
template <int BYTES, int WORDS>
void load_words(const void* from, uint32_t (&word)[WORDS]) {
  if (reinterpret_cast<uintptr_t>(from) % BYTES != 0) std::abort();
  word[0] = 0;
  std::memcpy(word, from, BYTES);
}
inline uint2 load_8_and_around(const void* from) {
  if (reinterpret_cast<uintptr_t>(from) % 8 != 0) std::abort();
  return *static_cast<const uint2*>(from);
}
inline void keep_in_register(uint32_t&) {}
template <class T>
void keep_in_register(T*&) {}
template <int WORDS>
void store_words_if(int key, void* to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const uint32_t word[4] = {a, b, c, d};
  if (key < 0) return;
  if (reinterpret_cast<uintptr_t>(to) % (4 * WORDS) != 0) std::abort();
  std::memcpy(to, word, 4 * WORDS);
}
inline void store_words(void* to, uint32_t a, uint32_t b) { store_words_if<2>(0, to, a, b, 0, 0); }
inline void store_words(void* to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  store_words_if<4>(0, to, a, b, c, d);
}
inline void store_half_if(int key, void* to, unsigned short a) {
  if (key >= 0) std::memcpy(to, &a, 2);
}
template <class Bits>
float store_and_note_if(int index, int left, void* to, Bits bits, float value, float sum) {
  if (index >= left) return sum;
  if (reinterpret_cast<uintptr_t>(to) % sizeof bits != 0) std::abort();
  std::memcpy(to, &bits, sizeof bits);
  return std::fma(value, 0.f, sum);
}
inline float add_zero_times_if(int key, float value, float sum) {
  return key < 0 ? sum : std::fma(value, 0.f, sum);
}

}  // namespace convt2d::cuda
