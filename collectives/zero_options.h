// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ZERO_OPTIONS_H_
#define CASTOR_COLLECTIVES_ZERO_OPTIONS_H_

// What a trainer tells a ZeroEngine. Plain structs with defaults.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "chunk/base/clock.h"
#include "chunk/base/ids.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/layout_file.h"
#include "collectives/loss_scaler.h"
#include "collectives/optimizer_groups.h"
#include "offload/host_passes.h"
#include "offload/kernels/optimizer_options.h"
#include "offload/lanes/executor.h"
#include "offload/memory/slab.h"
#include "offload/nvme/nvme_option.h"
#include "offload/nvme/queue/io_queue.h"
#include "offload/worker_pool.h"
#include "placement/homes/home_limits.h"
#include "placement/placement_rules.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "placement/tier_model.h"
#include "placement/trace.h"
#include "placement/trace/step_trace.h"
#include "placement/traffic_book.h"

namespace castor {

class Device;

// What a trainer writes gradients into.
enum class GradMode : uint8_t {
  kSeparate,  // chunks of their own, in the parameters' type
  kFp32,      // the same in fp32: added, reduced and kept without rounding
  // The place of the parameter, where its gradient is written over it: no slot
  // is taken for it. One micro-batch; a parameter whose gradient was opened is
  // not used again in the step, and is released before; BF16 and F16 only,
  // whose masters have what is written over. What else is asked for is refused.
  kReuse,
};

// As options files and flags have it.
constexpr std::string_view GradModeName(GradMode mode) {
  switch (mode) {
    case GradMode::kSeparate:
      return "separate";
    case GradMode::kFp32:
      return "fp32";
    case GradMode::kReuse:
      return "reuse";
  }
  return "unknown";
}

// How gradients of several micro-batches come together, at every stage.
enum class AccumulationOrder : uint8_t {
  kEach,  // every micro-batch is reduced over ranks, and what comes is added
  // A rank adds up its own, whole, and the sum is reduced once: less on the
  // wire, and a slot for every gradient on the device.
  kLast,
};

// Along which ranks optimizer states are cut, and with them reduced gradients,
// where ranks are in groups (ZeroOptions::shard_group).
enum class OptimizerSpan : uint8_t {
  kGroup,  // each group has them all: replicas update alike, and send less
  // Each rank has its own part: the least memory and work; parameters that were
  // updated come from the ranks at the same place in other groups.
  kWorld,
};

// "group", "world": for programs.
inline std::string_view OptimizerSpanName(OptimizerSpan span) {
  return span == OptimizerSpan::kWorld ? "world" : "group";
}

constexpr std::string_view AccumulationOrderName(AccumulationOrder order) {
  return order == AccumulationOrder::kEach ? "each" : "last";
}

// What a forecast knows of an engine without bytes before Seal, and Seal then
// takes over. All pointers outlive the engine; null: the engine finds out.
struct DryEngine {
  const ChunkLayout* layout = nullptr;  // that Seal would choose
  // Of a step of these accesses, as the engine would plan it.
  const Trace* planned = nullptr;
  const Plan* plan = nullptr;
  TrafficBook* traffic = nullptr;  // null: nobody counts
  // Nothing takes time, so that lanes do all work on the thread that calls, and
  // shards move whole, counted as the pieces that they would move in.
  bool instant = false;
  // Drives move up to so many bytes at once, in place of a stripe.
  Bytes nvme_piece = {};
};

struct ZeroOptions {
  // Behaviour.

