// The two 16-bit floating point formats, converted by hand: plain C++17 has neither.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace convt2d::cpu {

// A sign, kExponentBits of exponent, the rest mantissa; infinities and NaN as in IEEE 754.
template <int kExponentBits>
struct Float16 {
  static constexpr int kMantissaBits = 15 - kExponentBits;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr uint16_t kInfinity = uint16_t(((1 << kExponentBits) - 1) << kMantissaBits);

  uint16_t bits;

  Float16() = default;

  // Rounds once, to nearest even, overflowing to infinity.
  explicit Float16(double value) {
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const double magnitude = std::fabs(value);
    if (std::isnan(value) || std::isinf(value)) {
      bits = sign | kInfinity | uint16_t(std::isnan(value) << (kMantissaBits - 1));
      return;
    }
    // The spacing of this format around `value` is 2^(exponent - kMantissaBits); subnormals share
    // the spacing of the least normal exponent. Counting steps of it rounds, and a carry out of the
    // mantissa lands in the exponent field by itself.
    constexpr int kLeastExponent = 1 - kBias;
    const int own = magnitude > 0 ? std::ilogb(magnitude) : kLeastExponent;
    const int exponent = own < kLeastExponent ? kLeastExponent : own;
    const auto steps = uint32_t(std::nearbyint(std::ldexp(magnitude, kMantissaBits - exponent)));
    const uint32_t rounded = (uint32_t(exponent + kBias - 1) << kMantissaBits) + steps;
    bits = sign | uint16_t(rounded < kInfinity ? rounded : kInfinity);
  }

  // Exact: every value of the format is a double.
  explicit operator double() const {
    constexpr uint32_t kMantissaMask = (1u << kMantissaBits) - 1;
    const uint64_t mantissa = bits & kMantissaMask;
    const int field = (bits & kInfinity) >> kMantissaBits;
    if (field == 0) {
      const double magnitude = double(mantissa) / double(uint64_t{1} << kMantissaBits) /
                               double(uint64_t{1} << (kBias / 2)) /
                               double(uint64_t{1} << (kBias - 1 - kBias / 2));
      return bits & 0x8000 ? -magnitude : magnitude;
    }
    const bool finite = field != (1 << kExponentBits) - 1;
    const uint64_t exponent = finite ? uint64_t(field - kBias + 1023) : 2047;
    const uint64_t wide =
        uint64_t(bits >> 15) << 63 | exponent << 52 | mantissa << (52 - kMantissaBits);
    double value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
  }
};

using Half = Float16<5>;
using BFloat16 = Float16<8>;

}  // namespace convt2d::cpu
