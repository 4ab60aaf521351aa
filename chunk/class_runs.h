// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_CLASS_RUNS_H_
#define CASTOR_CHUNK_CLASS_RUNS_H_

// A group's parameters as a search for chunk classes asks for them: by ranges
// of sizes. Chunk sizes are multiples of Q, so what decides to which class a
// parameter belongs is its size rounded up to Q; the distinct ones within max
// are the thresholds. Immutable once built, hence thread-safe.

#include <cstdint>
#include <span>
#include <vector>

#include "chunk/base/units.h"
#include "chunk/chunk_packer.h"
#include "chunk/size_runs.h"

namespace castor {

class ClassRuns {
 public:
  // REQUIRES: valid options; max_size a positive multiple of Q; sizes >= 0
  // that ValidatePackSums accepts at max_size.
  ClassRuns(std::span<const Elements> sizes, Elements max_size,
            const PackOptions& options);

  // D; thresholds are numbered 1 to D by rising size, and 0 stands for zero.
  int thresholds() const { return static_cast<int>(thresholds_.size()) - 1; }
  Elements threshold(int k) const { return At(thresholds_, k); }

  // The sizes of chunks that hold threshold k but no larger parameter within
  // max: multiples of Q from threshold(k) to this. REQUIRES: 1 <= k <= D.
  Elements LargestSize(int k) const;

  // The elements of the parameters larger than threshold i and up to k.
  Elements Payload(int i, int k) const {
    return At(payload_, k) - At(payload_, i);
  }

  // The runs of those parameters, in order. What is larger than max belongs to
  // the last class, where it closes the open chunk. What repeats is found.
  void Select(int i, int k, SizeRuns* runs) const;

  // How many runs the whole list has: what a Select takes.
  int64_t runs() const { return static_cast<int64_t>(runs_.size()); }

  // What is larger than max.
  int64_t oversize_chunks() const { return oversize_chunks_; }
  Elements oversize_allocated() const { return oversize_allocated_; }
  Elements oversize_payload() const { return oversize_payload_; }
  Elements oversize_classes() const { return oversize_classes_; }

 private:
  struct Run {
    SizeRun run;
    int threshold;  // D + 1 for what is larger than max
  };

  static Elements At(const std::vector<Elements>& values, int index) {
    return values[static_cast<size_t>(index)];
  }

  Elements quantum_;
  Elements max_size_;
  std::vector<Elements> thresholds_;  // from the zeroth, zero
  std::vector<Elements> payload_;     // up to and with each threshold
  std::vector<Run> runs_;
  int64_t oversize_chunks_ = 0;
  Elements oversize_allocated_;
  Elements oversize_payload_;
  Elements oversize_classes_;  // the sum of their distinct sizes
};

}  // namespace castor

#endif  // CASTOR_CHUNK_CLASS_RUNS_H_
