// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/clock.h"
#include "offload/lanes/event.h"
#include "offload/memory/slab.h"
#include "tools/measure/timings.h"

namespace castor {
namespace {

enum class Mix { kRead, kWrite, kBoth };

// At the front of every extent.
struct Stamp {
  int64_t extent = 0;
  int64_t write = 0;  // how often it was written

  friend bool operator==(const Stamp&, const Stamp&) = default;
};

// A buffer of memory, and what is under way in it.
struct Transfer {
  std::span<std::byte> data;
  int64_t extent = 0;
  bool is_read = false;
};

// Buffers whose transfer is over, and when the transfers ended.
class Window {
 public:
  void Put(size_t buffer, const Status& status) {
    const std::lock_guard lock(mutex_);
    ends_.push_back(clock_.NowNs());
    if (status_.ok()) status_ = status;
    free_.push_back(buffer);
    changed_.notify_one();
  }
  size_t Take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !free_.empty(); });
    const size_t buffer = free_.front();
    free_.erase(free_.begin());
    return buffer;
  }
  Status status() {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  // Seconds between the first end and the last, of those since the last call.
  double TakeSpan() {
    const std::lock_guard lock(mutex_);
    const double seconds = static_cast<double>(ends_.back() - ends_.front());
    ends_.clear();
    return seconds * 1e-9;
  }

 private:
  SteadyClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<size_t> free_;   // this and below: guarded by mutex_
  std::vector<int64_t> ends_;  // in order
  Status status_;              // the first failure
};

// The extents of one size, in their region of the store.
class Region {
 public:
  Region(NvmeStore& store, Bytes offset, Bytes region, Bytes size,
         std::span<std::byte> memory)
      : store_(store),
        offset_(offset),
        writes_(static_cast<size_t>(region / size)),
        order_(writes_.size()),
        size_(size) {
    std::iota(order_.begin(), order_.end(), int64_t{0});
    const auto bytes = static_cast<size_t>(size.count());
    for (size_t at = 0; at + bytes <= memory.size(); at += bytes) {
      transfers_.push_back({.data = memory.subspan(at, bytes)});
    }
    CASTOR_CHECK_GE(transfers_.size(), size_t{2});
  }

  // One pass over all extents; seconds of a transfer.
  Result<double> Pass(Mix mix) {
    std::shuffle(order_.begin(), order_.end(), random_);
    // At most as many as there are extents, so that each ends before another
    // transfer of its own.
    const size_t buffers = std::min(transfers_.size(), order_.size());
    const auto window = std::make_shared<Window>();
    size_t next = 0;
    for (; next < buffers; ++next) {
      Start(window, next, order_[next], mix, next);
    }
    Status failure;
    for (size_t ended = 0; ended < order_.size(); ++ended) {
      const size_t buffer = window->Take();
      const Status status = Check(transfers_[buffer]);
      if (failure.ok()) failure = status;
      if (next < order_.size()) {
        Start(window, buffer, order_[next], mix, next);
        ++next;
      }
    }
    CASTOR_RETURN_IF_ERROR(window->status());
    CASTOR_RETURN_IF_ERROR(failure);
    const double between = static_cast<double>(order_.size() - 1);
    // A clock that did not move is one nanosecond on.
    return std::max(window->TakeSpan(), 1e-9) / between;
  }

 private:
  void Start(const std::shared_ptr<Window>& window, size_t buffer,
             int64_t extent, Mix mix, size_t turn) {
    Transfer& transfer = transfers_[buffer];
    transfer.extent = extent;
    transfer.is_read =
        mix == Mix::kRead || (mix == Mix::kBoth && turn % 2 == 0);
    const Bytes offset = offset_ + size_ * extent;
    Event event;
    if (transfer.is_read) {
      // What is left of another transfer must not pass for this one's.
      std::memset(transfer.data.data(), 0, sizeof(Stamp));
      event = store_.Read(offset, transfer.data, Event(), "a probe's read");
    } else {
      const Stamp stamp{.extent = extent,
                        .write = ++writes_[static_cast<size_t>(extent)]};
      std::memcpy(transfer.data.data(), &stamp, sizeof(stamp));
      event = store_.Write(offset, transfer.data, Event(), "a probe's write",
                           IoPriority::kDemand);
    }
    event.OnDone([window, buffer](const Status& status) {
      window->Put(buffer, status);
    });
  }

