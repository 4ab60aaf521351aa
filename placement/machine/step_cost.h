// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_MACHINE_STEP_COST_H_
#define CASTOR_PLACEMENT_MACHINE_STEP_COST_H_

// What one training step of ZeRO-3 moves when every shard's home is host memory
// and no copy is kept from one pass to the next, and how long each link takes
// for it on a machine of known speeds. Per rank, with k chunks that hold b
// bytes in all, W ranks, and latency L and bandwidth B of the link in question.
// A transfer takes its latency and its bytes over the bandwidth. Which
// transfers a step makes: Rajbhandari et al. 2020 and 2021.
//
//   host to device   2 (k L + (b / W) / B)            fetch, forward, backward
//   device to host     (k L + (b / W) / B)            gradients, if trainable
//   all-gather       2 (k (W-1) L + (W-1)/W b / B)    forward, backward
//   reduce-scatter     (k (W-1) L + (W-1)/W b / B)    gradients, if trainable
//
// Parameters that the host updated reach the device with the forward fetch, so
// refreshing them moves nothing more.
//
// Each line grows with k and with b and depends on nothing else of the layout.
// Take two choices of chunk sizes. The one that allocates no more, in no more
// chunks, takes no longer on any link of any machine. So modelled times add
// nothing to the Pareto front over (allocated, chunks, gathered bytes): what is
// fastest for its gathered bytes is on it. Values and pure functions,
// thread-safe. Part of the model of tiers (tier_model.h).

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "chunk/base/units.h"
#include "placement/tier_model.h"

namespace castor {

// The chunks of one group.
struct StepLoad {
  int64_t chunks = 0;  // of every class, and oversize ones
  Bytes allocated;     // of the parameters, when all chunks are whole
  bool trainable = true;
};

// What a step of StepLoad uses, in the order of the table above.
enum class StepLink : uint8_t {
  kHostToDevice,
  kDeviceToHost,
  kAllGather,
  kReduceScatter,
};
inline constexpr int kStepLinks = 4;

// "host_to_device", ...: as the machine file calls it.
std::string_view StepLinkName(StepLink link);

struct StepCost {
  // By StepLink. Empty where the link moves bytes at a speed nobody declared;
  // 0 where it moves none.
  std::array<std::optional<double>, kStepLinks> link_seconds;

  const std::optional<double>& on(StepLink link) const {
    return link_seconds[static_cast<size_t>(link)];
  }
  // If all links work at the same time: the slowest of them. Empty where one is
  // unknown.
  std::optional<double> overlapped_seconds() const;
  // If each waits for the others: their sum. Empty where one is unknown.
  std::optional<double> serial_seconds() const;
};

// REQUIRES: chunks >= 0, allocated >= 0, world >= 1.
StepCost ModelStep(const TierModel& model, const StepLoad& load, int world);

// Of two groups in one step: link by link, unknown where one is.
StepCost operator+(const StepCost& a, const StepCost& b);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_MACHINE_STEP_COST_H_
