// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_SHARDS_RANK_POOLS_H_
#define CASTOR_OFFLOAD_SHARDS_RANK_POOLS_H_

// All the memory one rank may use: a slab and a pool on the device and in host
// memory, a store and a pool on NVMe, made at once. Owns all of it, and the
// device where none is given. Owner thread only.
//
// While a rank trains one thing may grow: the device's pool, by a slot at a
// time within its budget, where a step holds more than was known. Between steps
// the device's memory may be given back for a while. A tier may then be
// extended within its budget, by memory or a file, to take in what the device
// held.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "offload/device.h"
#include "offload/lanes/executor.h"
#include "offload/memory/slab.h"
#include "offload/memory/tier_pool.h"
#include "offload/nvme/nvme_option.h"
#include "offload/nvme/queue/io_queue.h"
#include "offload/nvme/store/nvme_drive.h"
#include "offload/nvme/store/nvme_store.h"
#include "offload/twin/simulated_device.h"
#include "offload/worker_pool.h"

namespace castor {

// Who is to know where the device's memory lies, such as a library that
// registers it: told when it is there, and before it goes. Either may be null.
struct DeviceMemoryListener {
  std::function<void(void* data, Bytes size)> made;
  std::function<void(void* data)> going;
};

class RankPools;

struct RankPoolsOptions {
  // Must outlive the pools. Null: a simulated one, of just the size that is
  // needed, whose lanes `executor` serves.
  Device* device = nullptr;
  Executor* executor = nullptr;  // must outlive the pools where it is needed
  // Of a simulated device made here; may be null, else must outlive the pools.
  WorkerPool* workers = nullptr;
  // Makes the device's memory in the device's place, zeroed or not; null: the
  // device does.
  std::function<Result<Slab>(Bytes)> make_device_slab = nullptr;
  Bytes device_budget;
  Bytes host_budget;
  Bytes nvme_budget;
  std::vector<SlotClass> device_classes;
  std::vector<SlotClass> host_classes;
  std::vector<SlotClass> nvme_classes;  // no slots: no store is made
  std::vector<NvmeOption> nvme_drives;
  Log* log = nullptr;  // may be null, else must outlive the pools
  // Of every drive of every store made; null: the best that this machine gives.
  // What it captures must outlive the pools.
  IoQueueFactory make_nvme_queue = nullptr;
  // Computes checksums; null: threads of each store's own.
  Executor* nvme_checksums = nullptr;
  bool dry = false;        // stores have no files (NvmeStoreOptions)
  Bytes nvme_joined = {};  // likewise
  // What it captures must outlive the pools.
  DeviceMemoryListener device_memory = {};
  // Slots of the device that go back are filled with NaN of every float type.
  bool poison = false;
  // The class of host slots that NVMe transfers go through, whose memory is
  // prepared for them; -1: none is.
  int32_t nvme_class = -1;
  // Of host memory, and of the memory of a simulated device made here.
  SlabComing coming = {};
  // Of the host's classes, what is a convenience: had only where three times as
  // much stays available on the machine.
  Bytes host_spare = {};
  // Pools whose states come here, and whose files give their space back
  // meanwhile: a file that has no room beside these comes as it is written.
  const RankPools* before = nullptr;
};

class RankPools {
 public:
  // Leaves nothing behind when any part of it cannot be had, and makes nothing
  // when a budget does not hold its classes (Infeasible).
  static Result<std::unique_ptr<RankPools>> Create(RankPoolsOptions options);
  ~RankPools();

  Device& device() { return *device_; }
  // Memory on the device beside the budget, zeroed, whose comings and goings
  // are told. The slab goes before the pools.
  Result<Slab> MakeDeviceSlab(Bytes size);
  TierPool& pool(Tier tier) { return pools_[TierIndex(tier)]; }
  const TierPool& pool(Tier tier) const { return pools_[TierIndex(tier)]; }
  // Slabs and files made so far: fixed while the rank trains, which is the
  // point.
  int64_t allocations() const { return allocations_; }
  NvmeStore* nvme() { return nvme_.get(); }  // null where there is none

  // Where the slot of the NVMe pool at `offset` lies.
  struct NvmePlace {
    NvmeStore* store = nullptr;
    Bytes offset;  // in the store
  };
  NvmePlace nvme_at(Bytes offset);

  // Makes room for classes beside those of the tier; blocks while memory or a
  // file is made. Infeasible where the budget does not hold them too,
  // Unavailable where the machine or the disk does not, or where the tier is
  // NVMe and no directory was given. REQUIRES: the tier is not the device.
  Status Extend(Tier tier, std::span<const SlotClass> classes);
  // Takes all that Extend added to the tier away again, and reports what could
  // not be removed. REQUIRES: no slot of it is taken.
  Status Retract(Tier tier);

