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

#include "questions.h"

namespace {

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
