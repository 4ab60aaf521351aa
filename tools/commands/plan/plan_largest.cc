// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The largest batch or sequence that fits. Bytes of activations grow with both,
// and nothing else of a plan does.

#include <cstdint>
#include <string>

#include "tools/commands/plan/plan_outcome.h"

namespace castor {
namespace {

constexpr int64_t kSeqStep = 128;
// Of batches, or of steps of a sequence; far more than a trace counts.
constexpr int64_t kMostUnits = int64_t{1} << 24;

PlanFlags WithUnits(const PlanFlags& flags, int64_t units) {
  PlanFlags changed = flags;
  changed.fit = "given";
  if (flags.fit == "batch") {
    changed.batch = units;
  } else {
    changed.seq = units * kSeqStep;
  }
  return changed;
}

int64_t SizeOf(const PlanFlags& flags, int64_t units) {
  return flags.fit == "batch" ? units : units * kSeqStep;
}

}  // namespace

Result<LargestFit> LargestThatFits(const PlanSubject& subject,
                                   const PlanFlags& flags) {
  if (flags.fit == "batch" && !flags.seq) {
    return InvalidArgument(
        "--fit batch counts activations, and so needs --seq");
  }
  LargestFit found;
  found.what = flags.fit;
  // Why that many do not fit; empty where they do.
  const auto refusal = [&](int64_t units) -> Result<std::string> {
    const Result<PlanOutcome> outcome =
        MakePlan(subject, WithUnits(flags, units), /*steady_only=*/true);
    if (outcome.ok()) {
      if (outcome->fits.ok()) return std::string();
      return std::string(outcome->fits.message());
    }
    // Activations of so many tokens may be more than a trace holds.
    const bool too_many =
        outcome.status().code() == ErrorCode::kInvalidArgument && units > 1;
    if (!too_many) return outcome.status();
    return std::string(outcome.status().message());
  };
  int64_t fits = 0;
  int64_t refused = 1;
  while (fits < kMostUnits) {
    CASTOR_ASSIGN_OR_RETURN(const std::string why, refusal(refused));
    if (!why.empty()) {
      found.why = why;
      break;
    }
    fits = refused;
    refused *= 2;
  }
  while (!found.why.empty() && refused - fits > 1) {
    const int64_t middle = fits + (refused - fits) / 2;
    CASTOR_ASSIGN_OR_RETURN(const std::string why, refusal(middle));
    if (!why.empty()) {
      refused = middle;
      found.why = why;
    } else {
      fits = middle;
    }
  }
  found.fits = SizeOf(flags, fits);
  found.refused = SizeOf(flags, refused);
  return found;
}

PlanFlags WithLargest(const PlanFlags& flags, const LargestFit& largest) {
  PlanFlags changed = WithUnits(flags, 1);
  if (largest.fits == 0) return changed;
  (flags.fit == "batch" ? changed.batch : changed.seq) = largest.fits;
  return changed;
}

}  // namespace castor
