// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_SIZE_RUNS_H_
#define CASTOR_CHUNK_SIZE_RUNS_H_

// A list of parameters as runs of one size, of which models have few, and
// next-fit over it, counted in steps of whole runs. Where the runs repeat back
// to back, as those of a model's layers do, next-fit soon comes to a place in
// its chunk where it has been before, and what follows is not packed again but
// multiplied. Thread-compatible.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "chunk/base/units.h"

namespace castor {

// `count` parameters of one size in a row; none where a parameter larger than
// every chunk closes the open one.
struct SizeRun {
  Elements size;
  Elements stride;  // the size rounded up to A
  int64_t count = 0;

  friend bool operator==(const SizeRun&, const SizeRun&) = default;
};

// Next-fit of some runs at one size.
struct RunCount {
  int64_t chunks = 0;
  Elements fill;     // where the fullest of them ends: no smaller size needs
                     // less room for the same packing
  int64_t seen = 0;  // runs that were looked at: the work done
};

class SizeRuns {
 public:
  void Clear();
  // Appends a run; one of the same size joins the last.
  void Add(const SizeRun& run);
  // Looks for what repeats; to be called after the last Add. Finds the repeat
  // that goes through the middle of the list, if it has at most 64 runs. O(n).
  void FindRepeat();

  const std::vector<SizeRun>& runs() const { return runs_; }
  // The runs from repeat_begin on, repeat_period of them, come `repeats`
  // times in a row; 0 where none do.
  size_t repeat_begin() const { return begin_; }
  size_t repeat_period() const { return period_; }
  size_t repeats() const { return repeats_; }

  // REQUIRES: every run's size is within `chunk_size`.
  RunCount Count(Elements chunk_size) const;

 private:
  class Packing;

  std::vector<SizeRun> runs_;
  size_t begin_ = 0;
  size_t period_ = 0;
  size_t repeats_ = 0;
};

}  // namespace castor

#endif  // CASTOR_CHUNK_SIZE_RUNS_H_
