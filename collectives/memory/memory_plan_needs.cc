// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/memory/memory_plan_needs.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "chunk/base/dtype.h"
#include "collectives/memory/chunk_states.h"
#include "collectives/memory/gathered_need.h"

namespace castor::internal {
namespace {

// The class of the most chunks, the first of several.
size_t Commonest(const std::vector<int32_t>& slot_class, size_t classes) {
  std::vector<int64_t> chunks(classes);
  for (const int32_t each : slot_class) ++chunks[static_cast<size_t>(each)];
  return static_cast<size_t>(std::max_element(chunks.begin(), chunks.end()) -
                             chunks.begin());
}

// Slots of a class that a step holds.
struct HeldSlots {
  std::vector<int64_t> by_moment;
  int64_t least = 0;  // whatever the moments hold

  int64_t most() const {
    return std::max(least,
                    *std::max_element(by_moment.begin(), by_moment.end()));
  }
  // Of both classes, where they are one.
  HeldSlots And(const HeldSlots& other) const {
    HeldSlots both{by_moment, std::max(least, other.least)};
    for (size_t m = 0; m < by_moment.size(); ++m) {
      both.by_moment[m] += other.by_moment[m];
    }
    return both;
  }
};

// By class, where no parameters are used where they are; then, where a rank has
// them whole, with all of them on the device. Seal sets slots aside for either.
std::vector<std::vector<HeldSlots>> HeldInEachCase(
    const MemoryPlanInput& input, const std::vector<int32_t>& slot_class,
    const std::vector<int32_t>& grad_class) {
  std::vector<std::vector<HeldSlots>> cases;
  for (const bool on_device : {false, true}) {
    if (on_device && !input.sharding.replicated(StateKind::kParam)) break;
    const std::vector<bool> direct(slot_class.size(), on_device);
    const std::vector<int64_t> least = GatheredNeed(
        *input.layout, slot_class, std::vector<HeldTogether>(1), direct,
        grad_class, input.whole_grads, input.grads_in_place);
    std::vector<HeldSlots>& of_class = cases.emplace_back();
    for (std::vector<int64_t>& by_moment : GatheredByMoment(
             *input.layout, slot_class, input.declared.held, direct, grad_class,
             input.whole_grads, input.grads_in_place)) {
      of_class.push_back({std::move(by_moment), least[of_class.size()]});
    }
  }
  return cases;
}

}  // namespace

SlotNeeds::SlotNeeds(const MemoryPlanInput& input) : input_(input) {
  const size_t chunks = layout().chunks().size();
  for (size_t c = 0; c < chunks; ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    const Bytes size =
        RoundUp(BytesOf(layout().chunk(chunk).size, layout().dtype(chunk)),
                kDeviceAlign);
    slot_class_.push_back(AddSlots(gathered_, 0, size, 0));
    shapes_.push_back(StatesOf(layout(), input_.sharding, chunk));
  }
  // Behind those of parameters, where they have sizes of their own.
  for (size_t c = 0; c < chunks; ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    grad_class_.push_back(has_grad(c)
                              ? AddSlots(gathered_, 0, GradBytes(chunk), 0)
                              : slot_class_[c]);
  }
  ShareClasses();
  main_class_ = Commonest(slot_class_, gathered_.size());
  ChoosePiece();
}

void SlotNeeds::ShareClasses() {
  const std::vector<HeldTogether>& held = input_.declared.held;
  const bool whole = input_.sharding.replicated(StateKind::kParam);
  // An estimated step may hold more, and limits put parameters of any chunk
  // where they are used without a slot: then sharing might take more.
  const bool known = !held.empty() && !input_.declared.estimate &&
                     !(whole && input_.limits.has_value());
  constexpr size_t kMostCounts = size_t{1} << 24;  // 128 MiB of them
  if (!known || gathered_.size() == 1 ||
      gathered_.size() > kMostCounts / held.size()) {
    return;
  }
  std::vector<std::vector<HeldSlots>> cases =
      HeldInEachCase(input_, slot_class_, grad_class_);
  std::vector<int64_t> chunks_of(gathered_.size());
  for (const int32_t each : slot_class_) ++chunks_of[static_cast<size_t>(each)];
  std::vector<size_t> by_size(gathered_.size());
  std::iota(by_size.begin(), by_size.end(), size_t{0});
  std::sort(by_size.begin(), by_size.end(), [this](size_t a, size_t b) {
    return gathered_[a].slot_bytes > gathered_[b].slot_bytes;
  });
  std::vector<size_t> shared(gathered_.size());  // by class: whose slots it has
  size_t head = by_size.front();
  for (const size_t next : by_size) {
    shared[next] = head;
    if (next == head) continue;
    const Bytes large = gathered_[head].slot_bytes;
    const Bytes small = gathered_[next].slot_bytes;
    // Copies of all of them take a twentieth more at most.
    bool shares = large * 20 * (chunks_of[head] + chunks_of[next]) <=
                  (large * chunks_of[head] + small * chunks_of[next]) * 21;
    for (const std::vector<HeldSlots>& held_in : cases) {
      shares = shares &&
               large * held_in[head].And(held_in[next]).most() <=
                   large * held_in[head].most() + small * held_in[next].most();
    }
    if (!shares) {
      shared[next] = head = next;
      continue;
    }
    chunks_of[head] += chunks_of[next];
    for (std::vector<HeldSlots>& held_in : cases) {
      held_in[head] = held_in[head].And(held_in[next]);
    }
  }
  std::vector<SlotClass> classes;
  std::vector<int32_t> number(gathered_.size(), -1);
  const auto renumber = [&](std::vector<int32_t>& of_chunks) {
    for (int32_t& of_chunk : of_chunks) {
      const size_t to = shared[static_cast<size_t>(of_chunk)];
      if (number[to] < 0) {
        number[to] = static_cast<int32_t>(classes.size());
        classes.push_back(gathered_[to]);
      }
      of_chunk = number[to];
    }
  };
  renumber(slot_class_);
  renumber(grad_class_);
  gathered_ = std::move(classes);
}

void SlotNeeds::ChoosePiece() {
  // Of fp32 16 MiB: as much as a drive needs to be read at its rate while
  // another piece is copied, and larger ones only take more memory.
  constexpr Elements kPiece{4 << 20};
  Elements largest{0};
  for (size_t c = 0; c < shapes_.size(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    for (size_t k = 0; k < kStateKinds; ++k) {
      if (shapes_[c].host_bytes[k] == Bytes(0)) continue;
      const ShardRange kept =
          input_.sharding.kept(static_cast<StateKind>(k), layout(), chunk);
      largest = std::max(largest, kept.end - kept.begin);
    }
  }
  if (largest > kPiece && !input_.whole_updates) piece_ = kPiece;
  for (size_t c = 0; c < shapes_.size(); ++c) {
    const GroupInfo& group = layout().groups()[static_cast<size_t>(
        layout().chunk(ChunkId(static_cast<int32_t>(c))).group)];
    for (size_t k = 0; k < kStateKinds; ++k) {
      Bytes bytes = shapes_[c].host_bytes[k];
      if (piece_ > Elements(0) && bytes > Bytes(0)) {
        const DType dtype =
            input_.sharding.dtype(static_cast<StateKind>(k), group);
        bytes = std::min(bytes, BytesOf(piece_, dtype));
      }
      staging_slot_ = std::max(staging_slot_, bytes);
    }
  }
}

std::vector<int64_t> SlotNeeds::Slots(const std::vector<bool>& direct) const {
  return GatheredNeed(layout(), slot_class_, input_.declared.held, direct,
                      grad_class_, input_.whole_grads, input_.grads_in_place);
}

Bytes SlotNeeds::GatheredBytes(const std::vector<int64_t>& slots) const {
  Bytes sum;
  for (size_t c = 0; c < gathered_.size(); ++c) {
    sum += gathered_[c].slot_bytes * slots[c];
  }
  return sum;
}

Bytes SlotNeeds::lease_bytes() const {
  return RoundUp(input_.declared.largest_lease, kDeviceAlign);
}

Bytes SlotNeeds::norm_bytes() const {
  return RoundUp(input_.norm_bytes, kDeviceAlign);
}

std::vector<bool> SlotNeeds::Direct(
    const std::vector<ChunkHomes>& homes) const {
  constexpr size_t kParam = static_cast<size_t>(StateKind::kParam);
  std::vector<bool> direct;
  for (const ChunkHomes& of_chunk : homes) {
    direct.push_back(input_.sharding.replicated(StateKind::kParam) &&
                     of_chunk[kParam] == Tier::kDevice);
  }
  return direct;
}

bool SlotNeeds::trainable(size_t chunk) const {
  const ChunkInfo& info = layout().chunk(ChunkId(static_cast<int32_t>(chunk)));
  return layout().groups()[static_cast<size_t>(info.group)].trainable;
}

bool SlotNeeds::has_grad(size_t chunk) const {
  constexpr size_t kGrad = static_cast<size_t>(StateKind::kGrad);
  return shapes_[chunk].device_bytes[kGrad] > Bytes(0);
}

Bytes SlotNeeds::GradBytes(ChunkId chunk) const {
  const ChunkInfo& info = layout().chunk(chunk);
  const GroupInfo& group = layout().groups()[static_cast<size_t>(info.group)];
  return RoundUp(
      BytesOf(info.size, input_.sharding.dtype(StateKind::kGrad, group)),
      kDeviceAlign);
}

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

}  // namespace castor::internal
