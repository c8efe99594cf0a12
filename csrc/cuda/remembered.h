// Answers that a planner wants again for each of its many tiles. One for a thread, so there is no lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace convt2d::cuda {

// The last answers, one at each of so many places, a power of two; questions that meet there cost a second answer.
template <class Answer, size_t kNumbers, size_t kPlaces>
class Remembered {
 public:
  using Question = std::array<int64_t, kNumbers>;

  // `find` fills in an answer.
  template <class Find>
  const Answer& answer(const Question& question, Find&& find) {
    uint64_t hash = 0;
    for (const int64_t number : question)
      hash = (hash ^ static_cast<uint64_t>(number)) * 0x9e3779b97f4a7c15;  // 2^64 / golden ratio
    Entry& entry = entries_[hash >> 32 & (kPlaces - 1)];
    if (!entry.known || entry.question != question) {
      entry.known = false;
      find(entry.answer);
      entry.question = question;
      entry.known = true;
    }
    return entry.answer;
  }

 private:
  struct Entry {
    bool known = false;
    Question question;
    Answer answer;
  };
  std::array<Entry, kPlaces> entries_;
};

}  // namespace convt2d::cuda
