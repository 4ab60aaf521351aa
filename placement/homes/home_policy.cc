// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/homes/home_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "chunk/text/budget_text.h"
#include "chunk/text/raises_text.h"
#include "chunk/text/units_text.h"
#include "placement/homes/home_fillings.h"

namespace castor {
namespace {

using internal::Fitting;
using internal::HomesOnDevice;
using internal::Index;
using internal::OnDevice;
using internal::SumOf;

// How many of the first `i` of n things are among k of them spread evenly, the
// first of all among them: a forward begins with it, and waits for what an
// update at the end of the step before has to move.
int64_t SpreadBefore(int64_t i, int64_t k, int64_t n) {
  return (i * k + n - 1) / n;
}

// Neighbours of one size.
struct Run {
  Bytes bytes;  // of each
  int64_t begin = 0;
  int64_t end = 0;
};

// Gives `take` the most chunks of `candidates`, spread evenly, whose bytes fit
// into `room`, which shrinks by them.
void TakeSpread(const std::vector<size_t>& candidates,
                const std::function<Bytes(size_t)>& bytes_of, Bytes& room,
                const std::function<void(size_t)>& take) {
  const int64_t n = static_cast<int64_t>(candidates.size());
  // Sizes repeat, and most numbers of chunks that are tried are too many.
  std::vector<Run> runs;
  Bytes least(std::numeric_limits<int64_t>::max());
  for (int64_t i = 0; i < n; ++i) {
    const Bytes bytes = bytes_of(candidates[static_cast<size_t>(i)]);
    least = std::min(least, bytes);
    if (runs.empty() || runs.back().bytes != bytes) {
      runs.push_back({bytes, i, i});
    }
    ++runs.back().end;
  }
  const int64_t most = least > Bytes(0) ? std::min(n, room / least) : n;
  for (int64_t k = most; k > 0; --k) {
    Bytes sum;
    for (const Run& run : runs) {
      sum += run.bytes *
             (SpreadBefore(run.end, k, n) - SpreadBefore(run.begin, k, n));
    }
    if (sum > room) continue;
    for (int64_t i = 0; i < n; ++i) {
      if (SpreadBefore(i + 1, k, n) > SpreadBefore(i, k, n)) {
        take(candidates[static_cast<size_t>(i)]);
      }
    }
    room -= sum;
    return;
  }
}

enum class DeviceOrder : uint8_t { kWholeChunksFirst, kParamsFirst };

// Fills the device: whole chunks first and parameters into what is left, or
// parameters first and the rest of their chunks after.
std::vector<OnDevice> FillDevice(const HomeProblem& problem,
                                 DeviceOrder order) {
  const std::vector<ChunkStates>& chunks = problem.chunks;
  const size_t param = Index(StateKind::kParam);
  std::vector<OnDevice> on_device(chunks.size(), OnDevice::kNothing);
  std::vector<size_t> all;
  for (size_t c = 0; c < chunks.size(); ++c) all.push_back(c);
  Bytes room = problem.device;
  if (order == DeviceOrder::kWholeChunksFirst) {
    TakeSpread(
        all, [&](size_t c) { return SumOf(chunks[c].device_bytes); }, room,
        [&](size_t c) { on_device[c] = OnDevice::kEverything; });
    std::vector<size_t> rest;
    for (size_t c : all) {
      if (on_device[c] == OnDevice::kNothing) rest.push_back(c);
    }
    TakeSpread(
        rest, [&](size_t c) { return chunks[c].device_bytes[param]; }, room,
        [&](size_t c) { on_device[c] = OnDevice::kParams; });
    return on_device;
  }
  TakeSpread(
      all, [&](size_t c) { return chunks[c].device_bytes[param]; }, room,
      [&](size_t c) { on_device[c] = OnDevice::kParams; });
  std::vector<size_t> with_params;
  for (size_t c : all) {
    if (on_device[c] == OnDevice::kParams) with_params.push_back(c);
  }
  TakeSpread(
      with_params,
      [&](size_t c) {
        return SumOf(chunks[c].device_bytes) - chunks[c].device_bytes[param];
      },
      room, [&](size_t c) { on_device[c] = OnDevice::kEverything; });
  return on_device;
}

Bytes MovedPerStep(const HomeProblem& problem,
                   const std::vector<OnDevice>& on_device) {
  Bytes moved;
  for (size_t c = 0; c < on_device.size(); ++c) {
    if (on_device[c] == OnDevice::kParams) {
      moved += problem.chunks[c].moved_params_on_device;
    } else if (on_device[c] == OnDevice::kNothing) {
      moved += problem.chunks[c].moved_none_on_device;
    }
  }
  return moved;
}

bool Has(const ChunkStates& chunk, StateKind kind) {
  return chunk.host_bytes[Index(kind)] > Bytes(0);
}

// Seconds of a step that drives of these speeds take for a state that lives
// there. Parameters are read for the way forward and the way back, and, where
// they are trained, written by the update, which reads those that are their own
// masters as well. Gradients are written and read, the rest is read and written
// once.
double DriveSeconds(const LinkModel& read, const LinkModel& write,
                    const ChunkStates& chunk, StateKind kind) {
  const Bytes bytes = chunk.host_bytes[Index(kind)];
  int64_t reads = 1;
  int64_t writes = 1;
  if (kind == StateKind::kParam) {
    const bool trained = Has(chunk, StateKind::kGrad);
    reads = trained && !Has(chunk, StateKind::kMaster) ? 3 : 2;
    writes = trained ? 1 : 0;
  }
  return LinkSeconds(read, reads, bytes * reads) +
         LinkSeconds(write, writes, bytes * writes);
}

// States on NVMe that the host takes in one go.
struct HostTurn {
  StateKind kind = StateKind::kParam;
  std::vector<size_t> chunks;
  double seconds_per_byte = 0;
};

// Whose turn is when: by kind, or, where drives were measured, by what the host
// spares them, frozen chunks apart from trained ones.
std::vector<HostTurn> HostTurns(const HomeProblem& problem,
                                const std::vector<ChunkHomes>& homes) {
  const bool measured = problem.nvme_read && problem.nvme_write;
  std::vector<HostTurn> turns;
  for (size_t k = 0; k < kStateKinds; ++k) {
    const auto kind = static_cast<StateKind>(k);
    for (const bool frozen : {false, true}) {
      if (frozen && !measured) continue;
      HostTurn turn;
      turn.kind = kind;
      Bytes bytes;
      double seconds = 0;
      for (size_t c = 0; c < homes.size(); ++c) {
        const ChunkStates& chunk = problem.chunks[c];
        if (homes[c][k] != Tier::kNvme || !Has(chunk, kind)) continue;
        if (measured && frozen == Has(chunk, StateKind::kGrad)) continue;
        turn.chunks.push_back(c);
        if (!measured) continue;
        bytes += chunk.host_bytes[k];
        seconds +=
            DriveSeconds(*problem.nvme_read, *problem.nvme_write, chunk, kind);
      }
      if (turn.chunks.empty()) continue;
      if (measured) {
        turn.seconds_per_byte = seconds / static_cast<double>(bytes.count());
      }
      turns.push_back(std::move(turn));
    }
  }
  // Few enough; what is equal stays in the order of kinds.
  for (size_t i = 1; i < turns.size(); ++i) {
    for (size_t j = i;
         j > 0 && turns[j - 1].seconds_per_byte < turns[j].seconds_per_byte;
         --j) {
      std::swap(turns[j - 1], turns[j]);
    }
  }
  return turns;
}

// The states left on NVMe once the device is filled as told and the host in
// turns.
Bytes FillHostByTraffic(const HomeProblem& problem,
                        std::vector<ChunkHomes>& homes) {
  const std::vector<ChunkStates>& chunks = problem.chunks;
  Bytes host_room = problem.host;
  Bytes left;
  for (const HostTurn& turn : HostTurns(problem, homes)) {
    const size_t kind = Index(turn.kind);
    TakeSpread(
        turn.chunks, [&](size_t c) { return chunks[c].host_bytes[kind]; },
        host_room, [&](size_t c) { homes[c][kind] = Tier::kHost; });
    for (size_t c : turn.chunks) {
      if (homes[c][kind] == Tier::kNvme) left += chunks[c].host_bytes[kind];
    }
  }
  return left;
}

}  // namespace

Result<std::vector<ChunkHomes>> AssignHomes(const HomeProblem& problem) {
  Fitting fitting = internal::FindFitting(problem);
  if (!fitting.homes) {
    // On NVMe, or, where there is none, in host memory.
    return DoesNotFit(
        fmt::format("the states fit neither device nor host and {}",
                    problem.nvme ? fmt::format("NVMe may hold {}",
                                               BudgetText(*problem.nvme))
                                 : std::string("there is no NVMe tier")),
        {RaiseOf(problem.nvme ? Tier::kNvme : Tier::kHost, fitting.missing)},
        "");
  }
  std::vector<OnDevice> on_device =
      FillDevice(problem, DeviceOrder::kWholeChunksFirst);
  if (std::vector<OnDevice> other =
          FillDevice(problem, DeviceOrder::kParamsFirst);
      MovedPerStep(problem, other) < MovedPerStep(problem, on_device)) {
    on_device = std::move(other);
  }
  std::vector<ChunkHomes> homes = HomesOnDevice(on_device);
  if (FillHostByTraffic(problem, homes) <= problem.nvme.value_or(Bytes(0))) {
    return homes;
  }
  // It fits, but not so well.
  return *std::move(fitting.homes);
}

std::array<Bytes, 3> HomeBytes(std::span<const ChunkStates> chunks,
                               std::span<const ChunkHomes> homes) {
  std::array<Bytes, 3> bytes;
  for (size_t c = 0; c < chunks.size(); ++c) {
    for (size_t k = 0; k < kStateKinds; ++k) {
      const Tier tier = homes[c][k];
      bytes[TierIndex(tier)] += tier == Tier::kDevice
                                    ? chunks[c].device_bytes[k]
                                    : chunks[c].host_bytes[k];
    }
  }
  return bytes;
}

}  // namespace castor
