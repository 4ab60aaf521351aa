// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/collectives/answers/naive_traffic.h"

#include <cstddef>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "placement/memory_passes.h"
#include "placement/run_event.h"

namespace castor {
namespace {

// What transfers to and from a drive are multiples of.
constexpr Bytes kDriveBlock = KiB(4);

size_t Index(StateKind kind) { return static_cast<size_t>(kind); }

// How often each chunk's gradient is reduced, by ChunkId.
std::vector<int64_t> Reductions(const Trace& trace, size_t chunks) {
  std::vector<int64_t> reductions(chunks, 0);
  for (const Access& access : trace) {
    reductions[access.chunk.index()] += access.kind == AccessKind::kGradClose;
  }
  return reductions;
}

// The ways of one chunk.
class ChunkTraffic {
 public:
  ChunkTraffic(const ChunkLayout& layout, const Sharding& sharding,
               const MemoryPlan& memory, ChunkId chunk, StepTraffic& traffic)
      : layout_(layout),
        sharding_(sharding),
        states_(memory.states[chunk.index()]),
        chunk_(chunk),
        traffic_(traffic) {}

  void Gather() {
    ++traffic_.gathers;
    if (sharding_.replicated(StateKind::kParam)) return;
    AllGather(Of(StateKind::kParam).bytes, sharding_.pieces(StateKind::kParam));
  }

  // From home; a shard at home on the device is sent from there.
  void Load() {
    ++traffic_.fetches;
    const StatePlace& param = Of(StateKind::kParam);
    if (sharding_.replicated(StateKind::kParam) ||
        param.home != Tier::kDevice) {
      Load(param, param.bytes);
    }
  }

  // `used_up`: by an update at once. `squares`: of the sum, which is complete.
  void Reduce(bool first, bool used_up, bool squares) {
    const StatePlace& grad = Of(StateKind::kGrad);
    if (sharding_.world > 1) {
      const Bytes slice =
          BytesIn(sharding_.counted(layout_, chunk_), StateKind::kGrad);
      const int joined = sharding_.joined_ranks();
      ReduceScatter(slice, sharding_.world);
      if (joined > 1) ReduceScatter(slice, joined);
    }
    if (grad.home == Tier::kDevice) return;
    used_up_ = used_up && grad.home == Tier::kNvme;
    if (!first) {
      traffic_.sum_bytes += DepositBytes(grad.bytes, /*adds=*/true);
      if (squares) traffic_.sum_bytes += SquaresBytes(grad.bytes);
    }
    Move(Tier::kDevice, Tier::kHost, grad.bytes);
    if (grad.home == Tier::kHost || used_up_) return;
    if (!first) ReadDrive(grad);
    WriteDrive(grad);
  }

  void Update() {
    const ShardRange range = sharding_.updated(layout_, chunk_);
    const Elements elements = range.end - range.begin;
    bool on_device = true;
    for (const StatePlace& place : states_) {
      if (place.bytes > Bytes(0)) on_device &= place.home == Tier::kDevice;
    }
    if (on_device) {
      traffic_.updated_on_device += elements;
    } else {
      traffic_.updated_on_host += elements;
      traffic_.update_bytes +=
          UpdateBytes(sharding_.update_pass(Group()), elements);
      const bool masters = Of(StateKind::kMaster).bytes > Bytes(0);
      if (!used_up_) Window(StateKind::kGrad, elements, true, false);
      Window(StateKind::kParam, elements, !masters, true);
      Window(StateKind::kMaster, elements, true, true);
      for (int i = 0; i < kMaxOptimizerStates; ++i) {
        Window(OptimizerState(i), elements, true, true);
      }
    }
    if (sharding_.refreshes()) Refresh();
  }

 private:
  const StatePlace& Of(StateKind kind) const { return states_[Index(kind)]; }

  void Move(Tier from, Tier to, Bytes bytes) {
    LinkTraffic& link = traffic_.moved[TierIndex(from)][TierIndex(to)];
    link.bytes += bytes;
    ++link.transfers;
  }
  void ReadDrive(const StatePlace& place) {
    Move(Tier::kNvme, Tier::kHost, RoundUp(place.bytes, kDriveBlock));
  }
  void WriteDrive(const StatePlace& place) {
    Move(Tier::kHost, Tier::kNvme, RoundUp(place.bytes, kDriveBlock));
  }
  void Load(const StatePlace& place, Bytes bytes) {
    if (place.home == Tier::kNvme) ReadDrive(place);
    Move(place.home == Tier::kDevice ? Tier::kDevice : Tier::kHost,
         Tier::kDevice, bytes);
  }
  // Of `ranks` that exchange as much each.
  static void Send(LinkTraffic& wire, int64_t& steps, Bytes shard, int ranks) {
    wire.bytes += shard * (ranks - 1);
    ++wire.transfers;
    steps += ranks - 1;
  }
  void AllGather(Bytes shard, int ranks) {
    Send(traffic_.all_gather, traffic_.all_gather_steps, shard, ranks);
  }
  void ReduceScatter(Bytes shard, int ranks) {
    Send(traffic_.reduce_scatter, traffic_.reduce_scatter_steps, shard, ranks);
  }
  const GroupInfo& Group() const {
    return layout_.groups()[static_cast<size_t>(layout_.chunk(chunk_).group)];
  }
  Bytes BytesIn(const ShardRange& range, StateKind kind) const {
    return BytesOf(range.end - range.begin, sharding_.dtype(kind, Group()));
  }

