// grad_input whose blocks go down lines of dY with the sums of all rows of x that share a line: which these are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>

namespace convt2d::cuda {

constexpr int kLiveRows = 4;   // of x, that share a line of dY, at most
constexpr int kStepLines = 8;  // of dY, at most

// Of a step, which is a row of x: its lines, the row of dY of each from the first one's on, and the kernel row by which each
// live row of x, the eldest first, reads it; -1: not at all.
struct LiveRows {
  int32_t lines, live;
  int16_t line_row[kStepLines];
  int8_t kernel_row[kStepLines][kLiveRows];
};

// Returns why lines or rows are too many, or an empty string.
template <class Params>
std::string set_live_rows(const Params& p, LiveRows& step) {
  const int line_step = std::gcd(p.stride_h, p.dilation_h);
  const int row_lines = p.stride_h / line_step, tap_lines = p.dilation_h / line_step;
  step.live = (p.kernel_h - 1) * tap_lines / row_lines + 1;
  if (step.live > kLiveRows) return std::to_string(step.live) + " rows of x share a line of dY";
  step.lines = 0;
  for (int line = 0; line < row_lines; ++line) {
    int8_t kernel_row[kLiveRows];
    bool read = false;
    for (int e = 0; e < kLiveRows; ++e) {
      const int away = line + (step.live - 1 - e) * row_lines, kh = away / tap_lines;
      const bool here = e < step.live && away % tap_lines == 0 && kh < p.kernel_h;
      kernel_row[e] = static_cast<int8_t>(here ? kh : -1);
      read |= here;
    }
    if (!read) continue;
    if (step.lines == kStepLines) return "a row of x adds more than 8 lines of dY";
    if (line * line_step > INT16_MAX) return "lines of dY lie too far apart";
    step.line_row[step.lines] = static_cast<int16_t>(line * line_step);
    std::copy(kernel_row, kernel_row + kLiveRows, step.kernel_row[step.lines++]);
  }
  return {};
}

}  // namespace convt2d::cuda
