// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/homes/home_fillings.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

#include "chunk/base/tier.h"

namespace castor {
namespace internal {
namespace {

constexpr int32_t kNoState = -1;

// The sizes that states have off the device. There are few, however many
// states.
struct HostSizes {
  explicit HostSizes(std::span<const ChunkStates> chunks) {
    for (const ChunkStates& chunk : chunks) {
      bytes.insert(bytes.end(), chunk.host_bytes.begin(),
                   chunk.host_bytes.end());
    }
    std::sort(bytes.begin(), bytes.end(), std::greater<>());
    bytes.erase(std::unique(bytes.begin(), bytes.end()), bytes.end());
    for (const ChunkStates& chunk : chunks) {
      std::array<int32_t, kStateKinds>& sizes = of.emplace_back();
      for (size_t k = 0; k < kStateKinds; ++k) {
        const Bytes size = chunk.host_bytes[k];
        const auto found = std::lower_bound(bytes.begin(), bytes.end(), size,
                                            std::greater<>());
        sizes[k] = size > Bytes(0) ? static_cast<int32_t>(found - bytes.begin())
                                   : kNoState;
      }
    }
  }

  std::vector<Bytes> bytes;                          // the largest first
  std::vector<std::array<int32_t, kStateKinds>> of;  // by ChunkId
};

// In a fixed order of chunks, `whole` are on the device whole, and of as many
// more the parameters are there, `params` chunks in all.
struct Filling {
  size_t whole = 0;
  size_t params = 0;
};

// How many states of each size a filling leaves off the device. Next to no work
// from one filling to a similar one.
class OffDevice {
 public:
  OffDevice(const HostSizes& sizes, const std::vector<size_t>& order)
      : sizes_(sizes),
        order_(order),
        now_{order.size(), order.size()},
        counts_(sizes.bytes.size(), 0) {}

  // REQUIRES: no more whole chunks than in the filling before.
  void MoveTo(const Filling& filling) {
    while (now_.whole > filling.whole) {
      --now_.whole;
      for (size_t k = 0; k < kStateKinds; ++k) {
        if (k != kParam) Count(now_.whole, k, 1);
      }
    }
    while (now_.params > filling.params) Count(--now_.params, kParam, 1);
    while (now_.params < filling.params) Count(now_.params++, kParam, -1);
  }

  // Gives the host the largest that fit, one by one, and returns the bytes left
  // over. `taken`, how many of each size it takes, may be null.
  Bytes PackHost(Bytes room, std::vector<int64_t>* taken) const {
    Bytes left;
    for (size_t s = 0; s < counts_.size(); ++s) {
      const Bytes size = sizes_.bytes[s];
      const int64_t fit =
          counts_[s] == 0 ? 0 : std::min(counts_[s], room / size);
      room -= size * fit;
      left += size * (counts_[s] - fit);
      if (taken != nullptr) taken->push_back(fit);
    }
    return left;
  }

 private:
  static constexpr size_t kParam = Index(StateKind::kParam);

  void Count(size_t position, size_t kind, int64_t by) {
    const int32_t size = sizes_.of[order_[position]][kind];
    if (size != kNoState) counts_[static_cast<size_t>(size)] += by;
  }

  const HostSizes& sizes_;
  const std::vector<size_t>& order_;
  Filling now_;
  std::vector<int64_t> counts_;
};

// The fillings that decide what fits. In a fixed order of chunks, the first k
// are on the device whole and the parameters of as many more as there is room
// for; of the rest the host takes the largest states that fit, one by one, and
// NVMe what is left. With more room on the device the same k leaves a part of
// what it left, and a host with more room (or with less to take) leaves no
// more. So, over all k, more bytes on a tier never make fail what fitted. An
// even spread has no such property, hence it decides nothing.
class Fillings {
 public:
  enum class Order : uint8_t { kSmallestFirst, kLargestFirst };

  // `sizes` outlives this.
  Fillings(std::span<const ChunkStates> chunks, const HostSizes& sizes,
           Order order)
      : sizes_(sizes), order_(chunks.size()) {
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::vector<Bytes> sizes_on_device;  // by ChunkId
    for (const ChunkStates& chunk : chunks) {
      sizes_on_device.push_back(SumOf(chunk.device_bytes));
    }
    std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      if (sizes_on_device[a] == sizes_on_device[b]) return a < b;
      return (sizes_on_device[a] < sizes_on_device[b]) ==
             (order == Order::kSmallestFirst);
    });
    // Sums over the first chunks in that order.
    whole_ = params_ = host_whole_ = host_params_ = {Bytes(0)};
    for (size_t c : order_) {
      const size_t param = Index(StateKind::kParam);
      whole_.push_back(whole_.back() + sizes_on_device[c]);
      params_.push_back(params_.back() + chunks[c].device_bytes[param]);
      host_whole_.push_back(host_whole_.back() + SumOf(chunks[c].host_bytes));
      host_params_.push_back(host_params_.back() + chunks[c].host_bytes[param]);
    }
  }

