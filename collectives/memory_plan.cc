// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "placement/home_policy.h"

namespace castor {
namespace {

constexpr Bytes kDeviceAlign{512};
constexpr Bytes kHostAlign{4096};
// Windows open at one time while one chunk is updated: at most one per state.
constexpr int64_t kStagingLeast = kStateKinds;
// One chunk's states are read while another's are updated and written.
constexpr int64_t kStagingForNvme = 2 * kStateKinds;
// Without NVMe: a gradient to add, and parameters whose home is the device.
constexpr int64_t kStagingWithoutNvme = 3;

size_t Index(StateKind kind) { return static_cast<size_t>(kind); }

// Adds slots of one size to a pool's classes; returns the class.
int32_t AddSlots(std::vector<SlotClass>& classes, size_t first, Bytes size,
                 int64_t slots) {
  for (size_t c = first; c < classes.size(); ++c) {
    if (classes[c].slot_bytes == size) {
      classes[c].slots += slots;
      return static_cast<int32_t>(c);
    }
  }
  classes.push_back({size, slots});
  return static_cast<int32_t>(classes.size()) - 1;
}

class Builder {
 public:
  explicit Builder(const MemoryPlanInput& input)
      : input_(input), layout_(*input.layout) {
    const size_t chunks = layout_.chunks().size();
    for (size_t c = 0; c < chunks; ++c) {
      const ChunkId chunk(static_cast<int32_t>(c));
      const Bytes size =
          RoundUp(BytesOf(layout_.chunk(chunk).size, layout_.dtype(chunk)),
                  kDeviceAlign);
      slot_class_.push_back(AddSlots(gathered_, 0, size, 0));
      ++chunks_in_class_[slot_class_.back()];
      shapes_.push_back(ShapeOf(chunk));
    }
  }

  Result<MemoryPlan> Build() {
    // Everything on the device, if it fits: then whole states are used where
    // they are.
    const std::vector<int64_t> direct_need =
        GatheredNeed([&](ChunkId chunk) { return WholeParams(chunk); });
    ChunkHomes on_device;
    on_device.fill(Tier::kDevice);
    const std::vector<ChunkHomes> all_on_device(shapes_.size(), on_device);
    const Bytes everything = HomeBytes(shapes_, all_on_device)[0];
    if (GatheredBytes(direct_need) + LeaseBytes() + everything <=
        input_.device_budget) {
      return Finish(all_on_device, 0, input_.prefetch_depth);
    }

    const std::vector<int64_t> need =
        GatheredNeed([](ChunkId) { return false; });
    const Bytes least = GatheredBytes(need) + LeaseBytes();
    if (least > input_.device_budget) {
      return Infeasible(fmt::format(
          "the device budget of {} bytes cannot hold what the step holds at "
          "once: {}{} bytes in all; raise it by {} bytes, use smaller chunks, "
          "or hold fewer parameters at once",
          input_.device_budget.count(), NeedText(need), least.count(),
          (least - input_.device_budget).count()));
    }

    struct Attempt {
      bool nvme;
      int64_t staging;
    };
    std::vector<Attempt> attempts = {{false, kStagingWithoutNvme}};
    if (input_.nvme_budget.has_value()) {
      attempts.push_back({true, kStagingForNvme});
      attempts.push_back({true, kStagingLeast});
    }
    Status last;
    for (const Attempt& attempt : attempts) {
      for (int depth = input_.prefetch_depth; depth >= 0; --depth) {
        Result<std::vector<ChunkHomes>> homes =
            TryHomes(need, attempt.nvme, attempt.staging, depth);
        if (homes.ok()) return Finish(*homes, attempt.staging, depth);
        last = homes.status();
      }
    }
    return last;
  }

 private:
  bool WholeParams(ChunkId) const {
    return input_.sharding.replicated(StateKind::kParam);
  }

