// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/train_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/layout_file.h"
#include "chunk/param_spec.h"
#include "chunk/text/quote.h"
#include "collectives/answers/plan_file.h"
#include "collectives/lr_schedule.h"
#include "collectives/optimizer_groups.h"
#include "collectives/options/option_words.h"
#include "collectives/zero_options.h"
#include "placement/plan.h"
#include "tools/examples/gpt/model/gpt_params.h"
#include "tools/examples/gpt/resume.h"
#include "tools/models/files/castor_files.h"
#include "tools/models/files/input_file.h"
#include "tools/models/files/plan_reader.h"

namespace castor::gpt {
namespace {

constexpr int64_t kMostSmall = 4096;
constexpr int64_t kMostLarge = 65536;
constexpr int64_t kMostSteps = 1'000'000'000;
constexpr int64_t kMost = 1'000'000;
constexpr double kMostRate = 1e3;

// Far more than there is to say.
constexpr uint64_t kMaxConfigBytes = uint64_t{1} << 20;

void AddModel(OptionTable& t, TrainFlags* f) {
  TrainOptions* const o = &f->train;
  t.Text("", &f->text).Flag("--text", "file or folder to train on");
  t.Whole("", &o->model.layers, 1, kMostSmall).Flag("--layers", "blocks");
  t.Whole("", &o->model.heads, 1, kMostSmall)
      .Flag("--heads", "attention heads");
  t.Whole("", &o->model.embd, 1, kMostLarge)
      .Flag("--embd", "columns of the residual stream");
  t.Whole("", &o->model.context, 1, kMostLarge)
      .Flag("--seq", "tokens of a sequence");
  t.Whole("", &o->batch, 1, kMostLarge)
      .Flag("--batch", "sequences of a rank's micro-batch");
  t.Whole("", &o->accumulate, 1, kMostLarge)
      .Flag("--accumulate", "micro-batches of a step");
  t.Whole("learning_rate.steps", &o->steps, 1, kMostSteps)
      .Flag("--steps", "steps of the whole run");
  t.Whole("", &o->seed, 0, std::numeric_limits<int64_t>::max())
      .Flag("--seed", "of initial values and data");
  t.Choice("", &o->dtype, DTypeName, {DType::kF32, DType::kBF16, DType::kF16})
      .Flag("--dtype",
            "how parameters and gradients are stored and moved; this trainer "
            "computes in fp32 always");
}

void AddUpdates(OptionTable& t, TrainFlags* f) {
  TrainOptions* const o = &f->train;
  t.Real("learning_rate.peak", &o->lr, 0, kMostRate)
      .Flag("--lr", "learning rate");
  t.Real("learning_rate.floor", &o->lr_floor);
  t.Whole("learning_rate.warmup_steps", &o->warmup, 0, kMostSteps)
      .Flag("--warmup", "steps in which the learning rate rises");
  t.Choice("learning_rate.schedule", &o->schedule, LrShapeName,
           {std::begin(kLrShapes), std::end(kLrShapes)})
      .Flag("--schedule", "how the rate goes to its floor after that");
  t.Choice("", &f->decay, {"all", "matrices"})
      .Then([f] {
        std::vector<OptimizerGroup>& groups = f->train.engine.groups;
        groups.clear();
        if (f->decay == "matrices") groups = {VectorsWithoutDecay()};
      })
      .Flag("--decay",
            "what weight decay is for: all parameters, or not norms and biases")
      .Same({"groups"});
}

void AddRanks(OptionTable& t, TrainFlags* f) {
  t.Whole("launch.ranks", &f->ranks, 1, kMost)
      .Flag("--ranks",
            "ranks, threads of this process; under mpirun, as many as there "
            "are processes")
      .Default("1");
  t.Whole("launch.rank", &f->rank, 0, kMost)
      .Flag("--rank",
            "which of --ranks this process is, where nothing that started it "
            "tells");
  t.Choice("launch.backend", &f->backend, {"host", "nccl"})
      .Flag("--backend",
            "where ranks meet: in host memory, or each is a process with a "
            "GPU, and NCCL connects them");
  t.Choice("launch.reduce", &f->reduce, {"exact", "native"})
      .Flag("--reduce",
            "of nccl: sums in rank order, with the bits of every other way to "
            "train, or NCCL's own")
      .Default("exact");
  t.Text("launch.id_file", &f->id_file)
      .Flag("--id-file",
            "of nccl: a new file that all ranks see, by which they find each "
            "other")
      .Form("FILE")
      .Default("by mpirun, or MASTER_ADDR and MASTER_PORT, or Slurm's step");
  t.Whole("launch.timeout_seconds", &f->train.rank_timeout, 0, kMost)
      .Flag("--rank-timeout",
            "seconds that a rank may hold the others up; 0: for ever");
}

void AddCheckpoints(OptionTable& t, TrainOptions* o) {
  t.Text("checkpoint.directory", &o->save)
      .Flag("--save",
            "folder for checkpoints: one after the last step, also of a run "
            "that is stopped")
      .Form("DIR");
  t.Whole("checkpoint.every", &o->save_every, 1, kMostSteps)
      .Flag("--save-every", "save after every so many steps too")
      .Default("");
  t.Whole("checkpoint.keep", &o->keep, 1, kMostSteps)
      .Flag("--keep", "checkpoints that stay in the folder")
      .Default("all");
  t.Switch("checkpoint.async", &o->save_async)
      .Flag("--save-async", "save while the next step computes");
  t.Text("checkpoint.resume", &o->resume)
      .Flag("--resume",
            "checkpoint to go on from, or a folder of them for the latest; "
            "where it is that of --save, it may hold none yet")
      .Form("PATH");
  t.Text("checkpoint.init", &o->init)
      .Flag("--init",
            "weights to begin with instead of random ones: a checkpoint, or a "
            "model of the same names and shapes (.safetensors, an index, a "
            "folder)")
      .Form("PATH");
}

void AddProgram(OptionTable& t, TrainFlags* f) {
  t.Text("", &f->plan)
      .Flag("--plan",
            "file of castor plan -o with budgets, stage, chunks and policy, "
            "instead of their flags")
      .Form("FILE");
  t.Text("", &f->config)
      .Flag("--config",
            "file of the engine's options, learning rates, ranks and "
            "checkpoints (castor.config/1); what it leaves out flags say, and "
            "nothing is said twice")
      .Form("FILE");
  t.Text("", &f->record)
      .Flag("--record", "file for the run's events, for castor report")
      .Form("FILE");
  t.Text("", &f->trace)
      .Flag("--trace",
            "file for the trace of the last step (castor.trace/1), for castor "
            "search --order trace")
      .Form("FILE");
  t.Whole("", &f->train.stop_on_nan, 0, kMostSteps)
      .Flag("--stop-on-nan",
            "end, with exit code 6, after N steps in a row without a finite "
            "loss; such steps are not saved, and checkpoints before them stay; "
            "0: go on and save");
  t.Whole("", &f->train.digest_step, 1, kMostSteps)
      .Flag("--digest-at", "print the weights' digest after this step too");
  t.Switch("", &f->json).Flag("--json", "the summary as one JSON document");
  t.Switch("", &f->print_model)
      .Flag("--print-model",
            "print the parameters and what a step does with them, a list for "
            "castor search and castor plan, and train nothing");
}

// Rows without a flag are of documents.
OptionTable EngineRows(TrainFlags* f) {
  OptionTable rows;
  const OptionTable all = EngineOptions(&f->train.engine, &f->files);
  for (Option row : all.rows()) {
    if ((row.uses & kTrainFlag) == 0) row.flag.clear();
    rows.Add(std::move(row));
  }
  Option& budget = rows.OfFlag("--device-budget");
  budget.set = [set = budget.set](const OptionScalar& bytes) -> Status {
    if (std::get<int64_t>(bytes) > 0) return set(bytes);
    return InvalidArgument(
        "is no budget: give it bytes, or leave it away for room for "
        "everything");
  };
  rows.OfFlag("--machine").text =
      "file of a machine's speeds (castor.machine/1): what moves between "
      "device, host and nvme takes at least its time, and is weighed by it; a "
      "link that it does not name is not slowed";
  return rows;
}

// Puts what the files say that flags name into `options`.
Status TakeFiles(const TrainFlags& flags, bool processes,
                 TrainOptions* options) {
  ZeroOptions& engine = options->engine;
  if (!flags.files.layout.empty()) {
    CASTOR_ASSIGN_OR_RETURN(LayoutFile layout,
                            ReadLayoutFile(flags.files.layout));
    engine.layout = std::make_shared<const LayoutFile>(std::move(layout));
  }
  if (!flags.files.machine.empty()) {
    CASTOR_ASSIGN_OR_RETURN(options->machine,
                            ReadMachineFile(flags.files.machine));
  }
  if (flags.plan.empty()) return OkStatus();
  CASTOR_ASSIGN_OR_RETURN(const PlanFile plan, ReadPlanFile(flags.plan));
  CASTOR_RETURN_IF_ERROR(Validate(options->model));
  const Status fits = CheckPlanFits(
      plan, SpecsOf(options->model, options->dtype), options->ranks, processes);
  return (fits.ok() ? ApplyPlan(plan, &engine) : fits)
      .WithContext(QuotedPath(flags.plan));
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
  if (flags.Gave("--compute") &&
      engine.prefetch.mode != PrefetchMode::kDeadlines) {
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

bool TrainFlags::Gave(const std::string& flag) const {
  return std::count(given.begin(), given.end(), flag) > 0;
}

OptionTable TrainTable(TrainFlags* flags) {
  OptionTable table;
  AddModel(table, flags);
  AddUpdates(table, flags);
  AddRanks(table, flags);
  table.Add(EngineRows(flags));
  table.Switch("", &flags->train.keep_copies)
      .Flag("--keep-copies", kKeepCopiesFlagHelp);
  AddCheckpoints(table, &flags->train);
  AddProgram(table, flags);
  return table;
}

void DeclareTrainFlags(CLI::App& app, TrainFlags& flags) {
  DeclareOptions(app, TrainTable(&flags), &flags.given);
}

Status TakeConfigFile(TrainFlags* flags) {
  const OptionTable table = TrainTable(flags);
  const std::string where = QuotedPath(flags->config);
  std::vector<std::string> said;
  if (!flags->config.empty()) {
    CASTOR_ASSIGN_OR_RETURN(said, ParseFile(flags->config, kMaxConfigBytes,
                                            [&](std::string_view text) {
                                              return ReadConfig(text, table);
                                            }));
  }
  if (!flags->plan.empty()) {
    CASTOR_RETURN_IF_ERROR(CheckSaidOnce(table, flags->given, PlanKeys(),
                                         QuotedPath(flags->plan)));
  }
  return CheckSaidOnce(table, flags->given, said, where);
}

Status CheckRankFlags(const TrainFlags& flags) {
  if (flags.backend == "nccl") return OkStatus();
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
  CASTOR_RETURN_IF_ERROR(TakeFiles(flags, processes, &options));
  CASTOR_RETURN_IF_ERROR(CheckTogether(flags, options));
  CASTOR_RETURN_IF_ERROR(Validate(options));
  if (!options.resume.empty()) {
    CASTOR_RETURN_IF_ERROR(TakeCheckpoint(flags.Gave("--seed"), &options));
    if (options.digest_step && *options.digest_step < options.first_step) {
      return InvalidArgument(fmt::format(
          "there is no step {} to take a digest after: the run goes on after "
          "step {}",
          *options.digest_step, options.first_step - 1));
    }
  }
  if (!options.init.empty()) {
    CASTOR_RETURN_IF_ERROR(TakeInitialWeights(&options));
  }
  if (!options.save.empty()) CASTOR_RETURN_IF_ERROR(CheckSaveFolder(options));
  return options;
}

}  // namespace castor::gpt
