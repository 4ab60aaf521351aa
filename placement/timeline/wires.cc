// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/timeline/wires.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "chunk/base/check.h"

namespace castor::internal {
namespace {

constexpr size_t Index(Traffic traffic) { return static_cast<size_t>(traffic); }

}  // namespace

Wires::Wires(WireClock* clock, const TierModel& speeds,
             const std::optional<LinkModel>& device)
    : clock_(clock), speeds_(speeds), device_(device) {}

std::optional<LinkModel> Wires::SpeedAlone(Traffic traffic) const {
  const auto link = [](const std::optional<RateModel>& rate) {
    return rate ? std::optional(LinkModel{rate->bytes_per_second, 0})
                : std::nullopt;
  };
  switch (traffic) {
    case Traffic::kToDevice:
      return speeds_.host_to_device;
    case Traffic::kFromDevice:
      return speeds_.device_to_host;
    case Traffic::kDriveRead:
      return speeds_.nvme_read;
    case Traffic::kDriveWrite:
      return speeds_.nvme_write;
    case Traffic::kOptimizer:
      return link(speeds_.optimizer);
    case Traffic::kMemoryPass:
      return link(speeds_.memory);
    case Traffic::kDevice:
      return device_;
  }
  return std::nullopt;
}

size_t Wires::WireOf(Traffic traffic) {
  constexpr size_t kWireOf[kTrafficKinds] = {0, 1, kDrive, kDrive,
                                             3, 3, kDevice};
  return kWireOf[Index(traffic)];
}

bool Wires::takes_time(Traffic traffic) const {
  return SpeedAlone(traffic).has_value();
}

void Wires::Begin(Traffic traffic, Bytes bytes, Done done) {
  CASTOR_CHECK_GE(bytes, Bytes(0));
  bytes_[Index(traffic)] += bytes;
  const std::optional<LinkModel> alone = SpeedAlone(traffic);
  if (!alone) return done();
  const size_t w = WireOf(traffic);
  Wire& wire = wires_[w];
  wire.transfers.push_back({traffic,
                            static_cast<Amount>(bytes.count()) * 1'000'000'000,
                            clock_->FromNow(alone->latency_ns),
                            clock_->TakePlace(), std::move(done)});
  if (wire.transfers.size() == 1) {
    StartFirst(w);
  } else if (w == kDrive) {
    Share();  // it may be the first of its direction
  }
}

void Wires::StartFirst(size_t w) {
  Wire& wire = wires_[w];
  if (wire.transfers.empty()) return;
  const int64_t ready_ns = wire.transfers.front().ready_ns;
  if (ready_ns > clock_->NowNs()) {
    clock_->AtPlace(ready_ns, clock_->TakePlace(), nullptr,
                    [this, w] { StartFirst(w); });
    return;
  }
  wire.busy = true;
  wire.rate = 0;
  wire.began_ns = wire.since_ns = clock_->NowNs();
  Share();
}

void Wires::End(size_t w) {
  Wire& wire = wires_[w];
  Transfer ended = std::move(wire.transfers.front());
  wire.transfers.pop_front();
  wire.busy = false;
  busy_ns_[Index(ended.traffic)] += clock_->NowNs() - wire.began_ns;
  StartFirst(w);
  Share();
  ended.done();
}

int64_t Wires::busy_ns(Traffic traffic) const {
  int64_t busy = busy_ns_[Index(traffic)];
  const Wire& wire = wires_[WireOf(traffic)];
  if (wire.busy && wire.transfers.front().traffic == traffic) {
    busy += clock_->NowNs() - wire.began_ns;
  }
  return busy;
}

int64_t Wires::RateAlone(size_t w) const {
  const Traffic traffic = wires_[w].transfers.front().traffic;
  const int64_t alone = SpeedAlone(traffic)->bytes_per_second;
  if (traffic == Traffic::kToDevice && wires_[1].busy &&
      speeds_.host_to_device_duplex) {
    return std::min(alone, speeds_.host_to_device_duplex->bytes_per_second);
  }
  if (traffic == Traffic::kFromDevice && wires_[0].busy &&
      speeds_.device_to_host_duplex) {
    return std::min(alone, speeds_.device_to_host_duplex->bytes_per_second);
  }
  if (w == kDrive && speeds_.nvme_mixed) {
    for (const Transfer& other : wires_[w].transfers) {
      if (other.traffic == traffic) continue;
      return speeds_.nvme_mixed->bytes_per_second;
    }
  }
  return alone;
}

void Wires::Share() {
  // Those that want least first: what they leave is shared by the others.
  std::array<std::pair<int64_t, size_t>, kWires> wanted;
  size_t busy = 0;
  for (size_t w = 0; w < kWires; ++w) {
    if (!wires_[w].busy) continue;
    if (w == kDevice) {
      SetRate(w, RateAlone(w));
      continue;
    }
    const std::pair<int64_t, size_t> wants{RateAlone(w), w};
    size_t at = busy++;
    for (; at > 0 && wants < wanted[at - 1]; --at) wanted[at] = wanted[at - 1];
    wanted[at] = wants;
  }
  int64_t left = speeds_.memory ? speeds_.memory->bytes_per_second : 0;
  for (size_t i = 0; i < busy; ++i) {
    auto [rate, w] = wanted[i];
    if (speeds_.memory) {
      const auto others = static_cast<int64_t>(busy - i);
      rate = std::max<int64_t>(std::min(rate, left / others), 1);
      left -= std::min(rate, left);
    }
    SetRate(w, rate);
  }
}

void Wires::SetRate(size_t w, int64_t rate) {
  Wire& wire = wires_[w];
  if (wire.rate == rate) return;
  Transfer& first = wire.transfers.front();
  const int64_t now_ns = clock_->NowNs();
  const Amount moved = static_cast<Amount>(wire.rate) *
                       static_cast<Amount>(now_ns - wire.since_ns);
  first.left -= std::min(first.left, moved);
  wire.rate = rate;
  wire.since_ns = now_ns;
  const auto per_ns = static_cast<Amount>(rate);
  const Amount wait_ns = (first.left + per_ns - 1) / per_ns;
  ++wire.schedules;
  clock_->AtPlace(
      clock_->FromNow(static_cast<int64_t>(std::min(
          wait_ns, static_cast<Amount>(std::numeric_limits<int64_t>::max())))),
      first.place, &wire.schedules, [this, w] { End(w); });
}

}  // namespace castor::internal
