// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/policy/compute_spread.h"

#include <algorithm>

namespace castor {

std::vector<double> ComputeWeights(const Trace& trace,
                                   std::span<const Bytes> bytes) {
  std::vector<double> weights;
  weights.reserve(trace.size());
  for (const auto& [kind, chunk] : trace) {
    const bool computes =
        kind == AccessKind::kUse || kind == AccessKind::kGradOpen;
    weights.push_back(
        computes ? static_cast<double>(bytes[chunk.index()].count()) : 0);
  }
  return weights;
}

std::vector<int64_t> ShareOut(std::span<const double> weights,
                              int64_t total_ns) {
  double sum = 0;
  for (const double weight : weights) sum += weight;
  if (sum <= 0) return {};
  std::vector<int64_t> shares;
  shares.reserve(weights.size());
  double before = 0;
  int64_t given_ns = 0;
  for (const double weight : weights) {
    before += weight;
    const auto until_ns =
        static_cast<int64_t>(static_cast<double>(total_ns) * (before / sum));
    const int64_t ns = std::clamp<int64_t>(until_ns - given_ns, 0, total_ns);
    shares.push_back(ns);
    given_ns += ns;
  }
  return shares;
}

std::vector<int64_t> PlannedComputeNs(const Trace& trace,
                                      const PlanProblem& problem) {
  if (problem.step_compute_ns <= 0 || problem.used_bytes.empty()) return {};
  return ShareOut(ComputeWeights(trace, problem.used_bytes),
                  problem.step_compute_ns);
}

}  // namespace castor
