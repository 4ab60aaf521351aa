// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_BASE_STABLE_SORT_H_
#define CASTOR_CHUNK_BASE_STABLE_SORT_H_

// Sorting that keeps the order of equals. GCC 12's std::stable_sort calls a
// function that clang 19 refuses as deprecated. Pure function, thread-safe.

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace castor {

template <typename T, typename Less>
void StableSort(std::vector<T>* items, const Less& less) {
  std::vector<size_t> order(items->size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const T& x = (*items)[a];
    const T& y = (*items)[b];
    return less(x, y) || (!less(y, x) && a < b);
  });
  std::vector<T> sorted;
  sorted.reserve(items->size());
  for (const size_t i : order) sorted.push_back(std::move((*items)[i]));
  *items = std::move(sorted);
}

}  // namespace castor

#endif  // CASTOR_CHUNK_BASE_STABLE_SORT_H_
