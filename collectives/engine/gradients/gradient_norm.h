// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_GRADIENTS_GRADIENT_NORM_H_
#define CASTOR_COLLECTIVES_ENGINE_GRADIENTS_GRADIENT_NORM_H_

// Sums of squares of reduced gradients, for the global norm. The sums are
// exact, so the norm has the same bits wherever a square is counted: on the
// device or on the host. Gradients tell it what they deposit; the agreement of
// ranks takes its sum. Owner thread only, but for the host's sum: the host
// lane adds to it, and the lane of collectives takes it once that is done.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/chunk_layout.h"
#include "collectives/engine/engine_base.h"
#include "collectives/engine/memory/home_passes.h"
#include "offload/kernels/exact_sum.h"
#include "offload/lanes/event.h"

namespace castor::internal {

// What all ranks' sums make.
struct NormOfStep {
  double squares = 0;
  bool overflowed = false;
};

class GradientNorm {
 public:
  GradientNorm(EngineBase& base, HomePasses& passes)
      : model_(base.model),
        memory_(base.memory),
        lanes_(base.lanes),
        progress_(base.progress),
        passes_(passes) {}

  // Whether what is reduced now is counted.
  bool counting() const {
    return model_.counts_norm() && progress_.last_micro_batch;
  }
  // The chunk's gradient is counted by whoever deposits it.
  void Note(ChunkId chunk);
  // Adds the squares of these runs to the sum of the host; or queues that on
  // the device's lane, to the device's sum.
  void AddOnHost(ChunkId chunk, ShardRange range, const std::byte* data);
  void AddOnDevice(ChunkId chunk, ShardRange range, const std::byte* data);
  // Queues that for a gradient in the trainer's memory.
  void AddBorrowed(ParamId param);
  // Queues that for the gradient at home, or for those that are borrowed.
  void Count(ChunkId chunk);

  // Something may be in the norm twice: the next sum counts all anew.
  void Recount() { recounts_ = model_.counts_norm(); }
  // What is in the norm cannot be taken out of it: drops all. Waits for the
  // host lane.
  Status CountAnew();
  // Counts those of these chunks that are not in the norm yet. Puts this rank's
  // sum into `words`: once the lane of collectives is there, or, of one rank
  // without streams, at once.
  Status AddUpOwn(const std::vector<ChunkId>& with_gradient,
                  std::vector<uint64_t>* words);
  static NormOfStep Total(std::span<const uint64_t> words);

  // Of this step, once ClipGradients was called.
  struct Clipped {
    NormOfStep norm;
    double max_norm = 0;
  };
  std::optional<Clipped>& clipped() { return clipped_; }
  Status RequireNotClipped(ParamId param) const;
  // The sums begin anew.
  void Reset();
  void EndStep();

 private:
  std::vector<ShardRange> CountedRuns(ChunkId chunk, ShardRange within) const;
  // Calls `add` with begin and elements of each run that this rank counts, of a
  // range whose gradient begins at `data`.
  template <typename Add>
  void ForSquares(ChunkId chunk, ShardRange range, const std::byte* data,
                  const Add& add);
  // Queues the way of the device's sum to host memory, and returns its end; the
  // sum begins anew.
  Event FetchDeviceSum();
  // Both sums, once that is done; the host's begins anew.
  ExactSum TakeSums();

  const EngineModel& model_;
  EngineMemory& memory_;
  const EngineLanes& lanes_;
  const StepProgress& progress_;
  HomePasses& passes_;
  ExactSum host_sum_;
  std::vector<bool> counted_;  // by ChunkId; empty: none
  bool recounts_ = false;
  std::optional<Clipped> clipped_;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_GRADIENTS_GRADIENT_NORM_H_
