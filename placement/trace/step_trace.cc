// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/trace/step_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace castor {
namespace {

// What is under way of one chunk.
struct Under {
  int64_t uses = 0;
  bool grad = false;
  size_t use_begin = 0;  // moment of the outermost use
  size_t grad_begin = 0;
};

Status IllegalAccess(size_t moment, const Access& access,
                     std::string_view why) {
  return InvalidArgument(fmt::format("moment {} ({} of chunk {}): {}", moment,
                                     AccessKindName(access.kind),
                                     access.chunk.value(), why));
}

Status Follow(size_t moment, const Access& access, Under& under) {
  switch (access.kind) {
    case AccessKind::kUse:
      if (under.uses++ == 0) under.use_begin = moment;
      return OkStatus();
    case AccessKind::kUseEnd:
      if (under.uses-- == 0) {
        return IllegalAccess(moment, access, "no use of it has begun");
      }
      return OkStatus();
    case AccessKind::kGradOpen:
      if (under.grad) {
        return IllegalAccess(moment, access, "its gradient is open already");
      }
      under.grad = true;
      under.grad_begin = moment;
      return OkStatus();
    case AccessKind::kGradClose:
      if (!under.grad) {
        return IllegalAccess(moment, access, "its gradient is not open");
      }
      under.grad = false;
      return OkStatus();
  }
  return OkStatus();
}

Status ValidateAccesses(const Trace& accesses, size_t chunks) {
  std::vector<Under> under(chunks);
  for (size_t i = 0; i < accesses.size(); ++i) {
    const ChunkId chunk = accesses[i].chunk;
    if (!chunk.valid() || chunk.index() >= chunks) {
      return IllegalAccess(
          i, accesses[i],
          fmt::format("there are {} chunks, numbered from 0", chunks));
    }
    CASTOR_RETURN_IF_ERROR(Follow(i, accesses[i], under[chunk.index()]));
  }
  for (const Under& left : under) {
    if (left.uses > 0) {
      return IllegalAccess(left.use_begin, accesses[left.use_begin],
                           "the step ends before it does");
    }
    if (left.grad) {
      return IllegalAccess(left.grad_begin, accesses[left.grad_begin],
                           "the step ends before it is closed");
    }
  }
  return OkStatus();
}

Status ValidateLeases(const StepTrace& trace) {
  int64_t last_moment = -1;
  Bytes last_bytes;
  for (const LeaseChange& change : trace.leases) {
    if (change.moment <= last_moment ||
        static_cast<size_t>(change.moment) >= trace.accesses.size() ||
        change.bytes < Bytes(0) || change.bytes > kMaxLeased ||
        change.bytes == last_bytes) {
      return InvalidArgument(fmt::format(
          "moment {} is said to change the bytes on lease to {}: there are {} "
          "moments, which rise from one change to the next, and bytes are 0 to "
          "{} and unlike those before",
          change.moment, change.bytes.count(), trace.accesses.size(),
          kMaxLeased.count()));
    }
    last_moment = change.moment;
    last_bytes = change.bytes;
  }
  return OkStatus();
}

Status ValidateTimes(const std::vector<int64_t>& compute_ns, size_t accesses) {
  if (!compute_ns.empty() && compute_ns.size() != accesses) {
    return InvalidArgument(fmt::format(
        "compute times of {} moments, and {} accesses: one for each, or none",
        compute_ns.size(), accesses));
  }
  int64_t left = kMaxStepNs;
  for (size_t i = 0; i < compute_ns.size(); ++i) {
    if (compute_ns[i] < 0 || compute_ns[i] > left) {
      return InvalidArgument(fmt::format(
          "moment {} computes for {} ns: times are not negative, and those of "
          "a step come to {} at most",
          i, compute_ns[i], kMaxStepNs));
    }
    left -= compute_ns[i];
  }
  return OkStatus();
}

Status ValidateEvaluation(const EvaluationPass& pass, size_t chunks) {
  if (pass.accesses.empty()) return InvalidArgument("it uses nothing");
  for (size_t i = 0; i < pass.accesses.size(); ++i) {
    const AccessKind kind = pass.accesses[i].kind;
    if (kind == AccessKind::kGradOpen || kind == AccessKind::kGradClose) {
      return IllegalAccess(i, pass.accesses[i],
                           "an evaluation has no gradients");
    }
  }
  CASTOR_RETURN_IF_ERROR(ValidateAccesses(pass.accesses, chunks));
  return ValidateTimes(pass.compute_ns, pass.accesses.size());
}

Status ValidateEvaluations(const StepTrace& trace, size_t chunks) {
  int32_t last_moment = 0;
  for (size_t i = 0; i < trace.evaluations.size(); ++i) {
    const EvaluationPass& pass = trace.evaluations[i];
    if (pass.moment < last_moment ||
        static_cast<size_t>(pass.moment) > trace.accesses.size()) {
      return InvalidArgument(fmt::format(
          "evaluation {} is said to come before moment {}: there are {} "
          "moments, and evaluations stand in their order",
          i, pass.moment, trace.accesses.size()));
    }
    last_moment = pass.moment;
    Status legal = ValidateEvaluation(pass, chunks);
    if (!legal.ok()) return legal.WithContext(fmt::format("evaluation {}", i));
  }
  return OkStatus();
}

Status ValidateMissingGrads(const StepTrace& trace, size_t chunks) {
  std::vector<bool> has_grad(chunks);
  for (const Access& access : trace.accesses) {
    if (access.kind == AccessKind::kGradClose) {
      has_grad[access.chunk.index()] = true;
    }
  }
  ChunkId last(0);
  for (const MissingGrad& missing : trace.missing_grads) {
    if (!missing.chunk.valid() || missing.chunk.index() >= chunks ||
        !has_grad[missing.chunk.index()] || missing.chunk < last) {
      return InvalidArgument(fmt::format(
          "chunk {} is said to lack the gradient of a parameter: there are {} "
          "chunks, those named have a gradient, and stand in their order",
          missing.chunk.value(), chunks));
    }
    last = missing.chunk;
  }
  return OkStatus();
}

Status ValidateLeaseEnds(const StepTrace& trace) {
  int32_t last = -1;
  for (const LeaseEnd& end : trace.lease_ends) {
    if (end.use <= last || end.before <= end.use ||
        static_cast<size_t>(end.before) > trace.accesses.size() ||
        trace.accesses[static_cast<size_t>(end.use)].kind != AccessKind::kUse) {
      return InvalidArgument(fmt::format(
          "the lease of moment {} is said to end before moment {}: a lease "
          "begins at a use, ends behind it, and there are {} moments, which "
          "rise from one lease to the next",
          end.use, end.before, trace.accesses.size()));
    }
    last = end.use;
  }
  return OkStatus();
}

}  // namespace

