// What choose() takes, and how long it takes for it; needs no GPU (choices.sh builds it).
//   choices dump    RANDOM SEED LAYERS...   every choice as a line, for diff between two builds
//   choices compare RANDOM SEED LAYERS...   the bounded search against every family's full one
//   choices time    RANDOM SEED LAYERS...   microseconds a choice, warm and cold, by mode and direction
//   choices family  RANDOM SEED LAYERS...   the same by family, each asked for all it has
// RANDOM problems beside those of the files of layers, drawn from SEED.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>

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
    l.batch = dice.of({1, 1, 2, 4, 8, 16, 33, 128});
    l.groups = dice.one_in(4) ? dice.of({2, 3, 4, 8, 32}) : 1;
    l.in = dice.channels() * l.groups, l.out = dice.channels() * l.groups;
    if (dice.one_in(12)) l.groups = l.in, l.out = l.in * dice.of({1, 1, 1, 2});
    const bool square = !dice.one_in(3);
    const auto extent = [&] {
      return dice.one_in(8)   ? 1
             : dice.one_in(3) ? dice.of({4, 8, 16, 32, 64, 128, 256})
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
           double(l.batch) * std::max(l.in, l.out) * l.h * l.sh * l.w * l.sw > 3e9);
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

std::string line(const char* family, const Plan& plan) {
  char number[64];
  std::string text = std::string(family) + " row " + std::to_string(plan.row) + " split " +
                     std::to_string(plan.split) + " detail";
  for (const int32_t d : plan.detail) text += " " + std::to_string(d);
  std::snprintf(number, sizeof number, " %a us %.2f", plan.predicted_us, plan.predicted_us);
  return text + " workspace " + std::to_string(plan.workspace_bytes) + number + " (" + plan.note +
         ")";
}

Choice chosen(const Asked& a) { return choose(cuda::families(), a.problem, gpu(a.gpu), -1); }

int dump(const std::vector<Asked>& asked) {
  for (const Asked& a : asked) {
    const Choice choice = chosen(a);
    std::printf("%s %s %s: %s\n", a.name.c_str(), a.setting.c_str(), a.gpu,
                line(choice.family->name, choice.plan).c_str());
  }
  return 0;
}

int compare(const std::vector<Asked>& asked) {
  size_t wrong = 0;
  for (const Asked& a : asked) {
    const Choice choice = chosen(a);
    const Candidate* best = nullptr;
    const std::vector<Candidate> all = candidates(cuda::families(), a.problem, gpu(a.gpu));
    for (const Candidate& one : all)
      if (one.decision.accepted &&
          (!best || one.decision.plan.predicted_us < best->decision.plan.predicted_us))
        best = &one;
    const std::string is = line(choice.family->name, choice.plan),
                      should = line(best->family->name, best->decision.plan);
    if (is != should && ++wrong < 30)
      std::printf("%s %s %s:\n  is     %s\n  should %s\n  %s\n", a.name.c_str(), a.setting.c_str(),
                  a.gpu, is.c_str(), should.c_str(), describe(a.problem).c_str());
  }
  std::printf("%zu problems, %zu differ\n", asked.size(), wrong);
  return wrong > 0;
}

double now() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Drives code and data out of the caches near a core.
void forget() {
  static std::vector<char> other(size_t{48} << 20);
  for (size_t i = 0; i < other.size(); i += 64) ++other[i];
}

struct Times {
  std::vector<double> us;
  double mean() const {
    double sum = 0;
    for (double t : us) sum += t;
    return sum / us.size();
  }
  double at(double part) {
    std::sort(us.begin(), us.end());
    return us[size_t(part * (us.size() - 1))];
  }
};

// The least of some rounds, in each of which every other problem comes between: tables of the last are gone.
template <class Ask>
std::vector<double> least(const std::vector<Asked>& asked, bool cold, Ask&& ask) {
  std::vector<double> us(asked.size(), 1e30);
  for (int round = 0; round < (cold ? 2 : 3); ++round)
    for (size_t i = 0; i < asked.size(); ++i) {
      if (cold) forget();
      const double start = now();
      ask(asked[i]);
      us[i] = std::min(us[i], now() - start);
    }
  return us;
}

int time(const std::vector<Asked>& asked) {
  for (const bool cold : {false, true}) {
    std::map<std::string, Times> by;
    std::vector<Asked> some;
    for (size_t i = 0; i < asked.size(); ++i)
      if (!cold || i % 5 == 0) some.push_back(asked[i]);
    const std::vector<double> us = least(some, cold, chosen);
    size_t worst = 0;
    for (size_t i = 0; i < some.size(); ++i) {
      by[some[i].setting].us.push_back(us[i]);
      by["all"].us.push_back(us[i]);
      if (us[i] > us[worst]) worst = i;
    }
    for (auto& [setting, times] : by)
      std::printf("%s %-24s mean %7.1f median %7.1f 90%% %7.1f worst %7.1f\n",
                  cold ? "cold" : "warm", setting.c_str(), times.mean(), times.at(0.5),
                  times.at(0.9), times.at(1));
    std::printf("worst is %s %s %s\n", some[worst].name.c_str(), some[worst].setting.c_str(),
                some[worst].gpu);
  }
  return 0;
}

int family(const std::vector<Asked>& asked) {
  const FamilyList list = cuda::families();
  for (int f = 0; f < list.count; ++f) {
    const std::vector<double> us = least(
        asked, false, [&](const Asked& a) { return list.first[f].plan(a.problem, gpu(a.gpu)); });
    Times times{us}, by[3];
    for (size_t i = 0; i < us.size(); ++i) by[int(asked[i].problem.direction)].us.push_back(us[i]);
    std::printf(
        "%-10s mean %7.2f (fwd %7.2f, grad_input %7.2f, grad_weight %7.2f) median %7.2f 90%% %7.1f "
        "worst %7.1f\n",
        list.first[f].name, times.mean(), by[0].mean(), by[1].mean(), by[2].mean(), times.at(0.5),
        times.at(0.9), times.at(1));
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) return std::printf("see the head of %s\n", __FILE__), 2;
  const std::string what = arguments[1];
  const std::vector<Asked> asked =
      questions(std::atoi(arguments[2]), std::atoi(arguments[3]), count - 4, arguments + 4);
  return what == "dump"      ? dump(asked)
         : what == "compare" ? compare(asked)
         : what == "time"    ? time(asked)
                             : family(asked);
}
