// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_TIMELINE_WIRES_H_
#define CASTOR_PLACEMENT_TIMELINE_WIRES_H_

// What of a machine transfers and passes share, as long as they last. A
// transfer takes the latency, then has its wire to itself, in the order in
// which transfers begin. There is one copy engine per direction, one drive, and
// one optimizer on all cores of the host. The rate of a wire:
//
//   to the device     as measured alone, or with the other direction busy.
//   from the device   likewise.
//   drive             as measured reading, writing, or with both in flight.
//   host              the optimizer's rate, or the rate of memory.
//   device            the rate of the device's memory, for kernels there.
//
// All wires but the last read and write host memory, whose rate bounds their
// sum. They share the rate evenly, and a wire that takes less leaves the rest
// to the others (max-min fairness).
//
// Rates change while transfers last, and bytes are counted exactly. A transfer
// at one rate ends when offload/twin/simulated_link.h says. Speeds that the
// model lacks take no time. Owner thread only.

#include <array>
#include <cstdint>
#include <deque>
#include <optional>

#include "chunk/base/unique_function.h"
#include "chunk/base/units.h"
#include "placement/tier_model.h"
#include "placement/timeline/wire_clock.h"

namespace castor::internal {

enum class Traffic : uint8_t {
  kToDevice,
  kFromDevice,
  kDriveRead,
  kDriveWrite,
  kOptimizer,   // bytes that the pass reads and writes of memory
  kMemoryPass,  // likewise, of a pass that only memory holds up
  kDevice,      // of the device's memory, by a kernel of the engine
};
inline constexpr int kTrafficKinds = 7;

class Wires {
 public:
  using Done = UniqueFunction<void()>;

  // `clock` outlives the wires, and the wires all that began.
  Wires(WireClock* clock, const TierModel& speeds,
        const std::optional<LinkModel>& device = std::nullopt);
  Wires(const Wires&) = delete;
  Wires& operator=(const Wires&) = delete;

  // Whether traffic of the kind takes time.
  bool takes_time(Traffic traffic) const;

  // A transfer begins; `done` is called when it ends: at once where it takes no
  // time. REQUIRES: bytes >= 0.
  void Begin(Traffic traffic, Bytes bytes, Done done);

  // So far.
  int64_t busy_ns(Traffic traffic) const;
  Bytes bytes(Traffic traffic) const {
    return bytes_[static_cast<size_t>(traffic)];
  }

 private:
  static constexpr int kWires = 5;
  static constexpr size_t kDrive = 2;
  static constexpr size_t kDevice = 4;
  // Of one byte per second for one nanosecond there are a thousand million.
  using Amount = unsigned __int128;

  struct Transfer {
    Traffic traffic = Traffic::kToDevice;
    Amount left = 0;
    int64_t ready_ns = 0;  // the latency is over
    uint64_t place = 0;    // among what ends at one time
    Done done;
  };
  struct Wire {
    std::deque<Transfer> transfers;  // in order
    bool busy = false;               // with the first one
    int64_t rate = 0;                // of it, bytes per second
    int64_t since_ns = 0;            // its `left` was reckoned
    int64_t began_ns = 0;
    uint64_t schedules = 0;  // ends that were set: only the last one counts
  };

  static size_t WireOf(Traffic traffic);
  // The latency and speed of a kind with nothing else under way; empty where
  // nobody knows.
  std::optional<LinkModel> SpeedAlone(Traffic traffic) const;
  void StartFirst(size_t wire);
  void End(size_t wire);
  // Gives every busy wire its rate of now.
  void Share();
  int64_t RateAlone(size_t wire) const;
  void SetRate(size_t wire, int64_t rate);

  WireClock* const clock_;
  const TierModel speeds_;
  const std::optional<LinkModel> device_;
  std::array<Wire, kWires> wires_;
  std::array<int64_t, kTrafficKinds> busy_ns_{};  // of what has ended
  std::array<Bytes, kTrafficKinds> bytes_{};      // of what began
};

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_TIMELINE_WIRES_H_
