// Walk the families, keep the cheapest plan that was accepted, remember the refusals for explain().
#pragma once

#include <string>
#include <vector>

#include "core/plan.h"
#include "core/search.h"

namespace convt2d {

struct FamilyList {
  const Family* first;
  int count;
  // One for each family: null, or how those with many candidates are asked, after the others.
  const Search* search = nullptr;
};

struct Candidate {
  const Family* family;
  Decision decision;
};

struct Choice {
  const Family* family = nullptr;  // null: nobody accepted
  Plan plan;
};

// `algorithm` < 0 means auto: the accepted plan with the least predicted time, earlier family first
// on ties. Otherwise it is an index into the list, and that family alone is asked. Throws
// std::invalid_argument with every reason when nobody accepts.
Choice choose(FamilyList families, const Problem& problem, const Device& device, int algorithm);

// The time of the plan that choose() takes, microseconds; infinite where nobody accepts.
double least_predicted(FamilyList families, const Problem& problem, const Device& device,
                       int algorithm);

// Every family's answer, in list order.
std::vector<Candidate> candidates(FamilyList families, const Problem& problem,
                                  const Device& device);

// The text behind convt2d_ext.explain(): a line for the problem, for the choice, and for each of
// the other candidates and refusals.
std::string explain(FamilyList families, const Problem& problem, const Device& device,
                    int algorithm);

}  // namespace convt2d
