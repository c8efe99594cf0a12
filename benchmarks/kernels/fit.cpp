// Fits the constants of hopper's planner to plans that kernel_bench's `sweep` measured on an H200.
//
//   fit LAYERS [--write] [--rounds N] [--seed N] [--choice WEIGHT] [--fixed NAME,NAME] SWEEP...
//
// Random search: a round multiplies a constant or two by a random factor, which is nearer to 1 the later the round, and
// keeps what lessens the loss. That is how much slower the chosen plans are than the best measured, times WEIGHT, and
// how far predictions lie from measurements; both as logarithms. Printed are how well the planner does before and after
// and the new constants, which --write puts in the places of the old. Constants after --fixed stay as they are: kClock
// by default, since it only scales others.
// A plan is compared with those that were measured: one that the new constants prefer to all of them shows in the next
// sweep.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "layers.h"

namespace {

struct Constant {
  std::string name;
  double* value;
  double before;
};
std::vector<Constant> constants;

// What fit.sh makes of `constexpr double kX = 1.5;` is `double kX = constant("kX", &kX) = 1.5;`.
double& constant(const char* name, double* value) {
  constants.push_back({name, value, 0});
  return constants.back().before;
}

}  // namespace

#include "cuda/cuda_families.h"
#include "cuda/hopper/hopper_plan.h"
#include "varied_predict.cpp"  // here, since the constants are in a namespace without a name

namespace {

using namespace convt2d::cuda;

struct Measured {
  hopper::GatherParams params;
  hopper::TileRow tile;
  double us;
};

// A layer in a mode and a direction.
struct Setting {
  std::string label;
  Problem problem;
  std::vector<Measured> plans;
  double best;  // us
};

double predicted(const Setting& one, const Measured& plan) {
  static const Device device = invented_device("h200");
  hopper::GatherParams params = plan.params;
  return hopper::predict(one.problem, device, params, plan.tile);
}

// The part of a line after "; row": Plan.row and Plan.detail.
Plan plan_from(const std::string& numbers) {
  std::istringstream from(numbers);
  Plan plan;
  from >> plan.row;
  for (int32_t& number : plan.detail) from >> number;
  return plan;
}

std::vector<Setting> read_sweeps(const char* layers_file, const std::vector<std::string>& sweeps) {
  std::map<std::string, Layer> layers;
  for (const Layer& layer : read_layers(layers_file, {})) layers[layer.name] = layer;
  std::map<std::string, Setting> found;
  int read = 0, unknown = 0, refused = 0, renamed = 0;
  for (const std::string& file : sweeps) {
    std::ifstream in(file);
    if (!in) std::printf("cannot read %s\n", file.c_str()), std::exit(2);
    for (std::string line; std::getline(in, line);) {
      const std::string before = "; row ";
      const size_t numbers = line.rfind(before);
      std::istringstream from(line);
      std::string name, mode, direction;
      double us = 0;
      if (numbers == std::string::npos || !(from >> name >> mode >> direction >> us)) continue;
      ++read;
      if (!layers.count(name) || direction == "grad_weight") {
        ++unknown;
        continue;
      }
      const Plan plan = plan_from(line.substr(numbers + before.size()));
      const Problem problem = problem_of(layers[name], mode, direction);
      const hopper::GatherChoice choice = hopper::choice_of(plan);
      hopper::GatherParams params;
      if (plan.row >= hopper::kTileCount ||
          !hopper::gather_shape(problem, choice, params).empty()) {
        ++refused;
        continue;
      }
      renamed +=
          line.find(hopper::plan_of({choice, {}, 0, params.slices, hopper::rows_of(params), 1, 0})
                        .note) == std::string::npos;
      const std::string label = name + " " + mode + " " + direction;
      Setting& one = found.insert({label, {label, problem, {}, us}}).first->second;
      one.best = std::min(one.best, us);
      one.plans.push_back({params, hopper::kTiles[plan.row], us});
    }
  }
  std::vector<Setting> settings;
  for (auto& [label, one] : found) settings.push_back(std::move(one));
  std::printf("%d plans of %zu problems\n", read - unknown - refused, settings.size());
  if (unknown) std::printf("%d skipped: of another layer, or grad_weight\n", unknown);
  if (refused) std::printf("%d skipped: refused by gather_shape\n", refused);
  if (renamed) std::printf("%d have another note now: is their row another tile?\n", renamed);
  return settings;
}

double loss(const std::vector<Setting>& settings, double choice_weight) {
  double regret = 0, error = 0, weights = 0;
  for (const Setting& one : settings) {
    double chosen = 0, chances = 0;
    for (const Measured& plan : one.plans) {
      const double us = predicted(one, plan), slower = plan.us / one.best;
      // A choice that is almost that of the least prediction, but changes smoothly.
      const double chance = std::pow(us / one.best, -20);
      chances += chance;
      chosen += chance * std::log(slower);
      // What nobody would choose need not be predicted well.
      const double weight = std::exp(-2 * (slower - 1));
      weights += weight;
      error += weight * std::abs(std::log(us / plan.us));
    }
    regret += chosen / chances;
  }
  // Constants of which the measurements tell little stay near what they were.
  double moved = 0;
  for (const Constant& c : constants)
    if (*c.value != c.before) moved += std::pow(std::log(*c.value / c.before), 2);
  return choice_weight * regret / settings.size() + error / weights +
         0.002 * moved / constants.size();
}

void report(const std::vector<Setting>& settings) {
  struct Chosen {
    double slower, us;
    const Setting* one;
  };
  std::vector<Chosen> all;
  double slower = 0;
  int near = 0;
  for (const Setting& one : settings) {
    std::vector<double> us;
    for (const Measured& plan : one.plans) us.push_back(predicted(one, plan));
    const size_t least = std::min_element(us.begin(), us.end()) - us.begin();
    const double measured = one.plans[least].us;
    all.push_back({measured / one.best, measured, &one});
    slower += std::log(measured / one.best);
    near += std::abs(std::log(us[least] / measured)) < std::log(1.5);
  }
  std::printf("chosen plans take %.3f times the best measured; %d of %zu within 1.5 x predicted\n",
              std::exp(slower / all.size()), near, all.size());
  std::sort(all.begin(), all.end(),
            [](const Chosen& a, const Chosen& b) { return a.slower > b.slower; });
  for (size_t i = 0; i < std::min<size_t>(10, all.size()); ++i)
    std::printf("  %-40s %9.1f us, best %9.1f\n", all[i].one->label.c_str(), all[i].us,
                all[i].one->best);
}

void search(const std::vector<Setting>& settings, const std::vector<double*>& free, int rounds,
            int seed, double choice_weight) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  double least = loss(settings, choice_weight);
  for (int round = 0; round < rounds; ++round) {
    const double done = double(round) / rounds, spread = 0.3 * std::pow(0.03, done);
    std::vector<std::pair<double*, double>> changed;
    for (int i = 0; i <= round % 2; ++i) {
      double* value = free[random() % free.size()];
      changed.push_back({value, *value});
      *value *= std::exp(spread * normal(random));
    }
    const double now = loss(settings, choice_weight);
    if (now < least) {  // never if it is not a number
      least = now;
    } else {
      for (size_t i = changed.size(); i-- > 0;) *changed[i].first = changed[i].second;
    }
    if (round % std::max(1, rounds / 10) == 0)
      std::fprintf(stderr, "round %d, loss %.4f\n", round, least);
  }
}

