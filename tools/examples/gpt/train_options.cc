// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// From flags, and the files that they name, to what is trained.

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "chunk/base/quote.h"
#include "chunk/layout_file.h"
#include "chunk/param_spec.h"
#include "collectives/loss_scaler.h"
#include "collectives/optimizer_groups.h"
#include "collectives/plan_file.h"
#include "collectives/zero_options.h"
#include "placement/plan.h"
#include "tools/examples/gpt/gpt_params.h"
#include "tools/examples/gpt/resume.h"
#include "tools/examples/gpt/train_flags.h"
#include "tools/models/castor_files.h"
#include "tools/models/plan_reader.h"

namespace castor::gpt {
namespace {

Status CheckReference(const TrainFlags& flags) {
  const ZeroOptions& engine = flags.train.engine;
  if (!flags.config.empty()) {
    return InvalidArgument(
        "--reference has no engine: leave --config away, or say by flags what "
        "it knows");
  }
  if (engine.loss_scaling.kind != LossScalingKind::kNone ||
      engine.grad_mode != GradMode::kSeparate ||
      engine.accumulation != AccumulationOrder::kEach) {
    return InvalidArgument(
        "--reference has the usual gradients only: leave --loss-scale, "
        "--grad-mode and --accumulation-order away");
  }
  if (!(flags.train.save.empty() && flags.train.resume.empty() &&
        flags.train.init.empty())) {
    return InvalidArgument(
        "--reference has no checkpoints: leave --save, --resume and --init "
        "away");
  }
  return OkStatus();
}

// Puts what the plan says into `options`.
Status TakePlan(const TrainFlags& flags, bool processes,
                TrainOptions* options) {
  CASTOR_ASSIGN_OR_RETURN(const PlanFile plan, ReadPlanFile(flags.plan));
  CASTOR_RETURN_IF_ERROR(Validate(options->model));
  const auto take = [&]() -> Status {
    CASTOR_RETURN_IF_ERROR(
        CheckPlanFits(plan, SpecsOf(options->model, options->dtype),
                      options->ranks, processes));
    return ApplyPlan(plan, &options->engine);
  };
  return take().WithContext(QuotedPath(flags.plan));
}

Status TakeFiles(const TrainFlags& flags, bool processes,
                 TrainOptions* options) {
  if (!flags.files.layout.empty()) {
    CASTOR_ASSIGN_OR_RETURN(LayoutFile layout,
                            ReadLayoutFile(flags.files.layout));
    options->engine.layout =
        std::make_shared<const LayoutFile>(std::move(layout));
  }
  if (!flags.files.machine.empty()) {
    CASTOR_ASSIGN_OR_RETURN(options->machine,
                            ReadMachineFile(flags.files.machine));
  }
  return flags.plan.empty() ? OkStatus() : TakePlan(flags, processes, options);
}

Status CheckTogether(const TrainFlags& flags, const TrainOptions& options) {
  const ZeroOptions& engine = options.engine;
  for (const OptimizerGroup& group : engine.groups) {
    if (group.name == kVectorsGroup) continue;
    return InvalidArgument(
        fmt::format("the optimizer's group {} has no parameters here: name it "
                    "{}, the norms and biases, or leave it away",
                    Quoted(group.name), Quoted(kVectorsGroup)));
  }
  if (flags.Gave("--compute") && engine.prefetch != PrefetchMode::kDeadlines) {
    return InvalidArgument(
        "--compute is what deadlines of fetches are made of, and nothing asks "
        "for these: give --prefetch deadlines and --machine too, or leave "
        "--compute away");
  }
  // Who leaves the sums to NCCL has one group of all ranks.
  if (flags.reduce == "native" && engine.shard_group > 1 &&
      engine.shard_group != options.ranks) {
    return InvalidArgument(fmt::format(
        "--reduce native and shard groups of {} contradict each other: NCCL's "
        "own sums know one group of all {} ranks; take --reduce exact, or "
        "leave --shard-group away",
        engine.shard_group, options.ranks));
  }
  if (!options.init.empty() && !options.resume.empty() &&
      options.resume != options.save) {
    return InvalidArgument(
        "--init begins a run and --resume goes on with one: leave one away, or "
        "resume from the folder of --save, which may hold nothing yet");
  }
  if (options.save.empty() &&
      (options.save_every > 0 || options.keep > 0 || options.save_async)) {
    return InvalidArgument(
        "--save-every, --save-async and --keep say how to save: give --save a "
        "folder too");
  }
  return OkStatus();
}

}  // namespace

Status CheckRankFlags(const TrainFlags& flags) {
  if (flags.backend == "nccl") {
    if (!flags.reference) return OkStatus();
    return InvalidArgument(
        "--reference knows one rank and no GPU: leave --backend away");
  }
  for (const auto& [name, value] : {std::pair("--reduce", &flags.reduce),
                                    std::pair("--id-file", &flags.id_file)}) {
    if (value->empty()) continue;
    return InvalidArgument(
        fmt::format("{} is of --backend nccl: give that too, or leave {} away",
                    name, name));
  }
  return OkStatus();
}

Result<TrainOptions> OptionsOf(const TrainFlags& flags, bool processes) {
  TrainOptions options = flags.train;
  options.text = flags.text;
  options.ranks = flags.ranks.value_or(1);
  if (!flags.plan.empty() && !flags.config.empty()) {
    return InvalidArgument(
        "--config and --plan each say what the engine is to do: leave one "
        "away");
  }
  CASTOR_RETURN_IF_ERROR(flags.reference
                             ? CheckReference(flags)
                             : TakeFiles(flags, processes, &options));
  CASTOR_RETURN_IF_ERROR(CheckTogether(flags, options));
  CASTOR_RETURN_IF_ERROR(Validate(options));
  if (!options.resume.empty()) {
    CASTOR_RETURN_IF_ERROR(TakeCheckpoint(flags.Gave("--seed"), &options));
  }
  if (!options.init.empty()) {
    CASTOR_RETURN_IF_ERROR(TakeInitialWeights(&options));
  }
  if (!options.save.empty()) CASTOR_RETURN_IF_ERROR(CheckSaveFolder(options));
  return options;
}

}  // namespace castor::gpt
