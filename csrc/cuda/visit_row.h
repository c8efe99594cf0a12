// From a row of a table of tiles, known at run time, to a template parameter.
#pragma once

#include <utility>

namespace convt2d::cuda {

// Calls visit(std::integral_constant<int, row>) for a row below COUNT.
template <class Visit, int... ROWS>
void visit_row(int row, Visit&& visit, std::integer_sequence<int, ROWS...>) {
  using Call = void (*)(Visit&);
  constexpr Call table[] = {[](Visit& call) { call(std::integral_constant<int, ROWS>()); }...};
  table[row](visit);
}
template <int COUNT, class Visit>
void visit_row(int row, Visit&& visit) {
  visit_row(row, visit, std::make_integer_sequence<int, COUNT>());
}

}  // namespace convt2d::cuda
