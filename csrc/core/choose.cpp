#include "core/choose.h"

#include <algorithm>
#include <cstring>
#include <iomanip>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "core/floor.h"

namespace convt2d {
namespace {

// Index of the cheapest accepted candidate, -1 if there is none. Strictly less: on a tie the
// earlier family stays.
int cheapest(const std::vector<Candidate>& answers) {
  int best = -1;
  for (int i = 0; i < int(answers.size()); ++i) {
    const Decision& decision = answers[i].decision;
    if (!decision.accepted) continue;
    if (best < 0 || decision.plan.predicted_us < answers[best].decision.plan.predicted_us) best = i;
  }
  return best;
}

const Family& family_at(FamilyList families, int algorithm) {
  if (algorithm < families.count) return families.first[algorithm];
  std::ostringstream out;
  out << "algorithm " << algorithm << " does not exist; -1 is auto";
  for (int i = 0; i < families.count; ++i) out << ", " << i << " is " << families.first[i].name;
  throw std::invalid_argument(out.str());
}

// The cheapest candidate of all families, where those that have many need not look at what others beat. Equal ones of families
// that are asked later are taken where these are earlier in the list.
Choice cheapest_of_all(FamilyList families, const Problem& problem, const Device& device) {
  Best best;
  Choice chosen;
  const auto consider = [&](int i, const Decision& decision) {
    if (!decision.accepted) return;
    const Family* family = families.first + i;
    const double us = decision.plan.predicted_us, least = chosen.plan.predicted_us;
    if (chosen.family && (us > least || (us == least && family > chosen.family))) return;
    chosen = {family, decision.plan};
    best.found(us);
  };
  const auto has_many = [&](int i) { return families.search && families.search[i]; };
  for (int i = 0; i < families.count; ++i)
    if (!has_many(i)) consider(i, families.first[i].plan(problem, device));
  for (int i = 0; i < families.count; ++i)
    if (has_many(i)) consider(i, families.search[i](problem, device, best));
  return chosen;
}

// Every family's answer, or the forced family's alone.
std::vector<Candidate> ask(FamilyList families, const Problem& problem, const Device& device,
                           int algorithm) {
  if (algorithm < 0) return candidates(families, problem, device);
  const Family& family = family_at(families, algorithm);
  return {{&family, family.plan(problem, device)}};
}

std::string microseconds(double us) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(us < 1000 ? 1 : 0) << us << " us";
  return out.str();
}

std::string in_brackets(const std::string& note) { return note.empty() ? "" : " (" + note + ")"; }

}  // namespace

std::vector<Candidate> candidates(FamilyList families, const Problem& problem,
                                  const Device& device) {
  std::vector<Candidate> answers;
  for (int i = 0; i < families.count; ++i) {
    const Family& family = families.first[i];
    answers.push_back({&family, family.plan(problem, device)});
  }
  return answers;
}

Choice choose(FamilyList families, const Problem& problem, const Device& device, int algorithm) {
  const std::string invalid = invalid_reason(problem);
  if (!invalid.empty()) throw std::invalid_argument("not a legal problem: " + invalid);
  if (algorithm < 0)
    if (Choice chosen = cheapest_of_all(families, problem, device); chosen.family) return chosen;
  const std::vector<Candidate> answers = ask(families, problem, device, algorithm);
  const int best = cheapest(answers);
  if (best >= 0) return {answers[best].family, answers[best].decision.plan};
  std::string message = "no family serves " + describe(problem);
  for (const Candidate& answer : answers) {
    message += std::string("\n  ") + answer.family->name + ": " + answer.decision.reason;
  }
  throw std::invalid_argument(message);
}

double least_predicted(FamilyList families, const Problem& problem, const Device& device,
                       int algorithm) {
  if (algorithm < 0)
    if (const Choice chosen = cheapest_of_all(families, problem, device); chosen.family)
      return chosen.plan.predicted_us;
  const std::vector<Candidate> answers = ask(families, problem, device, algorithm);
  const int best = cheapest(answers);
  return best >= 0 ? answers[best].decision.plan.predicted_us
                   : std::numeric_limits<double>::infinity();
}

std::string explain(FamilyList families, const Problem& problem, const Device& device,
                    int algorithm) {
  std::ostringstream out;
  out << describe(problem) << "\n";
  const std::string invalid = invalid_reason(problem);
  if (!invalid.empty()) {
    out << "not a legal problem: " << invalid << "\n";
    return out.str();
  }

  const std::vector<Candidate> asked = ask(families, problem, device, algorithm);
  const int best = cheapest(asked);
  const Family* chosen = best < 0 ? nullptr : asked[best].family;
  const Floor floor = floor_of(problem, device);
  if (chosen) {
    const Plan& plan = asked[best].decision.plan;
    out << (algorithm < 0 ? "chosen: " : "forced: ") << chosen->name << in_brackets(plan.note)
        << " predicted " << microseconds(plan.predicted_us);
    if (plan.workspace_bytes > 0) out << ", workspace " << plan.workspace_bytes << " bytes";
    out << ", ";
  } else {
    out << "chosen: none, ";
  }
  out << "floor " << microseconds(floor.us()) << " (" << floor.limit() << ")\n";

  size_t width = 0;
  for (int i = 0; i < families.count; ++i) {
    width = std::max(width, std::strlen(families.first[i].name));
  }
  for (const Candidate& answer : candidates(families, problem, device)) {
    if (answer.family == chosen) continue;
    out << "  " << std::left << std::setw(int(width)) << answer.family->name << "  ";
    if (answer.decision.accepted) {
      out << microseconds(answer.decision.plan.predicted_us)
          << in_brackets(answer.decision.plan.note) << "\n";
    } else {
      out << "declined: " << answer.decision.reason << "\n";
    }
  }
  return out.str();
}

}  // namespace convt2d