  // 0: everything replicated. 1: optimizer states sharded. 2: gradients too.
  // 3: parameters too. Stages 1 and 2 keep only the shard of what is reduced.
  int stage = 3;
  // Hierarchical sharding: each group of so many consecutive ranks, a host's as
  // a rule, keeps all shards. Parameters are gathered inside a group; gradients
  // are reduced over all ranks. The size divides the number of ranks. 0: one
  // group of all.
  int shard_group = 0;
  OptimizerSpan optimizer_span = OptimizerSpan::kGroup;
  OptimizerOptions optimizer;  // of all parameters; Step gives the rate
  // What parameters that are in a group (ZeroEngine::Register) have else.
  std::vector<OptimizerGroup> groups;
  // Largest global norm of the averaged gradient; 0: no clipping.
  double clip_norm = 0;
  // Whether the norm is computed without clipping and loss scaling too: Step
  // then tells it, ClipGradients may use it, and a step whose gradients are not
  // all finite is skipped.
  bool count_norm = false;
  // Whether gradients are averaged over micro-batches; else they are summed up
  // over these, and averaged over ranks alone.
  bool average_micro_batches = true;
  // Whether a lease ends where its holder ends it, which ranks need not do
  // alike, and perhaps after its step: as where a garbage collector does so.
  // Else ranks end leases at the same place of a step. Same bits.
  bool own_lease_ends = false;
  LossScaling loss_scaling;
  GradMode grad_mode = GradMode::kSeparate;
  // Whether the gradients of a step may stay in the trainer's memory
  // (ZeroEngine::BorrowGrads). Seal decides so for one rank with kSeparate
  // where all other states, frozen parameters too, are at home on the device:
  // the gradients then count in the device budget, and have neither slots nor
  // homes. Not in a recorded run, whose trace has each gradient, nor in a
  // forecast, which then tells of more than the run takes.
  bool borrow_grads = false;
  // Whether updates in host memory may begin before the norm is known
  // (ZeroEngine::GuessUpdates). What budgets of the host and NVMe leave over
  // then serves as room for new states beside the old ones. Beside full host
  // memory new states go to NVMe and back, while no other update waits.
  bool guess_updates = false;
  AccumulationOrder accumulation = AccumulationOrder::kEach;
  // Where everything lies, found before (chunk/layout_file.h). It is taken as
  // it is, and Seal refuses to go on where it is not of the parameters
  // registered. Null: made at Seal, by `align` and what follows it.
  std::shared_ptr<const LayoutFile> layout;
  Elements align{64};  // A
  // C for every group; empty: searched between the two limits below, of which 0
  // bytes leave the choice (chunk_bounds.h). Not with a layout.
  std::optional<Bytes> chunk_size;
  Bytes min_chunk;
  Bytes max_chunk;
  // Bytes Castor may hold, for this rank: slots, staging and communicator
  // buffers together. Hard.
  Bytes device_budget;
  Bytes host_budget;
  std::vector<NvmeOption> nvme;  // drives that share the work; none: no NVMe

  // At most so much of each state on each tier
  // (placement/homes/static_policy.h): the same homes on every rank, refused at
  // Seal where they do not fit, or are of states that the optimizer does not
  // keep. Null: homes are as the budgets allow, by bytes moved per step.
  std::optional<std::vector<HomeLimit>> home_limits;
  // Where states of some parameters have to live (placement/placement_rules.h),
  // decided once, at Seal, and before all else.
  std::vector<PlacementRule> home_rules;

  // Whether device memory that is given up (copies of chunks, gradients,
  // leases) is filled with NaN, so that a trainer that reads it too late sees
  // that. Each lease of parameters has a copy of its own then, beside the
  // device budget, though the chunk stays on the device.
  bool poison = false;

  // Performance.

  // Whether gathered copies stay between uses in what the device budget leaves
  // over. Without, there are slots for what a step holds and prefetches.
  bool keep_copies = true;