  ChunkStates ShapeOf(ChunkId chunk) const {
    const GroupInfo& group =
        layout_.groups()[static_cast<size_t>(layout_.chunk(chunk).group)];
    ChunkStates shape;
    for (int k = 0; k < kStateKinds; ++k) {
      const StateKind state = static_cast<StateKind>(k);
      if (!Sharding::exists(state, group)) continue;
      const ShardRange kept = input_.sharding.kept(state, layout_, chunk);
      const Bytes bytes =
          BytesOf(kept.end - kept.begin, Sharding::dtype(state, group));
      shape.device_bytes[Index(state)] = RoundUp(bytes, kDeviceAlign);
      shape.host_bytes[Index(state)] = RoundUp(bytes, kHostAlign);
    }
    const Bytes params = shape.device_bytes[Index(StateKind::kParam)];
    const Bytes grads = shape.device_bytes[Index(StateKind::kGrad)];
    const bool masters = shape.device_bytes[Index(StateKind::kMaster)].count();
    // Fetched forward and backward; written by the host where updated there,
    // and refreshed where replicated.
    shape.moved_none_on_device = params * 2 + grads;
    if (input_.sharding.refreshes()) shape.moved_none_on_device += params;
    if (group.trainable) {
      const Bytes own =
          params / (input_.sharding.refreshes() ? input_.sharding.world : 1);
      shape.moved_params_on_device = own * (masters ? 1 : 2) + grads;
    }
    return shape;
  }

  Bytes LeaseBytes() const {
    return RoundUp(input_.declared.largest_lease, kDeviceAlign);
  }

  Bytes GatheredBytes(const std::vector<int64_t>& slots) const {
    Bytes sum;
    for (size_t c = 0; c < gathered_.size(); ++c) {
      sum += gathered_[c].slot_bytes * slots[c];
    }
    return sum;
  }

  std::string NeedText(const std::vector<int64_t>& need) const {
    std::string text;
    for (size_t c = 0; c < gathered_.size(); ++c) {
      if (need[c] == 0) continue;
      text += fmt::format("{} gathered slots of {} bytes, ", need[c],
                          gathered_[c].slot_bytes.count());
    }
    return text;
  }

  // Slots of each class that the declared moments hold at once; `direct` says
  // which chunks' parameters need none.
  template <typename Direct>
  std::vector<int64_t> GatheredNeed(Direct direct) const {
    if (input_.declared.held.empty()) return UndeclaredNeed(direct);
    // A chunk's gradient is open from the first moment that lists one of its
    // parameters to the last, and to the end when not all are listed.
    std::map<ChunkId, std::pair<size_t, size_t>> open;
    std::map<ChunkId, std::set<ParamId>> listed;
    const std::vector<HeldTogether>& held = input_.declared.held;
    for (size_t m = 0; m < held.size(); ++m) {
      for (ParamId param : held[m].grads) {
        const ChunkId chunk = layout_.place(param).chunk;
        if (!chunk.valid()) continue;
        open.try_emplace(chunk, m, m).first->second.second = m;
        listed[chunk].insert(param);
      }
    }
    for (auto& [chunk, moments] : open) {
      if (listed[chunk].size() < layout_.chunk(chunk).params.size()) {
        moments.second = held.size();
      }
    }
    std::vector<int64_t> peak(gathered_.size(), 0);
    for (size_t m = 0; m < held.size(); ++m) {
      std::vector<int64_t> now(gathered_.size(), 0);
      std::set<ChunkId> used;
      for (ParamId param : held[m].params) {
        const ChunkId chunk = layout_.place(param).chunk;
        if (chunk.valid() && !direct(chunk)) used.insert(chunk);
      }
      for (ChunkId chunk : used) ++now[ClassOf(chunk)];
      for (const auto& [chunk, moments] : open) {
        if (moments.first <= m && m <= moments.second) ++now[ClassOf(chunk)];
      }
      for (size_t c = 0; c < peak.size(); ++c) {
        peak[c] = std::max(peak[c], now[c]);
      }
    }
    return AtLeastOneEach(std::move(peak), direct);
  }

