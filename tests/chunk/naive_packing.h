// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_CHUNK_NAIVE_PACKING_H_
#define CASTOR_TESTS_CHUNK_NAIVE_PACKING_H_

// Packing by its definition (chunk_packer.h), written a second time and as
// plainly as can be, to compare the product with; and random lists to compare
// them on. Thread-compatible.

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "chunk/base/units.h"

namespace castor {

inline std::vector<Elements> SizesOf(const std::vector<int64_t>& counts) {
  return {counts.begin(), counts.end()};
}

struct NaiveChunk {
  int64_t size = 0;
  int64_t used = 0;
  bool oversize = false;
  bool closed = false;
  std::vector<size_t> params;
  std::vector<int64_t> offsets;
};

inline int64_t NaiveRoundUp(int64_t value, int64_t multiple) {
  while (value % multiple != 0) ++value;
  return value;
}

// `whole`, by parameter: no border of `shards` equal parts of a chunk cuts it.
// REQUIRES: sizes >= 0, chunk_size a positive multiple of 128 * world, and of
// shards; what stays whole fits a part.
inline std::vector<NaiveChunk> NaivePacking(
    const std::vector<Elements>& sizes, int64_t chunk_size, int world,
    int64_t align, int64_t shards = 1, const std::vector<bool>& whole = {}) {
  const auto offset_for = [&](size_t i, int64_t used) {
    int64_t offset = NaiveRoundUp(used, align);
    if (whole.empty() || !whole[i]) return offset;
    const int64_t last = sizes[i].count() - 1;
    const int64_t part = chunk_size / shards;
    while (offset / part != (offset + last) / part) offset += align;
    return offset;
  };
  std::vector<NaiveChunk> chunks;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t size = sizes[i].count();
    if (size == 0) continue;
    if (size > chunk_size) {
      if (!chunks.empty()) chunks.back().closed = true;
      NaiveChunk own;
      own.size = NaiveRoundUp(size, int64_t{128} * world);
      own.used = size;
      own.oversize = true;
      own.closed = true;
      own.params = {i};
      own.offsets = {0};
      chunks.push_back(own);
      continue;
    }
    if (!chunks.empty() && !chunks.back().closed &&
        offset_for(i, chunks.back().used) + size > chunk_size) {
      chunks.back().closed = true;
    }
    if (chunks.empty() || chunks.back().closed) {
      NaiveChunk opened;
      opened.size = chunk_size;
      chunks.push_back(opened);
    }
    NaiveChunk& open = chunks.back();
    open.params.push_back(i);
    open.offsets.push_back(offset_for(i, open.used));
    open.used = open.offsets.back() + size;
  }
  return chunks;
}

// What brute force knows of one chunk size.
struct NaiveCost {
  int64_t chunk_size = 0;
  int64_t chunks = 0;
  int64_t oversize_chunks = 0;
  int64_t oversize_allocated = 0;
  int64_t allocated = 0;
  int64_t gathered = 0;  // elements: three slots and one per oversize class

  friend bool operator==(const NaiveCost&, const NaiveCost&) = default;
};

// Of all these chunks together.
inline NaiveCost NaiveCostOf(const std::vector<NaiveChunk>& chunks,
                             int64_t chunk_size) {
  NaiveCost cost;
  cost.chunk_size = chunk_size;
  std::set<int64_t> classes;
  for (const NaiveChunk& chunk : chunks) {
    ++cost.chunks;
    cost.allocated += chunk.size;
    if (!chunk.oversize) continue;
    ++cost.oversize_chunks;
    cost.oversize_allocated += chunk.size;
    classes.insert(chunk.size);
  }
  cost.gathered = 3 * chunk_size;
  for (const int64_t size : classes) cost.gathered += size;
  return cost;
}

inline NaiveCost NaiveCostOf(const std::vector<Elements>& sizes,
                             int64_t chunk_size, int world, int64_t align) {
  return NaiveCostOf(NaivePacking(sizes, chunk_size, world, align), chunk_size);
}

// Ties to the first.
inline const NaiveCost& LeastAllocated(const std::vector<NaiveCost>& costs) {
  return *std::min_element(costs.begin(), costs.end(),
                           [](const NaiveCost& a, const NaiveCost& b) {
                             return a.allocated < b.allocated;
                           });
}

// Whether nobody would take `b` where `a` is to be had. Of equal ones the
// smaller chunk stays.
inline bool Dominates(const NaiveCost& a, const NaiveCost& b) {
  const bool no_worse = a.allocated <= b.allocated && a.chunks <= b.chunks &&
                        a.gathered <= b.gathered;
  const bool better = a.allocated < b.allocated || a.chunks < b.chunks ||
                      a.gathered < b.gathered;
  return no_worse && (better || a.chunk_size < b.chunk_size);
}

// Of the costs of allowed sizes, by size, those that nobody would do without,
// and the least wasteful.
inline std::vector<NaiveCost> NaiveFront(const std::vector<NaiveCost>& costs) {
  std::vector<NaiveCost> front;
  const NaiveCost& best = LeastAllocated(costs);
  for (const NaiveCost& cost : costs) {
    const bool dominated = std::any_of(
        costs.begin(), costs.end(),
        [&cost](const NaiveCost& other) { return Dominates(other, cost); });
    if (!dominated || cost == best) front.push_back(cost);
  }
  return front;
}

// Sizes that meet borders: multiples of Q and one more or less, repeats, zeros,
// runs, one that dwarfs the rest; else even draws. Up to `most` of them, most
// of them below `largest`.
inline std::vector<Elements> RandomSizes(std::mt19937_64& random, int most,
                                         int64_t quantum, int64_t largest) {
  const auto below = [&random](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  std::vector<Elements> sizes;
  const int count = static_cast<int>(below(most + 1));
  const int64_t style = below(4);
  while (static_cast<int>(sizes.size()) < count) {
    int64_t size = 0;
    switch (style) {
      case 0:
        size = below(largest);
        break;
      case 1:
        size = below(largest / quantum + 1) * quantum + below(3) - 1;
        break;
      case 2:
        size = below(quantum * 2);
        break;
      default:
        size = below(3) == 0 ? below(largest) : below(200);
        break;
    }
    if (below(12) == 0) size = 0;
    if (below(4) == 0 && !sizes.empty()) {
      size =
          sizes[static_cast<size_t>(below(static_cast<int64_t>(sizes.size())))]
              .count();
    }
    const int64_t copies = below(8) == 0 ? 1 + below(6) : 1;
    for (int64_t i = 0; i < copies; ++i) {
      sizes.emplace_back(size < 0 ? 0 : size);
    }
  }
  if (count > 0 && below(10) == 0) {
    sizes[static_cast<size_t>(below(count))] = Elements(largest * 20 + 1);
  }
  return sizes;
}

}  // namespace castor

#endif  // CASTOR_TESTS_CHUNK_NAIVE_PACKING_H_