  // One more slot of a class of the device. Blocks while memory is made.
  // Infeasible where the budget does not hold it, Unavailable where the device
  // does not. REQUIRES: the device's memory was not given back.
  Status AddDeviceSlot(int32_t slot_class);

  // Fills memory of the device with NaN of every float type once `free_after`
  // is done, where the pools poison; says when the bytes are free.
  Event Poison(std::byte* data, Bytes size, Event free_after);

  // Gives the device's memory back. FailedPrecondition, with the bytes, while a
  // slot of it is taken. Blocks until the bytes of slots given back are free.
  Status ReleaseDevice();
  // Makes it anew, zeroed, perhaps somewhere else. Unavailable, and to be tried
  // again later, where the device has no room. Blocks.
  Status RestoreDevice();
  // Bytes of device memory that are held now.
  Bytes device_bytes() const;

  // Between steps, for states that move to other pools bit by bit. Host memory
  // may be loosened, what Extend added too, and a simulated device's made here.
  // Unlocks memory and gives back the pages outside of `kept`, which then read
  // as zeros, but for those that NVMe transfers go through. REQUIRES: nothing
  // is queued on these pools.
  void Loosen(std::span<const std::span<const std::byte>> kept);
  // Gives back the pages of memory that nobody needs. REQUIRES: loose.
  void DropPages(std::span<const std::byte> memory);
  // Of pools that were made loose: as Create does it for others. REQUIRES:
  // called once, before the first transfer with NVMe.
  void PrepareTransfers();
  // Makes all memory present and locked as when it was made, and sets the space
  // of files aside. Unavailable where a drive has it no more. Blocks.
  Status Settle();
  // Of all files.
  Bytes nvme_bytes() const;
  // Whether space on drives comes as it is written.
  bool nvme_as_written() const;
  // How much may be written to files that come as they are written before those
  // of `before` give space back: there is no more within the drives' limits, or
  // on a drive, which `sharing` ranks write to.
  Bytes NvmeRoomBeside(const RankPools& before, int sharing) const;
  // Bytes of memory that can be loosened.
  Bytes loosened_bytes() const;

  // Waits until the bytes of every slot are free and closes the files. Reports
  // the first failure of those it waited for and how many others there were.
  // FailedPrecondition, with the bytes and nothing done, while a slot is taken.
  // Then the pools can only be destroyed.
  Status Close();

 private:
  // What Extend added at one time.
  struct Extension {
    int32_t first_class = 0;
    Bytes begin;  // offset of its first slot in the pool
    Slab host;
    std::unique_ptr<NvmeStore> nvme;
    std::vector<NvmeDriveOptions> files;
  };

  RankPools() = default;

  // `files`: what it has on each drive.
  Result<std::unique_ptr<NvmeStore>> MakeStore(
      Bytes size, std::vector<NvmeDriveOptions>* files,
      const RankPools* before = nullptr);
  // What may yet be put on a drive; empty: anything.
  std::optional<Bytes> LimitOf(const std::filesystem::path& directory) const;
  // Of all files; in `directory` where that is not empty.
  Bytes BytesOfFiles(const std::filesystem::path& directory) const;
  // Takes files off what may yet be put on their drives, or adds them to it.
  void LimitDrives(std::span<const NvmeDriveOptions> files, int sign);
  // Waits until the bytes of what is not taken of the tier are free.
  Status WaitUntilFree(Tier tier) const;
  // Memory whose pages may go.
  std::vector<const Slab*> LooseSlabs() const;
  // Where the slots of a host class lie.
  std::span<std::byte> MemoryOfHostClass(int32_t slot_class);

  // A slot of the device that was added.
  struct AddedSlot {
    int32_t slot_class = 0;
    int64_t index = 0;
    Slab slab;
  };

  std::function<Result<Slab>(Bytes)> make_device_slab_;
  SlabComing coming_;
  int32_t nvme_class_ = -1;
  // The slab that somebody else makes, zeroed.
  Result<Slab> TakeSlab(Bytes size);

  std::unique_ptr<SimulatedDevice> own_device_;
  Device* device_ = nullptr;
  Log* log_ = nullptr;
  std::vector<NvmeOption> nvme_drives_;  // with what may yet be put on each
  IoQueueFactory make_nvme_queue_;
  Executor* nvme_checksums_ = nullptr;
  bool dry_ = false;
  Bytes nvme_joined_;
  int64_t allocations_ = 0;
  DeviceMemoryListener device_memory_;
  Slab device_slab_;
  std::vector<AddedSlot> added_slots_;
  Slab host_slab_;
  std::unique_ptr<NvmeStore> nvme_;
  std::vector<NvmeDriveOptions> nvme_files_;
  std::vector<TierPool> pools_;           // by TierIndex
  std::vector<Extension> extensions_[3];  // by TierIndex, by offset
  std::unique_ptr<Lane> poison_;          // null where nothing is poisoned
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_SHARDS_RANK_POOLS_H_
