// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/class_pairs.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "chunk/base/check.h"

namespace castor {
namespace {

constexpr size_t kNothing = std::numeric_limits<size_t>::max();

// Joins neighbours, given from the right, as long as their joint bound reaches
// `allocated`; the result is by size.
std::vector<CertificateInterval> Joined(
    const std::vector<CertificateInterval>& intervals, Elements allocated) {
  std::vector<CertificateInterval> joined;
  for (const CertificateInterval& interval : intervals) {
    if (!joined.empty() && interval.from * joined.back().chunks >= allocated) {
      joined.back().from = interval.from;
    } else {
      joined.push_back(interval);
    }
  }
  std::reverse(joined.begin(), joined.end());
  return joined;
}

}  // namespace

ClassPairs::ClassPairs(const ClassRuns& runs, std::vector<int> nodes,
                       const PackOptions& options)
    : runs_(runs),
      quantum_(ChunkQuantum(options.world)),
      nodes_(std::move(nodes)),
      selected_index_(kNothing) {
  CASTOR_CHECK(!nodes_.empty());
  CASTOR_CHECK_EQ(nodes_.front(), 0);
  CASTOR_CHECK_EQ(nodes_.back(), runs.thresholds());
  pairs_.resize(nodes_.size() * (nodes_.size() - 1) / 2);
}

void ClassPairs::Select(int i, int k) {
  const size_t index = IndexOf(i, k);
  if (selected_index_ == index) return;
  selected_index_ = index;
  steps_ += runs_.runs();
  runs_.Select(threshold(i), threshold(k), &selected_);
}

RunCount ClassPairs::Count(Elements chunk_size) {
  const RunCount count = selected_.Count(chunk_size);
  steps_ += count.seen;
  return count;
}

RunCount ClassPairs::CountAt(int i, int k, Elements chunk_size) {
  Select(i, k);
  return Count(chunk_size);
}

void ClassPairs::Bracket(int i, int k) {
  ClassPair& pair = pairs_[IndexOf(i, k)];
  if (pair.known) return;
  pair.known = true;
  Select(i, k);
  const Elements payload = runs_.Payload(threshold(i), threshold(k));
  const Elements from = runs_.threshold(threshold(k));
  const Elements to = runs_.LargestSize(threshold(k));
  pair.chunk_size = from;
  pair.chunks = Count(from).chunks;
  pair.waste = from * pair.chunks - payload;
  const int64_t at_end = to == from ? pair.chunks : Count(to).chunks;
  pair.least = std::max(Elements(0), from * at_end - payload);
  pair.intervals = {{from, to, at_end, Elements(0)}};
}

// The least size in [from, to] that needs no more than `chunks`. REQUIRES: `to`
// is one.
Elements ClassPairs::SmallestSizeWith(int64_t chunks, Elements from,
                                      Elements to) {
  while (from < to) {
    const Elements middle = from + RoundDown((to - from) / 2, quantum_);
    const RunCount count = Count(middle);
    if (count.chunks <= chunks) {
      to = std::max(from, RoundUp(count.fill, quantum_));
    } else {
      from = middle + quantum_;
    }
  }
  return to;
}

void ClassPairs::Refine(int i, int k, Elements goal) {
  ClassPair& pair = pairs_[IndexOf(i, k)];
  CASTOR_CHECK(pair.known);
  if (pair.least >= std::min(goal, pair.waste)) return;
  Select(i, k);
  const Elements payload = runs_.Payload(threshold(i), threshold(k));
  const Elements from = runs_.threshold(threshold(k));
  Elements best = pair.waste + payload;  // allocated
  // From the right: whatever allocates no more than `wanted` in chunks that are
  // no larger than these, and hence no fewer, is at most wanted / chunks large.
  std::vector<CertificateInterval> intervals;
  Elements size = runs_.LargestSize(threshold(k));
  int64_t improved = 0;  // the count of the last size that was better
  while (true) {
    const RunCount count = Count(size);
    const int64_t chunks = count.chunks;
    Elements filled = std::max(from, RoundUp(count.fill, quantum_));
    if (filled * chunks < best ||
        (filled * chunks == best && filled < pair.chunk_size)) {
      // Twice in a row the same count: rather than by one parameter after
      // another, go to the first size that has it.
      if (improved == chunks) {
        const Elements least =
            RoundUp(Elements(1) + (payload - Elements(1)) / chunks, quantum_);
        filled = SmallestSizeWith(chunks, std::max(from, least), filled);
      }
      improved = chunks;
      best = filled * chunks;
      pair.chunk_size = filled;
      pair.chunks = chunks;
      pair.waste = best - payload;
    }
    const Elements wanted = std::min(best, goal + payload - Elements(1));
    const Elements next =
        std::min(RoundDown(wanted / chunks, quantum_), filled - quantum_);
    intervals.push_back(
        {std::max(from, next + quantum_), size, chunks, Elements(0)});
    if (next < from) break;
    size = next;
  }
  pair.intervals = Joined(intervals, std::min(best, goal + payload));
  pair.least = pair.intervals.front().from * pair.intervals.front().chunks;
  for (const CertificateInterval& interval : pair.intervals) {
    pair.least = std::min(pair.least, interval.from * interval.chunks);
  }
  pair.least = std::max(Elements(0), pair.least - payload);
}

}  // namespace castor
