// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/shards/rank_pools.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/text/budget_text.h"
#include "chunk/text/units_text.h"
#include "offload/lanes/failure_log.h"

namespace castor {

Result<std::unique_ptr<RankPools>> RankPools::Create(RankPoolsOptions options) {
  std::unique_ptr<RankPools> made(new RankPools());
  // Sizes are checked against budgets before anything is made: pools without
  // memory tell what they would take.
  CASTOR_ASSIGN_OR_RETURN(TierPool device_pool,
                          TierPool::Create(Tier::kDevice, options.device_budget,
                                           options.device_classes, nullptr));
  CASTOR_ASSIGN_OR_RETURN(const TierPool host_shape,
                          TierPool::Create(Tier::kHost, options.host_budget,
                                           options.host_classes, nullptr));
  CASTOR_ASSIGN_OR_RETURN(TierPool nvme_pool,
                          TierPool::Create(Tier::kNvme, options.nvme_budget,
                                           options.nvme_classes, nullptr));
  const Bytes host_size = host_shape.stats().reserved;
  const Bytes nvme_size = nvme_pool.stats().reserved;
  made->log_ = options.log;
  made->nvme_drives_ = std::move(options.nvme_drives);
  made->make_nvme_queue_ = std::move(options.make_nvme_queue);
  made->nvme_checksums_ = options.nvme_checksums;
  made->dry_ = options.dry;
  made->nvme_joined_ = options.nvme_joined;
  made->device_memory_ = std::move(options.device_memory);
  made->make_device_slab_ = std::move(options.make_device_slab);
  made->coming_ = options.coming;
  made->nvme_class_ = options.nvme_class;
  made->device_ = options.device;
  if (made->device_ == nullptr) {
    SimulatedDeviceOptions simulated;
    simulated.capacity = options.device_budget;
    // Copies for leases lie beside the budget.
    if (options.poison) simulated.capacity += GiB(1024);
    simulated.executor = options.executor;
    simulated.workers = options.workers;
    made->own_device_ = std::make_unique<SimulatedDevice>(std::move(simulated));
    made->device_ = made->own_device_.get();
  }

  // The file first: a directory that cannot be used is known at once, memory
  // is touched page by page.
  if (nvme_size > Bytes(0)) {
    CASTOR_ASSIGN_OR_RETURN(
        made->nvme_,
        made->MakeStore(nvme_size, &made->nvme_files_, options.before));
  }
  made->pools_.push_back(std::move(device_pool));
  CASTOR_RETURN_IF_ERROR(made->RestoreDevice());
  if (host_size > Bytes(0)) {
    HostSlabOptions host_options;
    host_options.log = options.log;
    host_options.coming = options.coming;
    host_options.beside = options.host_spare * 3;
    CASTOR_ASSIGN_OR_RETURN(
        made->host_slab_, made->device_->MakeHostSlab(host_size, host_options));
    ++made->allocations_;
  }
  CASTOR_ASSIGN_OR_RETURN(
      TierPool host_pool,
      TierPool::Create(Tier::kHost, options.host_budget, options.host_classes,
                       made->host_slab_.data()));
  made->pools_.push_back(std::move(host_pool));
  made->pools_.push_back(std::move(nvme_pool));
  if (!options.coming.loose) made->PrepareTransfers();
  if (options.poison) {
    made->poison_ = made->device_->MakeLane("poison");
    made->pool(Tier::kDevice)
        .HookGive([pools = made.get()](const Slot& slot, Event free_after) {
          return pools->Poison(slot.data, slot.size, std::move(free_after));
        });
  }
  return made;
}

RankPools::~RankPools() {
  // Slabs go after what writes to them.
  if (poison_ != nullptr) poison_->Drain().IgnoreError();
}

Event RankPools::Poison(std::byte* data, Bytes size, Event free_after) {
  if (poison_ == nullptr || data == nullptr) return free_after;
  poison_->Wait(free_after);
  // All ones.
  device_->Fill(*poison_, data, size, std::byte{0xFF});
  return poison_->Record();
}

Result<std::unique_ptr<NvmeStore>> RankPools::MakeStore(
    Bytes size, std::vector<NvmeDriveOptions>* files, const RankPools* before) {
  NvmeStoreOptions options;
  CASTOR_ASSIGN_OR_RETURN(options.drives,
                          NvmeStore::DrivesFor(size, nvme_drives_));
  *files = options.drives;
  for (NvmeDriveOptions& drive : options.drives) {
    if (before == nullptr) break;
    const Bytes there = before->BytesOfFiles(drive.directory);
    if (there == Bytes(0)) continue;
    const std::optional<Bytes> limit = LimitOf(drive.directory);
    drive.space = limit && there + drive.size > *limit
                      ? FileSpace::kAsWritten
                      : FileSpace::kAtOnceIfThere;
  }
  options.log = log_;
  options.make_queue = make_nvme_queue_;
  options.checksums = nvme_checksums_;
  options.dry = dry_;
  options.joined = nvme_joined_;
  CASTOR_ASSIGN_OR_RETURN(std::unique_ptr<NvmeStore> store,
                          NvmeStore::Create(std::move(options)));
  ++allocations_;
  LimitDrives(*files, -1);
  return store;
}

std::optional<Bytes> RankPools::LimitOf(
    const std::filesystem::path& directory) const {
  for (const NvmeOption& drive : nvme_drives_) {
    if (drive.directory == directory) return drive.size;
  }
  return std::nullopt;
}

Bytes RankPools::BytesOfFiles(const std::filesystem::path& directory) const {
  Bytes bytes;
  const auto add = [&](const std::vector<NvmeDriveOptions>& files) {
    for (const NvmeDriveOptions& file : files) {
      if (directory.empty() || file.directory == directory) bytes += file.size;
    }
  };
  add(nvme_files_);
  for (const Extension& extension : extensions_[TierIndex(Tier::kNvme)]) {
    add(extension.files);
  }
  return bytes;
}

Bytes RankPools::nvme_bytes() const { return BytesOfFiles({}); }

bool RankPools::nvme_as_written() const {
  return nvme_ != nullptr && nvme_->as_written();
}

Bytes RankPools::NvmeRoomBeside(const RankPools& before, int sharing) const {
  Bytes room = nvme_->size();
  for (size_t d = 0; d < nvme_files_.size(); ++d) {
    if (!nvme_->as_written(d)) continue;
    const NvmeDriveOptions& file = nvme_files_[d];
    // What the file system keeps of its own. Where several drives fill up, it
    // is not known how: all may go to this one.
    const Bytes kept = MiB(1) + file.size / 256;
    room = std::min(room, (nvme_->FreeSpaceOf(d) - kept) / sharing);
    // What is left of the limit is without this file.
    if (const std::optional<Bytes> limit = LimitOf(file.directory)) {
      room = std::min(room,
                      *limit + file.size - before.BytesOfFiles(file.directory));
    }
  }
  return std::max(room, Bytes(0));
}

void RankPools::LimitDrives(std::span<const NvmeDriveOptions> files, int sign) {
  for (const NvmeDriveOptions& file : files) {
    for (NvmeOption& drive : nvme_drives_) {
      if (drive.directory == file.directory && drive.size.has_value()) {
        *drive.size += file.size * sign;
      }
    }
  }
}

RankPools::NvmePlace RankPools::nvme_at(Bytes offset) {
  const std::vector<Extension>& extensions =
      extensions_[TierIndex(Tier::kNvme)];
  for (auto last = extensions.rbegin(); last != extensions.rend(); ++last) {
    if (offset >= last->begin) {
      return {last->nvme.get(), offset - last->begin};
    }
  }
  return {nvme_.get(), offset};
}

Status RankPools::Extend(Tier tier, std::span<const SlotClass> classes) {
  CASTOR_CHECK(tier != Tier::kDevice);
  // A pool without memory tells what it would take, and whether it may.
  const PoolStats& now = pool(tier).stats();
  CASTOR_ASSIGN_OR_RETURN(
      const TierPool shape,
      TierPool::Create(tier, now.budget - now.reserved, classes, nullptr));
  const Bytes size = shape.stats().reserved;
  if (size == Bytes(0)) return OkStatus();
  Extension extension;
  extension.begin = now.reserved;
  if (tier == Tier::kHost) {
    HostSlabOptions host_options;
    host_options.log = log_;
    CASTOR_ASSIGN_OR_RETURN(extension.host,
                            device_->MakeHostSlab(size, host_options));
    ++allocations_;
  } else if (nvme_drives_.empty()) {
    return Unavailable(
        fmt::format("there is no NVMe directory to put {} into: give one",
                    FormatBytes(size)));
  } else {
    CASTOR_ASSIGN_OR_RETURN(extension.nvme, MakeStore(size, &extension.files));
  }
  CASTOR_ASSIGN_OR_RETURN(extension.first_class,
                          pool(tier).Extend(classes, extension.host.data()));
  extensions_[TierIndex(tier)].push_back(std::move(extension));
  return OkStatus();
}

Status RankPools::Retract(Tier tier) {
  std::vector<Extension>& extensions = extensions_[TierIndex(tier)];
  const FailureLog failures;
  while (!extensions.empty()) {
    Extension& last = extensions.back();
    for (int32_t c = last.first_class; c < pool(tier).classes(); ++c) {
      // Somebody else has reported how it ended.
      pool(tier).AllFree(c).Wait().IgnoreError();
    }
    pool(tier).Retract(last.first_class);
    if (last.nvme != nullptr) {
      if (Status closed = last.nvme->Close(); !closed.ok()) {
        failures.Add(closed);
      }
    }
    LimitDrives(last.files, 1);
    extensions.pop_back();
  }
  return failures.Summary();
}

Status RankPools::ReleaseDevice() {
  TierPool& device = pool(Tier::kDevice);
  if (device.stats().in_use > Bytes(0)) {
    return FailedPrecondition(fmt::format(
        "the device's memory cannot be given back while {} of its {} are in "
        "use: move or drop what is there first",
        FormatBytes(device.stats().in_use), FormatBytes(device_bytes())));
  }
  CASTOR_RETURN_IF_ERROR(WaitUntilFree(Tier::kDevice));
  device.Rebase(nullptr);
  device_slab_ = Slab();
  for (AddedSlot& added : added_slots_) added.slab = Slab();
  return OkStatus();
}

Result<Slab> RankPools::TakeSlab(Bytes size) {
  CASTOR_ASSIGN_OR_RETURN(Slab slab, make_device_slab_(size));
  const std::unique_ptr<Lane> lane = device_->MakeLane("zero");
  device_->Zero(*lane, slab.data(), size);
  CASTOR_RETURN_IF_ERROR(lane->Drain());
  return slab;
}

Result<Slab> RankPools::MakeDeviceSlab(Bytes size) {
  CASTOR_ASSIGN_OR_RETURN(Slab slab, make_device_slab_ ? TakeSlab(size)
                                     : own_device_ != nullptr
                                         ? own_device_->MakeSlab(size, coming_)
                                         : device_->MakeSlab(size));
  ++allocations_;
  if (device_memory_.made) device_memory_.made(slab.data(), slab.size());
  std::byte* const data = slab.data();
  const Bytes taken = slab.size();
  std::shared_ptr<SlabPages> pages = slab.pages();
  // However it goes, it is told first.
  return Slab(
      Tier::kDevice, data, taken,
      [going = device_memory_.going,
       made = std::make_shared<Slab>(std::move(slab))](std::byte* start,
                                                       Bytes) mutable {
        if (going) going(start);
        made = nullptr;
      },
      std::move(pages));
}

Status RankPools::RestoreDevice() {
  TierPool& device = pool(Tier::kDevice);
  Bytes cut = device.stats().reserved;
  for (const AddedSlot& added : added_slots_) {
    cut -= device.slot_class(added.slot_class).slot_bytes;
  }
  if (device_slab_.data() == nullptr && cut > Bytes(0)) {
    CASTOR_ASSIGN_OR_RETURN(device_slab_, MakeDeviceSlab(cut));
    device.Rebase(device_slab_.data());
  }
  for (AddedSlot& added : added_slots_) {
    if (added.slab.data() == nullptr) {
      CASTOR_ASSIGN_OR_RETURN(
          added.slab,
          MakeDeviceSlab(device.slot_class(added.slot_class).slot_bytes));
    }
    device.RebaseAdded(added.slot_class, added.index, added.slab.data());
  }
  return OkStatus();
}

Status RankPools::AddDeviceSlot(int32_t slot_class) {
  TierPool& device = pool(Tier::kDevice);
  const SlotClass& shape = device.slot_class(slot_class);
  const PoolStats& now = device.stats();
  // Before any memory is made.
  if (now.reserved + shape.slot_bytes > now.budget) {
    return Infeasible(fmt::format(
        "one more slot of {} does not fit: {} of the device budget of {} are "
        "taken",
        FormatBytes(shape.slot_bytes), FormatBytes(now.reserved),
        BudgetText(now.budget)));
  }
  CASTOR_ASSIGN_OR_RETURN(Slab slab, MakeDeviceSlab(shape.slot_bytes));
  const int64_t index = shape.slots;
  CASTOR_RETURN_IF_ERROR(device.AddSlot(slot_class, slab.data()));
  added_slots_.push_back({slot_class, index, std::move(slab)});
  return OkStatus();
}

Bytes RankPools::device_bytes() const {
  Bytes held = device_slab_.size();
  for (const AddedSlot& added : added_slots_) held += added.slab.size();
  return held;
}

std::span<std::byte> RankPools::MemoryOfHostClass(int32_t slot_class) {
  Bytes offset;
  for (int32_t c = 0; c < slot_class; ++c) {
    const SlotClass& before = pool(Tier::kHost).slot_class(c);
    offset += before.slot_bytes * before.slots;
  }
  const SlotClass& shape = pool(Tier::kHost).slot_class(slot_class);
  return {host_slab_.data() + offset.count(),
          static_cast<size_t>((shape.slot_bytes * shape.slots).count())};
}

void RankPools::PrepareTransfers() {
  if (nvme_ == nullptr || nvme_class_ < 0) return;
  nvme_->RegisterMemory(MemoryOfHostClass(nvme_class_));
}

std::vector<const Slab*> RankPools::LooseSlabs() const {
  std::vector<const Slab*> slabs = {&host_slab_};
  for (const Extension& extension : extensions_[TierIndex(Tier::kHost)]) {
    slabs.push_back(&extension.host);
  }
  if (own_device_ != nullptr) {
    slabs.push_back(&device_slab_);
    for (const AddedSlot& added : added_slots_) slabs.push_back(&added.slab);
  }
  std::erase_if(slabs,
                [](const Slab* slab) { return slab->pages() == nullptr; });
  return slabs;
}

Bytes RankPools::loosened_bytes() const {
  Bytes bytes;
  for (const Slab* slab : LooseSlabs()) bytes += slab->size();
  return bytes;
}

void RankPools::Loosen(std::span<const std::span<const std::byte>> kept) {
  std::vector<std::span<const std::byte>> all(kept.begin(), kept.end());
  // The kernel holds them for its rings, and would go on using these.
  if (nvme_ != nullptr && nvme_class_ >= 0) {
    all.push_back(MemoryOfHostClass(nvme_class_));
  }
  for (const Slab* slab : LooseSlabs()) {
    slab->pages()->Loosen();
    std::vector<std::pair<Bytes, Bytes>> stay;  // begin and end in the slab
    for (const std::span<const std::byte> range : all) {
      const Bytes begin(range.data() - slab->data());
      if (begin < Bytes(0) || begin >= slab->size()) continue;
      stay.emplace_back(begin, begin + Bytes(std::ssize(range)));
    }
    std::sort(stay.begin(), stay.end());
    stay.emplace_back(slab->size(), slab->size());
    Bytes gap;
    for (const auto& [begin, end] : stay) {
      if (begin > gap) {
        slab->pages()->Drop(slab->data() + gap.count(), begin - gap);
      }
      gap = std::max(gap, end);
    }
  }
}

void RankPools::DropPages(std::span<const std::byte> memory) {
  for (const Slab* slab : LooseSlabs()) {
    const Bytes begin(memory.data() - slab->data());
    if (begin < Bytes(0) || begin >= slab->size()) continue;
    slab->pages()->Drop(slab->data() + begin.count(),
                        Bytes(std::ssize(memory)));
  }
}

Status RankPools::Settle() {
  coming_ = {};  // what is made later comes at once
  for (const Slab* slab : LooseSlabs()) slab->pages()->Settle();
  return nvme_ == nullptr ? OkStatus() : nvme_->TakeSpace();
}

Status RankPools::WaitUntilFree(Tier tier) const {
  const FailureLog failures;
  for (int32_t c = 0; c < pool(tier).classes(); ++c) {
    if (Status free = pool(tier).AllFree(c).Wait(); !free.ok()) {
      failures.Add(free);
    }
  }
  return failures.Summary();
}

Status RankPools::Close() {
  for (Tier tier : kAllTiers) {
    if (pool(tier).stats().in_use == Bytes(0)) continue;
    return FailedPrecondition(fmt::format(
        "{} of the {} pool are still in use: give every slot back first",
        FormatBytes(pool(tier).stats().in_use), TierName(tier)));
  }
  const FailureLog failures;
  const auto note = [&](const Status& status) {
    if (!status.ok()) failures.Add(status);
  };
  for (Tier tier : kAllTiers) note(WaitUntilFree(tier));
  for (Tier tier : {Tier::kHost, Tier::kNvme}) note(Retract(tier));
  if (nvme_ != nullptr) note(nvme_->Close());
  return failures.Summary();
}

}  // namespace castor