  // The optimizer's view of a state in host memory.
  void Window(StateKind kind, Elements elements, bool reads, bool writes) {
    const StatePlace& place = Of(kind);
    if (place.bytes == Bytes(0)) return;
    const Bytes range = BytesOf(elements, sharding_.dtype(kind, Group()));
    switch (place.home) {
      case Tier::kHost:
        return;
      case Tier::kNvme:
        // Part of an extent cannot be written alone.
        if (reads || range != place.bytes) ReadDrive(place);
        if (writes) WriteDrive(place);
        return;
      case Tier::kDevice:
        if (reads) Move(Tier::kDevice, Tier::kHost, range);
        if (writes) Move(Tier::kHost, Tier::kDevice, range);
        return;
    }
  }

  // What was updated goes up, the others' comes, and all of it goes home.
  void Refresh() {
    const StatePlace& param = Of(StateKind::kParam);
    const Bytes own =
        BytesIn(sharding_.updated(layout_, chunk_), StateKind::kParam);
    AllGather(own, sharding_.refreshed_ranks());
    if (param.home == Tier::kDevice) return;
    Load(param, own);
    Move(Tier::kDevice, Tier::kHost, param.bytes);
    if (param.home == Tier::kNvme) WriteDrive(param);
  }

  const ChunkLayout& layout_;
  const Sharding& sharding_;
  const std::array<StatePlace, kStateKinds>& states_;
  const ChunkId chunk_;
  StepTraffic& traffic_;
  bool used_up_ = false;
};

// A rank sends other ranks the words of their slices, and then the sums of the
// own slice to every other rank.
Bytes AgreementBytes(const Sharding& sharding, int64_t words) {
  const int64_t slice = words * (sharding.rank + 1) / sharding.world -
                        words * sharding.rank / sharding.world;
  return Bytes(8) * (words - slice + slice * (sharding.world - 1));
}

}  // namespace

StepTraffic NaiveTrafficOf(const ChunkLayout& layout, const Sharding& sharding,
                           const MemoryPlan& memory, const StepActivity& step) {
  const size_t chunks = layout.chunks().size();
  CASTOR_CHECK_EQ(step.gathers.size(), chunks);
  CASTOR_CHECK_EQ(step.loads.size(), chunks);
  const std::vector<int64_t> reductions =
      Reductions(step.trace->accesses, chunks);
  const std::vector<bool> missing = ChunksMissingGrads(*step.trace, chunks);
  StepTraffic traffic;
  for (size_t c = 0; c < chunks; ++c) {
    ChunkTraffic of_chunk(layout, sharding, memory,
                          ChunkId(static_cast<int32_t>(c)), traffic);
    for (int64_t g = 0; g < step.gathers[c]; ++g) of_chunk.Gather();
    for (int64_t l = 0; l < step.loads[c]; ++l) of_chunk.Load();
    for (int64_t r = 0; r < reductions[c]; ++r) {
      of_chunk.Reduce(
          r == 0,
          step.trace->updates_early && reductions[c] == 1 && !missing[c],
          step.norm && r + 1 == reductions[c]);
    }
    if (reductions[c] > 0) of_chunk.Update();
  }
  if (step.norm) traffic.norm = kNormBytes;
  if (sharding.world > 1) {
    const int64_t words = traffic.norm.count() / 8 + kStepWords;
    traffic.agreed = Bytes(8) * words;
    traffic.agreement = AgreementBytes(sharding, words);
  }
  return traffic;
}

StepTraffic NaiveTrafficOf(const SealForecast& seal, const ZeroOptions& options,
                           const StepTrace& step,
                           std::span<const StepTraffic> by_chunk) {
  std::vector<int64_t> gathers;
  std::vector<int64_t> loads;
  for (const StepTraffic& of_chunk : by_chunk) {
    gathers.push_back(of_chunk.gathers);
    loads.push_back(of_chunk.fetches);
  }
  return NaiveTrafficOf(seal.layout, seal.sharding, seal.memory,
                        {.gathers = gathers,
                         .loads = loads,
                         .trace = &step,
                         .norm = CountsNorm(options)});
}

}  // namespace castor