  // Whether a read that is over brought what was written.
  Status Check(const Transfer& transfer) const {
    if (!transfer.is_read) return OkStatus();
    const Stamp want{.extent = transfer.extent,
                     .write = writes_[static_cast<size_t>(transfer.extent)]};
    Stamp got;
    std::memcpy(&got, transfer.data.data(), sizeof(got));
    if (got == want) return OkStatus();
    return DataLoss(fmt::format(
        "the drive gave extent {} of write {} where extent {} of write {} was "
        "asked for: do not train on it",
        got.extent, got.write, want.extent, want.write));
  }

  NvmeStore& store_;
  const Bytes offset_;
  std::vector<int64_t> writes_;  // by extent
  std::vector<int64_t> order_;
  const Bytes size_;
  std::vector<Transfer> transfers_;
  std::mt19937_64 random_{7};
};

Result<std::vector<TimedSize>> TimeMix(std::vector<Region>& regions, Mix mix,
                                       const std::vector<Bytes>& sizes,
                                       const RoundOptions& options) {
  SizeSamples samples(sizes);
  CASTOR_RETURN_IF_ERROR(
      RunRounds(sizes.size(), options, [&](size_t size) -> Status {
        CASTOR_ASSIGN_OR_RETURN(const double seconds, regions[size].Pass(mix));
        samples.Add(size, seconds);
        return OkStatus();
      }));
  return samples.medians();
}

}  // namespace

Result<NvmeTimes> TimeNvme(std::unique_ptr<NvmeStore> given, Bytes region,
                           Bytes window, const std::vector<Bytes>& sizes,
                           const RoundOptions& options) {
  CASTOR_CHECK_GE(given->size(), region * std::ssize(sizes));
  Bytes memory = window;
  for (const Bytes size : sizes) {
    CASTOR_CHECK_EQ(region % size, Bytes(0));
    CASTOR_CHECK_GE(region / size, 4);
    memory = std::max(memory, size * 2);
  }
  CASTOR_ASSIGN_OR_RETURN(const Slab slab, MakeHostSlab(memory, {}));
  const std::span<std::byte> all(slab.data(),
                                 static_cast<size_t>(memory.count()));
  // Bytes that no drive can compress.
  std::mt19937_64 random(1);
  for (size_t at = 0; at + sizeof(uint64_t) <= all.size();
       at += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(&all[at], &word, sizeof(word));
  }
  // It goes before its memory does.
  const std::unique_ptr<NvmeStore> store = std::move(given);
  store->RegisterMemory(all);
  std::vector<Region> regions;
  for (size_t i = 0; i < sizes.size(); ++i) {
    regions.emplace_back(*store, region * static_cast<int64_t>(i), region,
                         sizes[i], all);
  }
  // Once without looking at the clock: there is something to read then, and the
  // file system has put its blocks in their places.
  for (Region& one : regions) {
    if (options.stop && options.stop()) {
      return Status(ErrorCode::kStoppedEarly, "stopped while measuring");
    }
    CASTOR_RETURN_IF_ERROR(one.Pass(Mix::kWrite).status());
  }
  NvmeTimes times;
  CASTOR_ASSIGN_OR_RETURN(times.read,
                          TimeMix(regions, Mix::kRead, sizes, options));
  CASTOR_ASSIGN_OR_RETURN(times.write,
                          TimeMix(regions, Mix::kWrite, sizes, options));
  CASTOR_ASSIGN_OR_RETURN(times.mixed,
                          TimeMix(regions, Mix::kBoth, sizes, options));
  times.stats = store->stats();
  CASTOR_RETURN_IF_ERROR(store->Close());
  return times;
}

}  // namespace castor