// Three digits are what the constants have in the planner.
double rounded(double value) {
  const double unit = std::pow(10, std::floor(std::log10(value)) - 2);
  return std::round(value / unit) * unit;
}

std::string digits(double value) {
  std::ostringstream to;
  to << value;
  return to.str();
}

void write(const char* file) {
  std::ifstream in(file);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  for (const Constant& c : constants) {
    if (*c.value == c.before) continue;
    const std::string before = "constexpr double " + c.name + " =";
    const size_t number = text.find_first_not_of(" \n", text.find(before) + before.size());
    text.replace(number, text.find(';', number) - number, digits(*c.value));
  }
  std::ofstream(file) << text;
}

}  // namespace

int main(int count, char** arguments) {
  int rounds = 10000, seed = 1;
  double choice_weight = 2;
  bool in_place = false;
  std::vector<std::string> fixed = {"kClock"}, sweeps;
  for (int i = 2; i < count; ++i) {
    const std::string option = arguments[i];
    if (option == "--write") {
      in_place = true;
    } else if (option.rfind("--", 0) != 0) {
      sweeps.push_back(option);
    } else if (++i == count) {
      return std::printf("%s of what?\n", option.c_str()), 2;
    } else if (option == "--rounds") {
      rounds = std::atoi(arguments[i]);
    } else if (option == "--seed") {
      seed = std::atoi(arguments[i]);
    } else if (option == "--choice") {
      choice_weight = std::atof(arguments[i]);
    } else if (option == "--fixed") {
      fixed = words(arguments[i]);
    } else {
      return std::printf("no option %s\n", option.c_str()), 2;
    }
  }
  if (sweeps.empty()) return std::printf("see the head of %s\n", __FILE__), 2;

  const std::vector<Setting> settings = read_sweeps(arguments[1], sweeps);
  if (settings.empty()) return 1;
  std::vector<double*> free;
  for (const Constant& c : constants)
    if (std::find(fixed.begin(), fixed.end(), c.name) == fixed.end()) free.push_back(c.value);
  report(settings);
  search(settings, free, rounds, seed, choice_weight);
  for (const Constant& c : constants)
    if (*c.value != c.before) *c.value = rounded(*c.value);
  report(settings);
  for (const Constant& c : constants)
    std::printf("constexpr double %s = %s;\n", c.name.c_str(), digits(*c.value).c_str());
  if (in_place) write("csrc/cuda/hopper/hopper_predict.cpp");
  return 0;
}
