// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_SEARCH_PARETO_FRONT_H_
#define CASTOR_CHUNK_SEARCH_PARETO_FRONT_H_

// Part of the chunk-size search (chunk_size_search.h).
// Which of many points nobody can improve in one respect without losing in
// another. Pure function, thread-safe.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace castor {

// Three costs; less is better in each.
using ParetoPoint = std::array<int64_t, 3>;

// The indices, rising, of the points that no other point dominates: none is at
// most as costly in all three respects and less in one. Of equal points only
// the first is kept. O(n log n).
std::vector<size_t> ParetoFront(std::span<const ParetoPoint> points);

}  // namespace castor

#endif  // CASTOR_CHUNK_SEARCH_PARETO_FRONT_H_
