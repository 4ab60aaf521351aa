// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_OFFLOAD_COPIES_SMALL_RANK_MEMORY_H_
#define CASTOR_TESTS_OFFLOAD_COPIES_SMALL_RANK_MEMORY_H_

// What a small rank (small_rank.h) is told to do, and the memory, files and
// clock that its replays share. One thread.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "offload/lanes/timer.h"
#include "offload/nvme/queue/io_queue.h"
#include "offload/shards/host_window.h"
#include "offload/shards/rank_pools.h"
#include "offload/twin/simulated_device.h"
#include "placement/plan.h"
#include "placement/tier_model.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/fakes/manual_executor.h"
#include "tests/support/fakes/manual_io_queue.h"
#include "tests/support/temp_dir.h"

namespace castor::small_rank {

constexpr Bytes kSize = KiB(4);  // of a chunk, of its shard, of every slot
constexpr ByteRange kAll{Bytes(0), kSize};

// One call of the owner thread; a letter of a program.
struct Call {
  enum Kind : char {
    kUse = 'u',     // acquire, queue work, release
    kHold = 'h',    // acquire and queue work
    kLet = 'l',     // release
    kGrad = 'g',    // a gradient is computed and stored
    kEnd = 'e',     // of the step
    kUpdate = 'w',  // read, change and write back, in a window
    kOpen = 'o',    // that window alone
    kClose = 'c',   // the rest
    kBegin = 'b',   // of the step
  };
  Kind kind;
  int32_t chunk;
};

// "u0 w0 e": calls by letter and chunk.
inline std::vector<Call> Program(const std::string& text) {
  std::vector<Call> calls;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    Call call{static_cast<Call::Kind>(text[i]), 0};
    if (i + 1 < text.size() && text[i + 1] != ' ') call.chunk = text[++i] - '0';
    calls.push_back(call);
  }
  return calls;
}

struct Setting {
  int32_t chunks;
  int64_t slots;
  int depth;
  // The trainer computes on its own thread, which then waits where a GPU's
  // would go on.
  bool thread;
  std::string before;    // the first step, in the order of the posts
  std::string explored;  // from there on, in every order
  PlanPolicy policy = PlanPolicy::kAuto;
  Tier home = Tier::kNvme;  // of chunk 0; of all others it is NVMe
  // Every order of the turns of lanes, too, and not only of what takes time.
  bool turns = false;
  int64_t fetch_slots = 0;  // of staging, beside the one for everything else
};

// Whose tasks are all due, in the order that the test likes: what takes time
// ends when the test says so.
class HeldTimer final : public Timer {
 public:
  int64_t NowNs() const override { return 0; }
  void At(int64_t, Task task) override { tasks_.push_back(std::move(task)); }

  size_t held() const { return tasks_.size(); }
  void End(size_t which) {
    Task task = std::move(tasks_[which]);
    tasks_.erase(tasks_.begin() + static_cast<std::ptrdiff_t>(which));
    task();
  }

 private:
  std::vector<Task> tasks_;
};

// What a replay need not make anew, and what is done when the test says so.
struct Memory {
  explicit Memory(const Setting& setting) {
    const int64_t shards = 2 * setting.chunks;
    RankPoolsOptions options;
    options.device = &device;
    options.device_budget = options.host_budget = options.nvme_budget = MiB(1);
    options.device_classes = {{kSize, setting.slots}};
    options.host_classes = {{kSize, shards}, {kSize, 1 + setting.fetch_slots}};
    options.nvme_classes = {{kSize, shards}};
    options.nvme_drives = {{dir.path(), {}}};
    options.make_nvme_queue = [this](size_t) { return MakeManualIoQueue(io); };
    options.nvme_checksums = &executor;
    pools = *RankPools::Create(std::move(options));
  }

  static SimulatedDeviceOptions Twin(Memory* of) {
    const LinkModel slow{1'000'000'000, 1'000};
    return {.capacity = MiB(1),
            .links = {slow, slow, slow},
            .executor = &of->executor,
            .timer = &of->timer};
  }

  // What a drive does, in memory.
  void Finish(ManualIo::Transfer transfer) {
    std::byte* const there = drive.data() + transfer.offset.count();
    const auto size = static_cast<size_t>(transfer.size.count());
    if (transfer.direction == IoDirection::kRead) {
      std::memcpy(transfer.data, there, size);
    } else {
      std::memcpy(there, transfer.data, size);
    }
    io->Moved(std::move(transfer));
  }

  TempDir dir;
  AlignedBytes drive{MiB(1)};
  ManualExecutor executor;
  HeldTimer timer;
  SimulatedDevice device{Twin(this)};
  std::shared_ptr<ManualIo> io = std::make_shared<ManualIo>(MiB(1));
  std::unique_ptr<RankPools> pools;
};

}  // namespace castor::small_rank

#endif  // CASTOR_TESTS_OFFLOAD_COPIES_SMALL_RANK_MEMORY_H_
