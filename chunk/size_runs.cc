// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/size_runs.h"

#include <algorithm>
#include <array>

namespace castor {
namespace {

constexpr size_t kLongestPeriod = 64;
// Places that are remembered: a cycle of more repeats than this is packed out.
constexpr size_t kLongestCycle = 16;

}  // namespace

// Plain numbers: this is the inner loop of the search, and the sums are known
// to fit.
class SizeRuns::Packing {
 public:
  explicit Packing(Elements chunk_size)
      : room_(chunk_size.count()), next_(room_) {}

  int64_t next() const { return next_; }
  int64_t chunks() const { return chunks_; }
  void AddChunks(int64_t chunks) { chunks_ += chunks; }
  RunCount Done() const { return {chunks_, Elements(fill_), seen_}; }

  void Pack(const SizeRun* run, const SizeRun* end) {
    // A copy, which no run can be a part of, stays in registers.
    Packing packing = *this;
    packing.seen_ += end - run;
    for (; run != end; ++run) packing.PackOne(*run);
    *this = packing;
  }

 private:
  void PackOne(const SizeRun& run) {
    const int64_t size = run.size.count();
    const int64_t stride = run.stride.count();
    int64_t left = run.count;
    if (left == 0) {
      next_ = room_;
      return;
    }
    if (next_ + size <= room_) {
      const int64_t fits =
          left == 1 ? 1 : std::min(left, (room_ - next_ - size) / stride + 1);
      next_ += fits * stride;
      fill_ = std::max(fill_, next_ - stride + size);
      left -= fits;
      if (left == 0) return;
    }
    if (left == 1) {
      ++chunks_;
      next_ = stride;
      fill_ = std::max(fill_, size);
      return;
    }
    const int64_t per_chunk = (room_ - size) / stride + 1;
    const int64_t full = (left - 1) / per_chunk;  // before the last of them
    chunks_ += full + 1;
    left -= full * per_chunk;
    next_ = left * stride;
    fill_ =
        std::max(fill_, ((full > 0 ? per_chunk : left) - 1) * stride + size);
  }

  int64_t room_;
  int64_t next_;  // offset in the open chunk; `room_` where none is open
  int64_t chunks_ = 0;
  int64_t fill_ = 0;
  int64_t seen_ = 0;
};

void SizeRuns::Clear() {
  runs_.clear();
  repeats_ = 0;
}

void SizeRuns::Add(const SizeRun& run) {
  if (!runs_.empty() && runs_.back().size == run.size) {
    runs_.back().count += run.count;
  } else {
    runs_.push_back(run);
  }
}

void SizeRuns::FindRepeat() {
  repeats_ = 0;
  const size_t middle = runs_.size() / 2;
  size_t most = 0;
  for (size_t period = 1; period <= std::min(kLongestPeriod, middle);
       ++period) {
    // As far as each run equals the one a period before it.
    size_t end = middle;
    while (end < runs_.size() && runs_[end] == runs_[end - period]) ++end;
    if (end == middle) continue;
    size_t begin = middle;
    while (begin > period && runs_[begin - 1] == runs_[begin - 1 - period]) {
      --begin;
    }
    const size_t alike = end - begin;
    if (alike <= most || alike < period) continue;
    most = alike;
    begin_ = begin - period;
    period_ = period;
    repeats_ = alike / period + 1;
    if (2 * most >= runs_.size()) break;
  }
}

RunCount SizeRuns::Count(Elements chunk_size) const {
  Packing packing(chunk_size);
  const SizeRun* run = runs_.data();
  const SizeRun* const end = run + runs_.size();
  if (repeats_ == 0) {
    packing.Pack(run, end);
    return packing.Done();
  }
  packing.Pack(run, run + begin_);
  run += begin_;

  // Where each of the first repeats began, and the chunks by then.
  struct Place {
    int64_t next;
    int64_t chunks;
  };
  std::array<Place, kLongestCycle> places;
  size_t known = 0;
  for (size_t repeat = 0; repeat < repeats_;) {
    size_t same = 0;
    while (same < known && places[same].next != packing.next()) ++same;
    if (same < known) {
      const size_t cycle = repeat - same;
      const size_t cycles = (repeats_ - repeat) / cycle;
      packing.AddChunks(static_cast<int64_t>(cycles) *
                        (packing.chunks() - places[same].chunks));
      repeat += cycles * cycle;
      // The rest of a cycle.
      for (; repeat < repeats_; ++repeat) packing.Pack(run, run + period_);
      break;
    }
    if (known < places.size()) {
      places[known++] = {packing.next(), packing.chunks()};
    }
    packing.Pack(run, run + period_);
    ++repeat;
  }
  run += repeats_ * period_;
  packing.Pack(run, end);
  return packing.Done();
}

}  // namespace castor
