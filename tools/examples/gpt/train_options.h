// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_TRAIN_OPTIONS_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_TRAIN_OPTIONS_H_

// What a training run is told. A plain struct with defaults.

#include <cstdint>
#include <optional>
#include <string>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "collectives/lr_schedule.h"
#include "collectives/optimizer_groups.h"
#include "collectives/zero_options.h"
#include "placement/tier_model.h"
#include "tools/examples/gpt/model/gpt_params.h"

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
  int64_t rank_timeout_ns() const { return rank_timeout * 1'000'000'000; }
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

  // A device budget of 0: room for everything.
  ZeroOptions engine = EngineDefaults();
  // Without a device budget, gathered copies stay between uses, too.
  bool keep_copies = false;
  // How fast the links of every rank's device and drive are, for the twins of
  // them and for the engine's plans; what is not known is as fast as this
  // machine. Null: nothing is slowed down.
  std::optional<TierModel> machine;

  // Checkpoints.
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
// of all ranks. Rounded.
double TrainerBytes(const TrainOptions& options);

// Unavailable, with the numbers, where the machine does not have `bytes`: the
// kernel would let the run have them and kill it when it uses them.
Status CheckMemory(double bytes);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_TRAIN_OPTIONS_H_