  template <typename Direct>
  std::vector<int64_t> UndeclaredNeed(Direct direct) const {
    std::vector<int64_t> need(gathered_.size(), 0);
    for (size_t c = 0; c < gathered_.size(); ++c) {
      const int64_t chunks = chunks_in_class_.at(static_cast<int32_t>(c));
      need[c] = 2 * std::min<int64_t>(chunks, 2);
    }
    return AtLeastOneEach(std::move(need), direct);
  }

  // A class whose chunks are used or reduced at all needs a slot.
  template <typename Direct>
  std::vector<int64_t> AtLeastOneEach(std::vector<int64_t> need,
                                      Direct direct) const {
    for (size_t c = 0; c < shapes_.size(); ++c) {
      const ChunkId chunk(static_cast<int32_t>(c));
      const bool trainable =
          shapes_[c].device_bytes[Index(StateKind::kGrad)] > Bytes(0);
      int64_t& slots = need[ClassOf(chunk)];
      if (!direct(chunk) || trainable) slots = std::max<int64_t>(slots, 1);
    }
    return need;
  }

  size_t ClassOf(ChunkId chunk) const {
    return static_cast<size_t>(slot_class_[chunk.index()]);
  }

  // The class with the most chunks: the one worth prefetching.
  size_t MainClass() const {
    size_t main = 0;
    for (const auto& [slot_class, chunks] : chunks_in_class_) {
      if (chunks > chunks_in_class_.at(static_cast<int32_t>(main))) {
        main = static_cast<size_t>(slot_class);
      }
    }
    return main;
  }

  Bytes StagingBytes() const {
    Bytes largest;
    for (const ChunkStates& shape : shapes_) {
      for (Bytes bytes : shape.host_bytes) largest = std::max(largest, bytes);
    }
    return largest;
  }

  Result<std::vector<ChunkHomes>> TryHomes(const std::vector<int64_t>& need,
                                           bool nvme, int64_t staging,
                                           int depth) const {
    const Bytes device_fixed = GatheredBytes(need) + LeaseBytes() +
                               gathered_[MainClass()].slot_bytes * depth;
    const Bytes host_fixed = StagingBytes() * staging;
    if (device_fixed > input_.device_budget) {
      return Infeasible("no room on the device to fetch ahead");
    }
    if (host_fixed > input_.host_budget) {
      return Infeasible(fmt::format(
          "the host budget of {} bytes cannot hold {} staging slots of {} "
          "bytes; raise it by {} bytes or use smaller chunks",
          input_.host_budget.count(), staging, StagingBytes().count(),
          (host_fixed - input_.host_budget).count()));
    }
    HomeProblem problem;
    problem.chunks = shapes_;
    problem.device = input_.device_budget - device_fixed;
    problem.host = input_.host_budget - host_fixed;
    if (nvme) problem.nvme = input_.nvme_budget;
    Result<std::vector<ChunkHomes>> homes = AssignHomes(problem);
    if (homes.ok()) return homes;
    return Infeasible(fmt::format(
        "{}; of the device budget of {} bytes {} serve gathered chunks, of the "
        "host budget of {} bytes {} serve staging; raise the host budget{}",
        homes.status().message(), input_.device_budget.count(),
        device_fixed.count(), input_.host_budget.count(), host_fixed.count(),
        nvme ? " or the NVMe size" : " or give an NVMe directory"));
  }

