// Problems that choices.cpp and launches.cpp ask about: those of files of layers in all modes, and random ones, drawn from a seed.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/choose.h"
#include "cuda/cuda_families.h"
#include "layers.h"

namespace {

const char* const kDirections[] = {"fwd", "grad_input", "grad_weight"};
const char* const kModes[] = {"tf32:nchw", "fp16:nchw", "fp32:nchw", "bf16:nchw",
                              "tf32:nhwc", "fp16:nhwc", "fp32:nhwc", "bf16:nhwc"};
const char* const kGpus[] = {"h200", "a100", "h100", "t4", "b200", "rtx4090"};

struct Asked {
  std::string name, setting;
  Problem problem;
  const char* gpu;
};

class Dice {
 public:
  explicit Dice(int seed) : random_(seed) {}
  int64_t of(std::initializer_list<int64_t> list) { return list.begin()[random_() % list.size()]; }
  int64_t between(int64_t low, int64_t high) { return low + random_() % (high - low + 1); }
  bool one_in(int n) { return random_() % n == 0; }
  int64_t channels() {
    return one_in(2) ? of({1, 2, 3, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 320, 512, 1024})
                     : between(1, one_in(3) ? 600 : 70);
  }

 private:
  std::mt19937 random_;
};

Layer random_layer(Dice& dice, int number) {
  Layer l;
  do {
    l.name = "random_" + std::to_string(number);
    l.batch = dice.one_in(40) ? 70000 : dice.of({1, 1, 2, 4, 8, 16, 33, 128});
    l.groups = dice.one_in(4) ? dice.of({2, 3, 4, 8, 32}) : 1;
    l.in = dice.channels() * l.groups, l.out = dice.channels() * l.groups;
    if (dice.one_in(12)) l.groups = l.in, l.out = l.in * dice.of({1, 1, 1, 2});
    const bool square = !dice.one_in(3);
    const auto extent = [&] {
      return dice.one_in(8)    ? 1
             : dice.one_in(60) ? dice.of({65536, 70001})
             : dice.one_in(12) ? dice.of({254, 255, 256, 257, 510, 511, 512})
             : dice.one_in(3)  ? dice.of({4, 8, 16, 32, 64, 128, 256})
                               : dice.between(2, 100);
    };
    const auto kernel = [&] { return dice.one_in(6) ? dice.between(5, 17) : dice.between(1, 5); };
    const auto stride = [&] { return dice.one_in(8) ? dice.between(1, 9) : dice.between(1, 4); };
    const auto dilation = [&] { return dice.one_in(8) ? dice.between(2, 3) : int64_t{1}; };
    l.h = extent(), l.w = square ? l.h : extent();
    l.kh = kernel(), l.kw = square ? l.kh : kernel();
    l.sh = stride(), l.sw = square ? l.sh : stride();
    if (dice.one_in(4)) l.sh = l.kh, l.sw = l.kw;
    l.dh = dilation(), l.dw = square ? l.dh : dilation();
    l.ph = dice.between(0, (l.kh - 1) * l.dh),
    l.pw = square ? l.ph : dice.between(0, (l.kw - 1) * l.dw);
    l.oph = dice.one_in(3) ? dice.between(0, l.sh - 1) : 0;
    l.opw = square ? l.oph : dice.one_in(3) ? dice.between(0, l.sw - 1) : 0;
    l.bias = dice.one_in(2);
  } while (output_extent(l.h, l.kh, l.sh, l.ph, l.oph, l.dh) < 1 ||
           output_extent(l.w, l.kw, l.sw, l.pw, l.opw, l.dw) < 1 ||
           double(l.batch) * std::max(l.in, l.out) * l.h * l.sh * l.w * l.sw > 2e9);
  return l;
}

std::vector<Asked> questions(int random, int seed, int files, char** file) {
  std::vector<Asked> asked;
  for (int i = 0; i < files; ++i)
    for (const Layer& l : read_layers(file[i], {}))
      for (const char* mode : kModes)
        for (const char* direction : kDirections)
          asked.push_back({l.name, std::string(mode) + " " + direction,
                           problem_of(l, mode, direction), "h200"});
  Dice dice(seed);
  for (int i = 0; i < random; ++i) {
    const Layer l = random_layer(dice, i);
    const char *mode = kModes[dice.between(0, 7)], *direction = kDirections[dice.between(0, 2)];
    const char* gpu = kGpus[dice.one_in(3) ? dice.between(0, 5) : 0];
    Problem p = problem_of(l, mode, direction);
    if (direction == kDirections[2] && l.bias) p.has_bias = dice.one_in(2);
    if (dice.one_in(16)) p.x_layout = Layout(dice.between(0, 2));
    if (dice.one_in(16)) p.w_layout = Layout(dice.between(0, 2));
    if (dice.one_in(16)) p.y_layout = Layout(dice.between(0, 2));
    if (dice.one_in(100)) p.dtype = DType::f64;
    asked.push_back({l.name, std::string(mode) + " " + direction, p, gpu});
  }
  return asked;
}

const Device& gpu(const char* name) {
  static std::map<std::string, Device> known;
  const auto at = known.find(name);
  return at != known.end() ? at->second
                           : known.emplace(name, cuda::invented_device(name)).first->second;
}

}  // namespace
