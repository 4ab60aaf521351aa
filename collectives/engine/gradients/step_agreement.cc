// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/gradients/step_agreement.h"

#include <fmt/format.h>

#include <bit>
#include <utility>

#include "collectives/world/value_hash.h"

namespace castor::internal {
namespace {

// A hash of what ranks had gradients of goes in parts, so that squares and
// their sums stay small.
constexpr int kHashParts = 3;
constexpr int kHashPartBits = 21;
static_assert(kStepWords == 2 + 2 * kHashParts);

// In 24 bits, so that squares and their sums stay small.
uint64_t StepHash(uint64_t rates, double loss_scale, int64_t micro_batches,
                  double max_norm) {
  internal::ValueHash hash;
  hash.Add(max_norm);
  hash.Add(rates);
  hash.Add(loss_scale);
  hash.Add(micro_batches);
  return hash.value() >> 40;
}

}  // namespace

// The one thing a step waits for, in one all-reduce: the sum of squares,
// whether all make the same step, and whether all had gradients of the same
// parameters in the same order. Exact integers add to the same total in any
// order. Only ranks that differ ask which they were.
Result<NormOfStep> StepAgreement::Agree(double lr) {
  const auto& clipped = norm_.clipped();
  const bool counts = model_.counts_norm() && !clipped;
  const size_t words = counts ? ExactSum::kWords : 0;
  std::vector<ChunkId> order = late_.ProposedOrder();
  agreed_.assign(words, 0);
  PutStep(lr, order);
  CASTOR_CHECK_EQ(std::ssize(agreed_),
                  static_cast<int64_t>(words) + kStepWords);
  if (counts) {
    CASTOR_RETURN_IF_ERROR(norm_.AddUpOwn(reducer_.valid(), &agreed_));
  } else {
    lanes_.comm->Wait(lanes_.reduce->Record());
    lanes_.comm->Wait(memory_.device_lane().Record());
    // Not for updates that have begun, which may take as long as a backward.
    if (!optimizer_.early().allowed()) {
      lanes_.comm->Wait(lanes_.host->Record());
      lanes_.comm->Wait(optimizer_.updates_before());
    }
  }
  CASTOR_RETURN_IF_ERROR(words_.AddUp(agreed_, "step"));
  if (!SameHash(words)) {
    return health_.Fail(FailedPrecondition(fmt::format(
        "the ranks make different steps: this one makes step {} with learning "
        "rate {} over {} micro-batches and loss scale {}; these, the numbers "
        "of groups and what gradients are clipped to must be the same on every "
        "rank",
        progress_.number(), lr, progress_.micro_batches,
        scalars_.scaler.scale())));
  }
  bool same = true;
  for (size_t part = 1; part <= kHashParts; ++part) {
    same = same && SameHash(words + 2 * part);
  }
  NormOfStep agreed;
  if (clipped) agreed = clipped->norm;
  if (counts) agreed = GradientNorm::Total(agreed_);
  if (!same) CASTOR_RETURN_IF_ERROR(AgreeOnGradients(order));
  late_.Adopt(std::move(order));
  return agreed;
}

Result<NormOfStep> StepAgreement::AgreeOnNorm() {
  agreed_.assign(ExactSum::kWords, 0);
  CASTOR_RETURN_IF_ERROR(norm_.AddUpOwn(reducer_.valid(), &agreed_));
  CASTOR_RETURN_IF_ERROR(words_.AddUp(agreed_, "step"));
  return GradientNorm::Total(agreed_);
}

void StepAgreement::PutStep(double lr, const std::vector<ChunkId>& order) {
  const auto& clipped = norm_.clipped();
  PutHash(StepHash(scalars_.groups.HashOfRates(lr), scalars_.scaler.scale(),
                   progress_.micro_batches, clipped ? clipped->max_norm : 0));
  ValueHash hash;
  for (const ParamProgress& param : progress_.params) hash.Add(param.used);
  for (const ChunkId chunk : order) hash.Add(chunk.value());
  for (int part = 0; part < kHashParts; ++part) {
    PutHash(hash.value() >> (part * kHashPartBits) &
            ((uint64_t{1} << kHashPartBits) - 1));
  }
}

void StepAgreement::PutHash(uint64_t hash) {
  agreed_.push_back(hash);
  agreed_.push_back(hash * hash);
}

// W numbers are equal just when W times the sum of their squares is the square
// of their sum.
bool StepAgreement::SameHash(size_t at) const {
  return static_cast<uint64_t>(model_.comm->world()) * agreed_[at + 1] ==
         agreed_[at] * agreed_[at];
}

Status StepAgreement::AgreeOnGradients(std::vector<ChunkId>& order) {
  std::vector<ParamProgress>& params = progress_.params;
  const auto bits = static_cast<size_t>(
      std::bit_width(static_cast<unsigned>(model_.comm->world())));
  const size_t counts = 64 / bits;  // in a word
  agreed_.assign((params.size() + counts - 1) / counts, 0);
  for (size_t p = 0; p < params.size(); ++p) {
    agreed_[p / counts] |= uint64_t{params[p].used} << (p % counts * bits);
  }
  CASTOR_RETURN_IF_ERROR(words_.AddUp(agreed_, "step"));
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  for (size_t p = 0; p < params.size(); ++p) {
    params[p].used = (agreed_[p / counts] >> (p % counts * bits) & mask) != 0;
  }
  if (order.empty()) return OkStatus();
  std::vector<int32_t> numbers;
  for (const ChunkId chunk : order) numbers.push_back(chunk.value());
  model_.comm->Broadcast(
      *lanes_.comm, numbers.data(), Bytes(std::ssize(numbers) * 4), 0,
      {ChunkId(), record_.SharedMoment(), "order of gradients"});
  CASTOR_RETURN_IF_ERROR(lanes_.comm->Record().Wait());
  for (size_t i = 0; i < order.size(); ++i) order[i] = ChunkId(numbers[i]);
  return OkStatus();
}

}  // namespace castor::internal
