// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/clock.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/memory/slab.h"
#include "tools/measure/timings.h"

namespace castor {
namespace {

// In one sample of one direction; several, so that what it takes to begin
// counts for little.
constexpr int64_t kLeastCopies = 4;
constexpr int64_t kMostCopies = 64;

// One direction, with the half of both slabs that is its own.
struct Direction {
  CopyKind kind;
  std::byte* to;
  const std::byte* from;
  Bytes half;
  Lane* lane;
  Bytes cursor = {};  // where the next copy begins

  // Queues one copy at the cursor.
  void Queue(Device& device, Bytes size) {
    if (cursor + size > half) cursor = Bytes(0);
    const auto at = static_cast<size_t>(cursor.count());
    device.Copy(*lane, to + at, from + at, size, kind);
    cursor += size;
  }
};

// When each of the copies of one sample ended, in their order. Shared with the
// events' callbacks, which may return after the last of them was waited for.
class Ends : public std::enable_shared_from_this<Ends> {
 public:
  explicit Ends(size_t count) : ns_(count) {}

  // The next copy is the one that `event` ends.
  void Expect(const Event& event) {
    event.OnDone(
        [self = shared_from_this(), index = expected_++](const Status& status) {
          const std::lock_guard lock(self->mutex_);
          self->ns_[index] = SteadyClock().NowNs();
          if (self->status_.ok()) self->status_ = status;
          ++self->ended_;
          self->changed_.notify_one();
        });
  }

  // Until all have ended. The first failure.
  Status Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_ == ns_.size(); });
    return status_;
  }

  // REQUIRES, both: Wait() has returned.
  int64_t last() const { return ns_.back(); }
  // Copies that had ended at `ns`, and the share of the one under way that
  // began when the one before ended.
  double CountAt(int64_t begin, int64_t ns) const {
    int64_t from = begin;
    for (size_t i = 0; i < ns_.size(); ++i) {
      if (ns_[i] > ns) {
        return static_cast<double>(i) + static_cast<double>(ns - from) /
                                            static_cast<double>(ns_[i] - from);
      }
      from = ns_[i];
    }
    return static_cast<double>(ns_.size());
  }

 private:
  size_t expected_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int64_t> ns_;  // this and below: guarded by mutex_
  size_t ended_ = 0;
  Status status_;
};

// Seconds of a copy in each of the directions, which work at the same time:
// counted while all of them do.
Result<std::vector<double>> TimeOnce(Device& device,
                                     std::span<Direction* const> directions,
                                     Bytes size) {
  const int64_t count =
      std::clamp(directions[0]->half / 2 / size, kLeastCopies, kMostCopies);
  // Nothing begins before everything is queued.
  const EventSource gate;
  std::vector<std::shared_ptr<Ends>> ends;
  for (Direction* const direction : directions) {
    direction->lane->Wait(gate.event());
    ends.push_back(std::make_shared<Ends>(static_cast<size_t>(count)));
    for (int64_t i = 0; i < count; ++i) {
      direction->Queue(device, size);
      ends.back()->Expect(direction->lane->Record());
    }
  }
  const int64_t begin = SteadyClock().NowNs();
  gate.Complete();
  Status failure;
  for (const auto& of_one : ends) {
    const Status status = of_one->Wait();
    if (failure.ok()) failure = status;
  }
  CASTOR_RETURN_IF_ERROR(failure);
  int64_t all_work_until = INT64_MAX;
  for (const auto& of_one : ends) {
    all_work_until = std::min(all_work_until, of_one->last());
  }
  // A clock that did not move is one nanosecond on.
  const double seconds =
      static_cast<double>(std::max<int64_t>(all_work_until - begin, 1)) * 1e-9;
  std::vector<double> times;
  for (const auto& of_one : ends) {
    times.push_back(seconds / of_one->CountAt(begin, all_work_until));
  }
  return times;
}

// Samples of `directions` at once, one vector of medians for each.
Result<std::vector<std::vector<TimedSize>>> TimeTogether(
    Device& device, std::span<Direction* const> directions,
    const std::vector<Bytes>& sizes, const RoundOptions& options) {
  std::vector<SizeSamples> samples(directions.size(), SizeSamples(sizes));
  CASTOR_RETURN_IF_ERROR(
      RunRounds(sizes.size(), options, [&](size_t size) -> Status {
        CASTOR_ASSIGN_OR_RETURN(const std::vector<double> seconds,
                                TimeOnce(device, directions, sizes[size]));
        for (size_t i = 0; i < seconds.size(); ++i) {
          samples[i].Add(size, seconds[i]);
        }
        return OkStatus();
      }));
  std::vector<std::vector<TimedSize>> medians;
  for (const SizeSamples& one : samples) medians.push_back(one.medians());
  return medians;
}

}  // namespace

Result<CopyTimes> TimeCopies(Device& device, Bytes buffer,
                             const std::vector<Bytes>& sizes,
                             const RoundOptions& options) {
  const Bytes half = buffer / 2;
  for (const Bytes size : sizes) {
    CASTOR_CHECK_GT(size, Bytes(0));
    CASTOR_CHECK_LE(size, half);
  }
  CASTOR_ASSIGN_OR_RETURN(const Slab on_device, device.MakeSlab(buffer));
  CASTOR_ASSIGN_OR_RETURN(const Slab on_host, device.MakeHostSlab(buffer, {}));
  const std::unique_ptr<Lane> in = device.MakeLane("to device");
  const std::unique_ptr<Lane> out = device.MakeLane("from device");
  const auto second = static_cast<size_t>(half.count());
  Direction to{.kind = CopyKind::kToDevice,
               .to = on_device.data(),
               .from = on_host.data(),
               .half = half,
               .lane = in.get()};
  Direction from{.kind = CopyKind::kFromDevice,
                 .to = on_host.data() + second,
                 .from = on_device.data() + second,
                 .half = half,
                 .lane = out.get()};
  CopyTimes times;
  Direction* const only_to[] = {&to};
  CASTOR_ASSIGN_OR_RETURN(auto alone,
                          TimeTogether(device, only_to, sizes, options));
  times.to_device = std::move(alone[0]);
  Direction* const only_from[] = {&from};
  CASTOR_ASSIGN_OR_RETURN(alone,
                          TimeTogether(device, only_from, sizes, options));
  times.from_device = std::move(alone[0]);
  Direction* const both[] = {&to, &from};
  CASTOR_ASSIGN_OR_RETURN(alone, TimeTogether(device, both, sizes, options));
  times.to_device_duplex = std::move(alone[0]);
  times.from_device_duplex = std::move(alone[1]);
  return times;
}

}  // namespace castor
