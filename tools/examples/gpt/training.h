// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_TRAINING_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_TRAINING_H_

// What a training run is told and what it tells. Plain structs with defaults.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "collectives/lr_schedule.h"
#include "collectives/optimizer_groups.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "offload/pinned_arena.h"
#include "offload/simulated_link.h"
#include "placement/tier_model.h"
#include "placement/trace_file.h"
#include "tools/examples/gpt/gpt_params.h"

namespace castor::gpt {

// The optimizer's group of norms and biases, and its usual numbers.
inline constexpr char kVectorsGroup[] = "vectors";
OptimizerGroup VectorsWithoutDecay();

// What this trainer has an engine do unless told otherwise: AdamW as GPTs are
// trained with, and clipping.
ZeroOptions EngineDefaults();

struct TrainOptions {
  std::string text;  // what is trained on, as the user named it
  GptConfig model;
  DType dtype = DType::kF32;  // of parameters; or kBF16, kF16
  int batch = 2;              // sequences per rank and micro-batch
  int accumulate = 1;         // micro-batches per step
  int ranks = 1;
  int64_t rank_timeout = 120;  // seconds that ranks wait for one; 0: for ever
  int64_t steps = 30;
  uint64_t seed = 1;
  double lr = 3e-4;
  double lr_floor = 0;                    // at the last step, unless constant
  LrShape schedule = LrShape::kConstant;  // after the warm-up
  int64_t warmup = 0;                     // steps
  // How many steps in a row without a finite loss end the run; 0: none do. Else
  // such a step is never saved.
  int64_t stop_on_nan = 10;
  // After which step to take a digest of the weights, besides the last.
  std::optional<int64_t> digest_step;

  // Of Castor; a reference run takes the optimizer, its group and the clip. A
  // device budget of 0: room for everything.
  ZeroOptions engine = EngineDefaults();
  // Without a device budget, gathered copies stay between uses, too.
  bool keep_copies = false;
  // How fast the links of every rank's device and drive are, for the twins of
  // them and for the engine's plans; what is not known is as fast as this
  // machine. Null: nothing is slowed down.
  std::optional<TierModel> machine;

  // Checkpoints; a reference run has none.
  std::string save;         // folder to save to; empty: nothing is saved
  int64_t save_every = 0;   // steps; 0: after the last one only
  int64_t keep = 0;         // checkpoints that stay; 0: all
  bool save_async = false;  // beside the next step
  // What to go on from: with flags, the folder named; else a checkpoint's own.
  std::string resume;
  int64_t first_step = 1;
  // Weights to begin with, where nothing is gone on from: with flags, what was
  // named; else their file or its index. Empty: drawn by `seed`.
  std::string init;
  std::string resume_note;  // what the user should know of it
};

// InvalidArgument where options have no meaning.
Status Validate(const TrainOptions& options);
// The learning rates of a run.
LrSchedule ScheduleOf(const TrainOptions& options);

// The device budget of a run that was given none: parameters, gradients and
// optimizer states whole, and gathered copies of everything.
Bytes RoomForEverything(const TrainOptions& options);

// What the trainer itself needs, apart from Castor's budgets: the activations
// of all ranks, and all of a reference run's arrays. Rounded.
double TrainerBytes(const TrainOptions& options, bool reference);

// Unavailable, with the numbers, where the machine does not have `bytes`: the
// kernel would let the run have them and kill it when it uses them.
Status CheckMemory(double bytes);

struct StepReport {
  int64_t step = 0;  // counts from 1
  double loss = 0;   // mean over ranks and micro-batches
  double grad_norm = 0;
  bool applied = true;  // false: a gradient was not finite
  double loss_scale = 1;
  double seconds = 0;  // since the last report
  int64_t tokens = 0;  // of all ranks
  TierUse tiers[3];    // of rank 0; zeros in a reference run
};

// The reports of a run, however long it is: the first few, the last thousand,
// and sums of all.
class StepHistory {
 public:
  static constexpr size_t kFirst = 5;
  static constexpr size_t kLast = 1000;

  void push_back(const StepReport& report);

  // How many steps were reported, and their sums.
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t tokens() const { return tokens_; }
  double seconds() const { return seconds_; }

  // The first kFirst, and the last kLast, at most.
  std::span<const StepReport> first() const { return first_; }
  std::span<const StepReport> last() const;
  // REQUIRES: there is one; of all by number, one of the last.
  const StepReport& front() const { return first_.front(); }
  const StepReport& back() const { return kept_.back(); }
  const StepReport& operator[](size_t index) const;

 private:
  size_t size_ = 0;
  int64_t tokens_ = 0;
  double seconds_ = 0;
  std::vector<StepReport> first_;
  std::vector<StepReport> kept_;  // the last ones, less than twice kLast
};

// What the links of one rank carried.
struct RankLinks {
  LinkUse to_device = {};
  LinkUse from_device = {};
  LinkUse nvme_read = {};  // where the machine says anything of its drive
  LinkUse nvme_write = {};
};

// What a process held at its peak, by what for. Castor's tiers are those that
// lie in the process's own memory, of all its ranks.
struct ProcessMemory {
  Bytes peak;         // resident, as the system counts; 0: it does not tell
  Bytes tiers;        // of the device's twin and of pinned host memory
  Bytes activations;  // the models' own arrays
  Bytes conversions;  // parameters and gradients on their way to fp32
  Bytes text;
  Bytes record;  // events that were not written yet
  // The program, its libraries, BLAS's buffers, stacks: what is left.
  Bytes rest() const;
};

struct TrainOutcome {
  StepHistory steps;
  std::map<int64_t, uint64_t> digests;  // of the weights, by step
  uint64_t final_digest = 0;
  double seconds = 0;                    // of the steps
  std::vector<EngineStats> ranks;        // empty in a reference run
  std::vector<PinnedArenaStats> arenas;  // of batches on their way, by rank
  std::vector<RankLinks> links;  // by rank; empty where no machine was given
  TraceFile trace;               // of rank 0's last step; others' are like it
  std::string trace_file;        // where that was written; empty: nowhere
  std::string checkpoint;        // the last one saved; empty: none
  ProcessMemory memory;
  Status save_failure;  // of what was to be saved at the end
  // Which rule placed which state of which chunk, a sentence each.
  std::vector<std::string> placed_by_rules;
  bool stopped_early = false;
  // Steps at the end of the run whose loss was not finite.
  int64_t steps_without_loss = 0;
};

struct TrainHooks {
  // Called once per step, in order, one call at a time, from a thread that
  // computes. May be empty.
  std::function<void(const StepReport&)> on_step;
  // When it becomes true, training ends after the step under way. May be null.
  const std::atomic<bool>* stop = nullptr;
};

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_TRAINING_H_