  // Gathers kept under way ahead of use; 0: none, every chunk on demand. Seal
  // sets slots aside for as many, beside homes; for fewer, and then fewer are
  // under way, where homes would not fit otherwise.
  //
  // By deadlines, each gather begins as late as it can and still arrive in
  // time. As many run at once as that needs, in any idle slot. The depth then
  // only says how many slots Seal sets aside and a plan may spare: with 0 there
  // are none, and gathers still begin ahead where a slot is idle. Deadlines are
  // made of `machine`, which must know every link that gathers pass, and of
  // `step_compute_ns`, never of a clock. Where either is missing, the depth
  // decides, and the engine says so once.
  Prefetch prefetch = {.depth = 3};
  // How long a rank computes in a step, all its micro-batches together, as the
  // trainer declares it; 0: unknown. It is shared out over the recorded step by
  // what is used (placement/policy/compute_spread.h).
  int64_t step_compute_ns = 0;
  // How fast this machine's links are, the same on every rank, as `castor
  // probe` measured them: policies weigh fetches by it, and the host takes from
  // slow drives what spares them most. Empty, or silent of a link: links count
  // alike.
  std::optional<TierModel> machine;
  // Who decides which gathered copies stay on the device. kPlanned fetches
  // least, and takes longer to plan, once and after a step that departs.
  PlanPolicy policy = PlanPolicy::kAuto;
  // Most bytes of values on their way between ranks at once where a trainer
  // reads a parameter or a gradient: beside the budgets, on every rank, and on
  // rank 0 over NCCL once for each rank. At least 8.
  Bytes values_piece = MiB(4);

  // Collaborators, all of which must outlive the engine.

  Executor* executor = nullptr;  // required
  // Where device memory lies and device work runs; several engines may share
  // one. Lanes given to the engine are this device's own (MakeLane,
  // AdoptStream); a simulated one takes any. Null: a simulated one of just the
  // size that is needed.
  Device* device = nullptr;
  // Makes the memory on the device, for instance from a framework's allocator,
  // so that the framework counts it; 256 bytes aligned, and no queued work uses
  // it any more. Null: the device does.
  std::function<Result<Slab>(Bytes)> make_device_slab;
  // Of every drive, for a twin of one
  // (offload/nvme/queue/simulated_io_queue.h); what it captures must outlive
  // the engine. Null: the best that the machine gives.
  IoQueueFactory make_nvme_queue;
  // Computes their checksums; null: threads of their own.
  Executor* nvme_checksums = nullptr;
  WorkerPool* workers = nullptr;      // null: the process's own
  HostPasses* host_passes = nullptr;  // null: the machine's
  // The engine is one of a world without bytes: no start values are written,
  // and nobody reads any value.
  std::optional<DryEngine> dry = {};
  RunRecorder* recorder = nullptr;  // null: the run is not recorded
  Log* log = nullptr;               // null: to stderr
  const Clock* clock = nullptr;     // null: the machine's clock
};

// What is held at the same time at one moment of a micro-batch.
struct HeldTogether {
  std::vector<ParamId> params;  // acquired
  std::vector<ParamId> grads;   // between Grad and GradReady
};

struct SealOptions {
  // The moments of one micro-batch, in order, as far as they differ in what is
  // held. The engine refuses budgets that cannot serve them; a gradient counts
  // from the first to the last moment that lists it. A last moment with all
  // gradients and no parameters says that ranks may lack gradients which others
  // have. Empty: two parameters and the gradients of two chunks at a time.
  std::vector<HeldTogether> held;
  // Most bytes on lease by Borrow at one time.
  Bytes largest_lease;
  // Most micro-batches of a step, at least 1. Where each is reduced, the sums
  // of fp16 gradients have room for so many: they overflow only where their
  // average does.
  int64_t micro_batches = 1;
  // The trainer does not surely know what a step holds. Where all slots are
  // held, the engine makes one more within the device budget, and counts the
  // slot. Where nothing is declared, or an estimate, Seal leaves room on the
  // device for such slots: it sets few aside, and keeps states on other tiers
  // as far as these have room. Reseal places the states once a step was made.
  bool grow = false;
  bool estimate = false;
  // The first step is planned as if this step had come before, and so fetches
  // ahead; without, the first step is served on demand. The same on all ranks.
  // Seal refuses a step of other chunks, or one that holds more at once than
  // was declared.
  std::optional<StepTrace> step = {};
};

// For ZeroEngine::Reseal. What is not set stays.
struct ResealOptions {
  std::optional<Bytes> device_budget = {};
  std::optional<Bytes> host_budget = {};
  // In place of what Seal was told. Nothing held stands for what was held in
  // the last step, where that is known; and without a step the next one is
  // planned as before, where it fits.
  SealOptions declared = {};
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_ZERO_OPTIONS_H_
