// What kernel_bench.cu, fit.cpp and others know of a layer: files of lines "name N Cin Cout H W kh kw sh sw ph pw oph opw dh
// dw groups bias", as layers.py writes them, and the Problem of such a line in a mode like fp16:nchw or tf32:nhwc.
#pragma once

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/args.h"
#include "core/problem.h"

namespace {

using namespace convt2d;

struct Layer {
  std::string name;
  int64_t batch, in, out, h, w, kh, kw, sh, sw, ph, pw, oph, opw, dh, dw, groups, bias;
};

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> found;
  std::stringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) found.push_back(word);
  return found;
}

std::vector<Layer> read_layers(const char* file, const std::vector<std::string>& names) {
  std::vector<Layer> layers;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream from(line);
    Layer l;
    if (!(from >> l.name >> l.batch >> l.in >> l.out >> l.h >> l.w >> l.kh >> l.kw >> l.sh >>
          l.sw >> l.ph >> l.pw >> l.oph >> l.opw >> l.dh >> l.dw >> l.groups >> l.bias))
      continue;
    const auto wanted = [&](const std::string& part) {
      return l.name.find(part) != std::string::npos;
    };
    if (names.empty() || std::any_of(names.begin(), names.end(), wanted)) layers.push_back(l);
  }
  return layers;
}

Problem problem_of(const Layer& l, const std::string& mode, const std::string& direction) {
  const std::string type = mode.substr(0, mode.find(':'));
  const Layout layout = mode.substr(mode.find(':') + 1) == "nhwc" ? Layout::nhwc : Layout::nchw;
  Problem p;
  std::memset(&p, 0, sizeof p);
  p.batch = l.batch, p.in_channels = l.in, p.out_channels = l.out, p.groups = l.groups;
  p.h = {l.h, output_extent(l.h, l.kh, l.sh, l.ph, l.oph, l.dh), l.kh, l.sh, l.ph, l.dh};
  p.w = {l.w, output_extent(l.w, l.kw, l.sw, l.pw, l.opw, l.dw), l.kw, l.sw, l.pw, l.dw};
  p.direction = direction == "fwd"          ? Direction::fwd
                : direction == "grad_input" ? Direction::grad_input
                                            : Direction::grad_weight;
  p.dtype = type == "fp16" ? DType::f16 : type == "bf16" ? DType::bf16 : DType::f32;
  p.precision = type == "tf32" ? Precision::tf32 : Precision::ieee;
  p.x_layout = p.w_layout = p.y_layout = layout;
  p.has_bias = l.bias && p.direction == Direction::fwd;
  return p;
}

// A view of a tensor without gaps.
TensorRef tensor(void* data, int64_t channels, int64_t h, int64_t w, Layout layout) {
  if (layout == Layout::nhwc) return {data, {h * w * channels, 1, w * channels, channels}};
  return {data, {channels * h * w, h * w, w, 1}};
}

}  // namespace