std::vector<Bytes> LeasedBytes(const StepTrace& trace) {
  std::vector<Bytes> leased(trace.accesses.size());
  for (size_t i = 0; i < trace.leases.size(); ++i) {
    const auto from = static_cast<size_t>(trace.leases[i].moment);
    const size_t to = i + 1 < trace.leases.size()
                          ? static_cast<size_t>(trace.leases[i + 1].moment)
                          : leased.size();
    std::fill(leased.begin() + static_cast<std::ptrdiff_t>(from),
              leased.begin() + static_cast<std::ptrdiff_t>(to),
              trace.leases[i].bytes);
  }
  return leased;
}

std::vector<bool> ChunksMissingGrads(const StepTrace& trace, size_t chunks) {
  std::vector<bool> missing(chunks);
  for (const MissingGrad& grad : trace.missing_grads) {
    missing[grad.chunk.index()] = true;
  }
  return missing;
}

Status ValidateStep(const StepTrace& trace, size_t chunks) {
  CASTOR_RETURN_IF_ERROR(ValidateAccesses(trace.accesses, chunks));
  CASTOR_RETURN_IF_ERROR(ValidateLeases(trace));
  CASTOR_RETURN_IF_ERROR(
      ValidateTimes(trace.compute_ns, trace.accesses.size()));
  CASTOR_RETURN_IF_ERROR(ValidateEvaluations(trace, chunks));
  CASTOR_RETURN_IF_ERROR(ValidateMissingGrads(trace, chunks));
  return ValidateLeaseEnds(trace);
}

}  // namespace castor
