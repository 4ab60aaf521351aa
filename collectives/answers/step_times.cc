// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/answers/step_times.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "chunk/base/tier.h"
#include "chunk/base/units.h"

namespace castor {
namespace {

// What works on one thing at a time (placement/timeline/wires.h).
enum class Wire : uint8_t {
  kToDevice,
  kFromDevice,
  kDrive,
  kHost,  // its cores
  kRanks,
  kTrainer,
};
constexpr size_t kWires = 6;

// How fast a resource is, and what it does beside what its row tells.
struct Range {
  std::optional<LinkModel> alone;
  std::optional<LinkModel> beside = {};  // others that work at the same time
  Bytes more = {};
  int64_t more_calls = 0;
};

// Adds up what resources take for a step.
class Sum {
 public:
  Sum(const StepTraffic& traffic, const StepRanks& ranks,
      const std::optional<TierModel>& machine)
      : traffic_(traffic),
        ranks_(ranks),
        speeds_(machine.value_or(TierModel())) {}

  void AddLink(Wire wire, std::string_view name, std::string_view title,
               Tier from, Tier to, const Range& speed) {
    const LinkTraffic& moved = traffic_.on(from, to);
    const int64_t sharing = wire == Wire::kDrive ? ranks_.per_host : 1;
    Add(wire, {name, title, moved, {}}, moved.transfers, sharing, speed);
  }

  // `moved`: what one rank sends. As RingSeconds, of rings that need not be of
  // one size.
  void AddRing(std::string_view name, std::string_view title,
               const LinkTraffic& moved, int64_t steps,
               const std::optional<RingModel>& ring) {
    if (ranks_.world == 1) return;
    std::optional<LinkModel> link;
    if (ring) link = LinkModel{ring->bytes_per_second, ring->step_latency_ns};
    Add(Wire::kRanks, {name, title, moved, {}}, steps, 1, {link});
  }

  // Passes over host memory.
  void AddPasses(std::string_view name, std::string_view title, Bytes bytes,
                 const std::optional<RateModel>& rate) {
    std::optional<LinkModel> link;
    if (rate) link = LinkModel{rate->bytes_per_second, 0};
    Add(Wire::kHost, {name, title, {bytes, 0}, {}}, 0, ranks_.per_host, {link});
  }

  // Work that no row tells of.
  void AddUntold(Wire wire, double seconds) {
    least_[static_cast<size_t>(wire)] += seconds;
    most_ += seconds;
  }
  void AddCompute(int64_t ns) {
    if (ns == 0) return;
    const double seconds = static_cast<double>(ns) / 1e9;
    times_.resources.push_back({"compute", "compute", {}, seconds});
    AddUntold(Wire::kTrainer, seconds);
  }

  StepTimes Take() {
    if (!times_.resources.empty() && times_.unknown.empty()) {
      const double slowest = *std::max_element(least_.begin(), least_.end());
      const double memory =
          speeds_.memory ? LinkSeconds({speeds_.memory->bytes_per_second, 0}, 0,
                                       in_memory_)
                         : 0;
      times_.least_seconds = std::max(slowest, memory);
      times_.most_seconds = most_;
    }
    return std::move(times_);
  }

 private:
  void Add(Wire wire, ResourceTime time, int64_t calls, int64_t sharing,
           const Range& speed) {
    const Bytes bytes = time.moved.bytes * sharing;
    if (speed.alone) {
      const LinkModel& alone = *speed.alone;
      time.seconds = LinkSeconds(alone, calls * sharing, bytes);
      // Latencies of several transfers may pass at the same time.
      LinkModel fastest = {alone.bytes_per_second, 0};
      LinkModel slowest = alone;
      if (speed.beside) {
        fastest.bytes_per_second =
            std::max(fastest.bytes_per_second, speed.beside->bytes_per_second);
        slowest.bytes_per_second =
            std::min(slowest.bytes_per_second, speed.beside->bytes_per_second);
      }
      const bool by_memory = wire != Wire::kRanks;
      if (by_memory) in_memory_ += time.moved.bytes * ranks_.per_host;
      if (by_memory && speeds_.memory) {
        const int64_t share =
            speeds_.memory->bytes_per_second / (ranks_.per_host / sharing);
        slowest.bytes_per_second =
            std::min(slowest.bytes_per_second, std::max<int64_t>(share, 1));
      }
      least_[static_cast<size_t>(wire)] += LinkSeconds(fastest, 0, bytes);
      most_ += LinkSeconds(slowest, (calls + speed.more_calls) * sharing,
                           bytes + speed.more * sharing);
    }
    if (bytes == Bytes(0)) return;
    if (!speed.alone) times_.unknown.emplace_back(time.name);
    times_.resources.push_back(time);
  }

  const StepTraffic& traffic_;
  const StepRanks ranks_;
  const TierModel speeds_;
  StepTimes times_;
  std::array<double, kWires> least_{};
  double most_ = 0;
  Bytes in_memory_;  // that all ranks of the host read and write there
};

// What the pieces are more than the transfers that are cut into them
// (offload/nvme/store/nvme_store.h).
int64_t MorePieces(const LinkTraffic& moved) {
  return moved.transfers + moved.bytes / MiB(1);
}

}  // namespace

StepTimes TimesOf(const StepTraffic& traffic, const StepRanks& ranks,
                  int64_t compute_ns, const std::optional<TierModel>& machine) {
  using enum Tier;
  const TierModel speeds = machine.value_or(TierModel());
  Sum sum(traffic, ranks, machine);
  sum.AddLink(Wire::kToDevice, "host_to_device", "host to device", kHost,
              kDevice, {speeds.host_to_device, speeds.host_to_device_duplex});
  sum.AddLink(Wire::kFromDevice, "device_to_host", "device to host", kDevice,
              kHost,
              {speeds.device_to_host, speeds.device_to_host_duplex,
               traffic.norm, traffic.norm > Bytes(0)});
  sum.AddLink(Wire::kDrive, "nvme_read", "nvme to host", kNvme, kHost,
              {speeds.nvme_read, speeds.nvme_mixed, Bytes(0),
               MorePieces(traffic.on(kNvme, kHost))});
  sum.AddLink(Wire::kDrive, "nvme_write", "host to nvme", kHost, kNvme,
              {speeds.nvme_write, speeds.nvme_mixed, Bytes(0),
               MorePieces(traffic.on(kHost, kNvme))});
  sum.AddRing("all_gather", "all-gather", traffic.all_gather,
              traffic.all_gather_steps, speeds.all_gather);
  sum.AddRing("reduce_scatter", "reduce-scatter", traffic.reduce_scatter,
              traffic.reduce_scatter_steps, speeds.reduce_scatter);
  sum.AddPasses("optimizer", "optimizer on the host", traffic.update_bytes,
                speeds.optimizer);
  // Where nobody measured memory, what only memory holds up takes no time.
  if (!machine || machine->memory) {
    sum.AddPasses("gradient_sums", "sums of gradients on the host",
                  traffic.sum_bytes, speeds.memory);
  }
  for (const auto& ring : {speeds.all_gather, speeds.reduce_scatter}) {
    if (ring) {
      sum.AddUntold(Wire::kRanks,
                    RingSeconds(*ring, 1, traffic.agreed, ranks.world));
    }
  }
  if (machine) sum.AddCompute(compute_ns);
  return sum.Take();
}

}  // namespace castor
