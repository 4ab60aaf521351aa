// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/trace/grads_in_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/units.h"

namespace castor {
namespace {

Status NotInPlace(size_t moment, ChunkId chunk, std::string_view why) {
  return InvalidArgument(fmt::format(
      "gradients cannot be written over the parameters of this step: chunk {} "
      "{} at moment {}; take another gradient mode",
      chunk.value(), why, moment));
}

Status CheckUsedOnce(const StepTrace& step) {
  std::map<ChunkId, size_t> opened;  // at which moment
  std::map<ChunkId, size_t> closed;
  for (size_t i = 0; i < step.accesses.size(); ++i) {
    const auto [kind, chunk] = step.accesses[i];
    const bool done = closed.contains(chunk);
    if (kind == AccessKind::kUse && done) {
      return NotInPlace(i, chunk, "is used once its gradient is complete,");
    }
    if (kind == AccessKind::kGradOpen && done) {
      return NotInPlace(i, chunk,
                        "has a gradient of a second micro-batch, which begins");
    }
    if (kind == AccessKind::kGradOpen) opened[chunk] = i;
    if (kind == AccessKind::kGradClose) closed[chunk] = i;
  }
  for (const EvaluationPass& pass : step.evaluations) {
    const auto before = static_cast<size_t>(pass.moment);
    for (const Access& access : pass.accesses) {
      const auto open = opened.find(access.chunk);
      if (open != opened.end() && open->second < before) {
        return NotInPlace(before, access.chunk,
                          "is evaluated behind its gradient, before what is");
      }
    }
  }
  return OkStatus();
}

class Converter {
 public:
  explicit Converter(const StepTrace& step)
      : step_(step), leased_(LeasedBytes(step)) {}

  StepTrace Convert() {
    std::vector<int32_t> begins;  // by moment of the step, that of the result
    for (size_t i = 0; i < step_.accesses.size(); ++i) {
      begins.push_back(static_cast<int32_t>(done_.accesses.size()));
      Take(i);
    }
    begins.push_back(static_cast<int32_t>(done_.accesses.size()));
    Bytes before;
    for (size_t i = 0; i < on_lease_.size(); ++i) {
      if (on_lease_[i] == before) continue;
      before = on_lease_[i];
      done_.leases.push_back({static_cast<int32_t>(i), before});
    }
    if (step_.compute_ns.empty()) done_.compute_ns.clear();
    done_.evaluations = step_.evaluations;
    for (EvaluationPass& pass : done_.evaluations) {
      pass.moment = begins[static_cast<size_t>(pass.moment)];
    }
    done_.missing_grads = step_.missing_grads;
    done_.updates_early = step_.updates_early;
    return std::move(done_);
  }

 private:
  // Uses of a chunk that are under way, but for its gradient's.
  struct Uses {
    int64_t held = 0;
    int64_t ended = 0;  // before they end in the step
  };

  void Take(size_t moment) {
    const auto [kind, chunk] = step_.accesses[moment];
    Uses& uses = uses_[chunk];
    switch (kind) {
      case AccessKind::kUse:
        ++uses.held;
        break;
      case AccessKind::kUseEnd:
        if (uses.ended > 0) {
          --uses.ended;
          return Merge(moment);
        }
        --uses.held;
        break;
      case AccessKind::kGradOpen:
        LetGo(moment, chunk);
        Insert(moment, AccessKind::kUse, chunk);
        break;
      case AccessKind::kGradClose:
        LetGo(moment, chunk);
        Insert(moment, AccessKind::kUseEnd, chunk);
        break;
    }
    Add({kind, chunk}, leased_[moment],
        step_.compute_ns.empty() ? 0 : step_.compute_ns[moment]);
  }

  void LetGo(size_t moment, ChunkId chunk) {
    Uses& uses = uses_[chunk];
    for (; uses.held > 0; --uses.held, ++uses.ended) {
      Insert(moment, AccessKind::kUseEnd, chunk);
    }
  }

  // Before the access at `moment`, so of the moment before it.
  void Insert(size_t moment, AccessKind kind, ChunkId chunk) {
    Add({kind, chunk}, moment == 0 ? leased_.back() : leased_[moment - 1], 0);
  }

  // What a moment has whose access is left out is the one's before it.
  void Merge(size_t moment) {
    on_lease_.back() = std::max(on_lease_.back(), leased_[moment]);
    if (!step_.compute_ns.empty()) {
      done_.compute_ns.back() += step_.compute_ns[moment];
    }
  }

  void Add(const Access& access, Bytes leased, int64_t compute_ns) {
    done_.accesses.push_back(access);
    done_.compute_ns.push_back(compute_ns);
    on_lease_.push_back(leased);
  }

  const StepTrace& step_;
  const std::vector<Bytes> leased_;
  std::map<ChunkId, Uses> uses_;
  std::vector<Bytes> on_lease_;
  StepTrace done_;
};

}  // namespace

bool GradsInPlace(const Trace& trace) {
  for (size_t i = 0; i < trace.size(); ++i) {
    const auto [kind, chunk] = trace[i];
    if (kind != AccessKind::kGradOpen && kind != AccessKind::kGradClose) {
      continue;
    }
    const Access around{
        kind == AccessKind::kGradOpen ? AccessKind::kUse : AccessKind::kUseEnd,
        chunk};
    if (i == 0 || trace[i - 1] != around) return false;
  }
  return true;
}

Result<StepTrace> WithGradsInPlace(const StepTrace& step) {
  CASTOR_RETURN_IF_ERROR(CheckUsedOnce(step));
  if (GradsInPlace(step.accesses)) return step;
  return Converter(step).Convert();
}

}  // namespace castor
