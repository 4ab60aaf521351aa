// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/simulation/copy_replay.h"

#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/status.h"

namespace castor {

using internal::SimEvent;
using internal::SimSlot;

CopyReplay::CopyReplay(const PlanProblem& problem,
                       std::span<const Bytes> slot_bytes)
    : problem_(problem),
      grads_(problem.param_class.size()),
      copies_(&problem, slot_bytes, this) {
  TakeCounts();
}

void CopyReplay::Adopt(const Trace& trace, const Plan& plan) {
  copies_.Adopt(trace, plan);
  copies_.BeginStep();
}

void CopyReplay::Step(const Trace& trace, std::span<const ChunkId> refreshed) {
  for (const Access& access : trace) Serve(access);
  copies_.EndStep();
  for (const ChunkId chunk : refreshed) {
    const Result<SimSlot> slot = copies_.Borrow(chunk);
    CASTOR_CHECK(slot.ok());
    copies_.Return(*slot, SimEvent());
  }
  copies_.BeginStep();
}

CopyReplay::Counts CopyReplay::TakeCounts() {
  const std::vector<int64_t> none(problem_.param_class.size(), 0);
  return std::exchange(counts_, {none, none});
}

void CopyReplay::Serve(const Access& access) {
  const ChunkId chunk = access.chunk;
  switch (access.kind) {
    case AccessKind::kUse:
      CASTOR_CHECK(copies_.Acquire(chunk).ok());
      return;
    case AccessKind::kUseEnd:
      copies_.EndUse(chunk, SimEvent());
      return;
    case AccessKind::kGradOpen: {
      Result<SimSlot> slot = copies_.OpenGrad(chunk);
      CASTOR_CHECK(slot.ok());
      grads_[chunk.index()] = *std::move(slot);
      return;
    }
    case AccessKind::kGradClose:
      copies_.CloseGrad(chunk, grads_[chunk.index()], SimEvent());
      return;
  }
}

SimEvent CopyReplay::Gather(ChunkId chunk, const SimEvent&, RunCause) {
  ++counts_.gathers[chunk.index()];
  ++counts_.loads[chunk.index()];
  return {};
}

SimEvent CopyReplay::FetchShard(ChunkId chunk, const SimEvent&, RunCause) {
  ++counts_.loads[chunk.index()];
  return {};
}

SimEvent CopyReplay::GatherFrom(const SimEvent&, ChunkId chunk,
                                const SimEvent&) {
  ++counts_.gathers[chunk.index()];
  return {};
}

}  // namespace castor