  Result<MemoryPlan> Finish(const std::vector<ChunkHomes>& homes,
                            int64_t staging, int depth) const {
    const auto direct = [&](ChunkId chunk) {
      return WholeParams(chunk) &&
             homes[chunk.index()][Index(StateKind::kParam)] == Tier::kDevice;
    };
    MemoryPlan plan;
    plan.home_bytes = HomeBytes(shapes_, homes);
    std::vector<int64_t> slots = GatheredNeed(direct);
    // What homes leave over keeps more copies; more than one per chunk and
    // gradient would never be filled.
    const size_t main = MainClass();
    Bytes left = input_.device_budget - plan.home_bytes[0] - LeaseBytes() -
                 GatheredBytes(slots);
    int64_t useful = 0;
    for (size_t c = 0; c < shapes_.size(); ++c) {
      const ChunkId chunk(static_cast<int32_t>(c));
      if (ClassOf(chunk) == main) useful += direct(chunk) ? 1 : 2;
    }
    slots[main] +=
        std::clamp<int64_t>(left / gathered_[main].slot_bytes, 0,
                            std::max<int64_t>(useful - slots[main], 0));

    plan.device_classes = gathered_;
    for (size_t c = 0; c < slots.size(); ++c) {
      plan.device_classes[c].slots = slots[c];
    }
    const size_t first_home_class = plan.device_classes.size();
    plan.problem.slots = slots;
    plan.problem.prefetch_depth = depth;
    for (size_t c = 0; c < shapes_.size(); ++c) {
      const ChunkId chunk(static_cast<int32_t>(c));
      plan.problem.param_class.push_back(direct(chunk) ? kNoSlotClass
                                                       : slot_class_[c]);
      plan.problem.grad_class.push_back(slot_class_[c]);
      plan.problem.survives_step.push_back(
          shapes_[c].device_bytes[Index(StateKind::kGrad)] == Bytes(0));
      plan.problem.fetch_cost.push_back(
          FetchCost(homes[c][Index(StateKind::kParam)]));
      plan.states.push_back(
          Places(homes[c], shapes_[c], chunk, first_home_class, plan));
    }
    if (LeaseBytes() > Bytes(0)) {
      plan.lease_class = static_cast<int32_t>(plan.device_classes.size());
      plan.device_classes.push_back({LeaseBytes(), 1});
    }
    if (staging > 0 && StagingBytes() > Bytes(0)) {
      plan.staging_class = static_cast<int32_t>(plan.host_classes.size());
      plan.host_classes.push_back({StagingBytes(), staging});
      plan.staging_slots = staging;
    }
    return plan;
  }

  // Links that the bytes cross on their way into a gathered slot: the one
  // between ranks, the one to the device, the one from the drive. A measured
  // tier model says more.
  static double FetchCost(Tier home) {
    return 1 + static_cast<double>(TierIndex(home));
  }

  std::array<StatePlace, kStateKinds> Places(const ChunkHomes& homes,
                                             const ChunkStates& shape,
                                             ChunkId chunk,
                                             size_t first_home_class,
                                             MemoryPlan& plan) const {
    const GroupInfo& group =
        layout_.groups()[static_cast<size_t>(layout_.chunk(chunk).group)];
    std::array<StatePlace, kStateKinds> places;
    for (int k = 0; k < kStateKinds; ++k) {
      const StateKind state = static_cast<StateKind>(k);
      if (!Sharding::exists(state, group)) continue;
      StatePlace& place = places[Index(state)];
      const ShardRange kept = input_.sharding.kept(state, layout_, chunk);
      place.bytes =
          BytesOf(kept.end - kept.begin, Sharding::dtype(state, group));
      place.home = homes[Index(state)];
      switch (place.home) {
        case Tier::kDevice:
          place.slot_class = AddSlots(plan.device_classes, first_home_class,
                                      shape.device_bytes[Index(state)], 1);
          break;
        case Tier::kHost:
          place.slot_class =
              AddSlots(plan.host_classes, 0, shape.host_bytes[Index(state)], 1);
          break;
        case Tier::kNvme:
          place.slot_class =
              AddSlots(plan.nvme_classes, 0, shape.host_bytes[Index(state)], 1);
          break;
      }
    }
    return places;
  }

  const MemoryPlanInput& input_;
  const ChunkLayout& layout_;
  std::vector<SlotClass> gathered_;  // sizes; slots are counted elsewhere
  std::vector<int32_t> slot_class_;  // by ChunkId
  std::map<int32_t, int64_t> chunks_in_class_;
  std::vector<ChunkStates> shapes_;  // by ChunkId
};

}  // namespace

Result<MemoryPlan> PlanMemory(const MemoryPlanInput& input) {
  if (input.layout->chunks().empty()) return MemoryPlan();
  return Builder(input).Build();
}

}  // namespace castor