  // The first that fits, with the most whole chunks; empty when none does, and
  // then `missing` shrinks to what lacks off the device.
  std::optional<Filling> Find(const HomeRoom& room, Bytes* missing) const {
    const Bytes nvme = room.nvme.value_or(Bytes(0));
    OffDevice off_device(sizes_, order_);
    const auto most =
        std::upper_bound(whole_.begin(), whole_.end(), room.device);
    bool first = true;
    size_t j = 0;
    for (auto k = static_cast<size_t>(most - whole_.begin()); k-- > 0;) {
      // With fewer whole there is room for the parameters of no fewer.
      j = std::max(j, k);
      while (j < order_.size() &&
             whole_[k] + (params_[j + 1] - params_[k]) <= room.device) {
        ++j;
      }
      const Bytes off = host_whole_.back() - host_whole_[k] -
                        (host_params_[j] - host_params_[k]);
      const Bytes lacking = off - room.host - nvme;
      if (off <= room.host) return Filling{k, j};
      // Without NVMe the host takes all or fails. Packing is only looked at
      // where it can decide, and for the numbers of the error.
      if (room.nvme && (first || lacking <= Bytes(0))) {
        off_device.MoveTo({k, j});
        const Bytes left = off_device.PackHost(room.host, nullptr);
        if (left <= nvme) return Filling{k, j};
        *missing = std::min(*missing, left - nvme);
      } else if (!room.nvme) {
        *missing = std::min(*missing, lacking);
      }
      first = false;
    }
    return std::nullopt;
  }

  // Where `filling` has states. Of equal ones the host takes the first kinds
  // first.
  std::vector<ChunkHomes> Homes(const Filling& filling, Bytes host) const {
    std::vector<OnDevice> on_device(order_.size(), OnDevice::kNothing);
    for (size_t i = 0; i < filling.params; ++i) {
      on_device[order_[i]] =
          i < filling.whole ? OnDevice::kEverything : OnDevice::kParams;
    }
    std::vector<ChunkHomes> homes = HomesOnDevice(on_device);
    OffDevice off_device(sizes_, order_);
    off_device.MoveTo(filling);
    std::vector<int64_t> taken;
    off_device.PackHost(host, &taken);
    for (size_t k = 0; k < kStateKinds; ++k) {
      for (size_t c = 0; c < homes.size(); ++c) {
        const int32_t size = sizes_.of[c][k];
        if (homes[c][k] == Tier::kDevice || size == kNoState) continue;
        if (taken[static_cast<size_t>(size)]-- > 0) homes[c][k] = Tier::kHost;
      }
    }
    return homes;
  }

 private:
  const HostSizes& sizes_;
  std::vector<size_t> order_;
  std::vector<Bytes> whole_, params_, host_whole_, host_params_;
};

// Those of both orders.
struct AllFillings {
  explicit AllFillings(std::span<const ChunkStates> chunks)
      : sizes(chunks),
        orders{Fillings(chunks, sizes, Fillings::Order::kSmallestFirst),
               Fillings(chunks, sizes, Fillings::Order::kLargestFirst)} {}
  AllFillings(const AllFillings&) = delete;
  AllFillings& operator=(const AllFillings&) = delete;

  const HostSizes sizes;
  const std::array<Fillings, 2> orders;
};

}  // namespace

std::vector<ChunkHomes> HomesOnDevice(const std::vector<OnDevice>& on_device) {
  ChunkHomes off_device;
  off_device.fill(Tier::kNvme);
  std::vector<ChunkHomes> homes(on_device.size(), off_device);
  for (size_t c = 0; c < on_device.size(); ++c) {
    if (on_device[c] == OnDevice::kEverything) homes[c].fill(Tier::kDevice);
    if (on_device[c] == OnDevice::kParams) {
      homes[c][Index(StateKind::kParam)] = Tier::kDevice;
    }
  }
  return homes;
}

Fitting FindFitting(const HomeProblem& problem) {
  Fitting found;
  if (problem.device < Bytes(0) || problem.host < Bytes(0)) return found;
  const AllFillings all(problem.chunks);
  for (const Fillings& fillings : all.orders) {
    const std::optional<Filling> filling =
        fillings.Find(problem, &found.missing);
    if (!filling) continue;
    found.homes = fillings.Homes(*filling, problem.host);
    return found;
  }
  return found;
}

}  // namespace internal

std::function<bool(const HomeRoom&)> HomesFit(
    std::span<const ChunkStates> chunks) {
  return [all = std::make_shared<const internal::AllFillings>(chunks)](
             const HomeRoom& room) {
    if (room.device < Bytes(0) || room.host < Bytes(0)) return false;
    Bytes missing;
    return std::any_of(all->orders.begin(), all->orders.end(),
                       [&](const internal::Fillings& fillings) {
                         return fillings.Find(room, &missing).has_value();
                       });
  };
}

}  // namespace castor
