// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/plan/plan_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/layout/tensor_fields.h"
#include "chunk/param_spec.h"
#include "chunk/text/quote.h"
#include "chunk/text/units_text.h"
#include "collectives/answers/foretell.h"
#include "collectives/options/option_table.h"
#include "collectives/options/option_words.h"
#include "offload/kernels/optimizer_options.h"
#include "placement/derive/model_blocks.h"
#include "placement/trace/step_trace.h"
#include "tools/cli/bounded_program.h"
#include "tools/cli/flags.h"
#include "tools/cli/text/command_text.h"
#include "tools/cli/text/text_forms.h"
#include "tools/commands/file_kind.h"
#include "tools/models/files/castor_files.h"
#include "tools/models/model_reader.h"
#include "tools/models/model_shape.h"

namespace castor {
namespace {

constexpr int64_t kMaxSize = (int64_t{1} << 31) - 1;

constexpr char kFooter[] =
    R"(MODEL is what castor search takes (castor search --help). Castor never reads weights.
SIZE is 24GiB (2^30), 24GB (10^9), 1.5GiB, 512KiB or bytes. A budget is that of one rank: all
that the rank may hold on the tier, everything in the table included.

What a step does is known from --trace, or from a list that says it (train_gpt --print-model
prints one). For any other model Castor derives the step: a block at a time is held.

  without --device-budget           everything goes to the device, however large
  without --seq or --trace          activations are not counted
  without --machine                 no time is told
  without --cuda-context, --nccl    a CUDA context and NCCL hold 0 bytes

Where the model does not fit, the exit code is 3. The page lists the smallest changes that would
do, each as a command that Castor has tried. The exit code is 6 where the record of --compare was
cut off. Castor then compares the steps that the record holds whole.

Examples:
  castor plan ./Llama-3-8B --dtype bf16 --world 8 --device-budget 24GiB --host-budget 64GiB
  castor plan config.json --world 2 --device-budget 16GiB --host-budget 96GiB --nvme 200GiB \
      --seq 4096 --batch 1 --recompute --machine machine.json
  castor plan config.json --world 8 --device-budget 24GiB --host-budget 64GiB -o plan.json
  castor plan config.json --seq 4096 --recompute --device-budget 24GiB --host-budget 64GiB --fit batch
  castor plan config.json --device-budget 8GiB --host-budget 32GiB --limit 'exp_avg@host=25%'
  castor plan model.tsv --world 2 --device-budget 16MiB --compare run.rec
)";

void AddModel(OptionTable& t, PlanFlags* f) {
  t.Text("", &f->dtype)
      .Flag("--dtype", "type of every parameter, f32, bf16 or f16")
      .Default("the model's own");
  t.Choice("", &f->read.order, ParamOrderName,
           {ParamOrder::kFamily, ParamOrder::kFile, ParamOrder::kNatural})
      .Flag("--order", "order of packing")
      .Default("file of a list, else family where known, else natural");
  t.Choice("", &f->read.expert_layout, ExpertLayoutName,
           {ExpertLayout::kFused, ExpertLayout::kPerExpert})
      .Flag("--expert-layout", "how the trainer holds experts");
  t.Text("", &f->read.python)
      .Flag("--python",
            "whose transformers library tells families that Castor does not "
            "know")
      .Form("PYTHON")
      .Default("the wheel's, else python3");
  t.Texts(&f->read.freeze)
      .Flag("--freeze", "PATTERN of names that are not trained; repeatable");
  t.Texts(&f->read.only)
      .Flag("--only", "PATTERN of names that alone are trained; repeatable");
}

void AddBudgets(OptionTable& t, PlanFlags* f) {
  t.Size("", &f->min)
      .Flag("--min", "least chunk size searched")
      .Default("half of the largest, at most 32MiB");
  t.Size("", &f->max)
      .Flag("--max", "largest chunk size searched")
      .Default(
          "640MiB, a sixteenth of the model, or about an eighth of the device "
          "budget; halved until it fits");
  t.Size("", &f->nvme)
      .Flag("--nvme", "bytes of a rank on NVMe")
      .Default("there is none");
  t.Size("", &f->cuda_context)
      .Flag("--cuda-context",
            "device bytes of a CUDA context, as nvidia-smi shows them");
  t.Size("", &f->nccl).Flag("--nccl", "device bytes of NCCL's buffers");
  t.Size("", &f->other_states)
      .Flag("--other-states",
            "host bytes of optimizer states that are not of a parameter's "
            "shape, and lie beside chunks");
}

void AddStep(OptionTable& t, PlanFlags* f) {
  t.Whole("", &f->batch, 1, kMaxSize)
      .Flag("--batch", "sequences of a rank's micro-batch")
      .Default("1");
  t.Whole("", &f->seq, 1, kMaxSize)
      .Flag("--seq",
            "tokens of a sequence: activations are counted by formula");
  t.Choice("", &f->fit, {"given", "batch", "seq"})
      .Flag("--fit",
            "the largest batch, or sequence in steps of 128 tokens, that fits "
            "the budgets");
  t.Size("", &f->activations)
      .Flag("--activations",
            "the most bytes that a step has on the device beside Castor, as "
            "PyTorch's castor.dry_step counts them; in place of --seq");
  t.Whole("", &f->step.micro_batches, 1, kMostPlannedMicroBatches)
      .Flag("--micro-batches", "of a step");
  t.Choice("", &f->step.order,
           +[](BatchOrder order) -> std::string_view {
             return order == BatchOrder::kBatchMajor ? "batch-major"
                                                     : "layer-major";
           },
           {BatchOrder::kBatchMajor, BatchOrder::kLayerMajor})
      .Flag("--batch-order",
            "a micro-batch goes through the model before the next one, or all "
            "go through a layer");
  t.Switch("", &f->step.recompute)
      .Flag("--recompute",
            "layers keep their input and compute the rest again");
  t.Switch("", &f->update_in_backward)
      .Flag("--update-in-backward",
            "a chunk is updated once its gradients are there: no clipping");
  t.Switch("", &f->engine.guess_updates)
      .Flag("--guess-updates",
            "a chunk's new states lie beside the old ones once its gradients "
            "are there, until the norm is known, as castor.wrap has it on a "
            "GPU and with nvme=");
  t.Choice("", &f->hold, {"block", "module"})
      .Flag("--working-set",
            "what the trainer acquires at a time, where nothing says it");
  t.Whole("", &f->width, 1, kMaxSize)
      .Flag("--width", "hidden size")
      .Default("config.json's");
  t.Whole("", &f->heads, 1, kMaxSize)
      .Flag("--heads", "attention heads")
      .Default("config.json's");
  t.Whole("", &f->vocab, 1, kMaxSize)
      .Flag("--vocab", "vocabulary")
      .Default("config.json's");
  t.Whole("", &f->mlp_width, 1, kMaxSize)
      .Flag("--mlp-width", "inner width of the MLP")
      .Default("config.json's");
  t.Choice("", &f->attention, {"flash", "scores"})
      .Flag("--attention",
            "whether attention keeps its scores; flash does not");
  t.Choice("", &f->loss, {"plain", "chunked", "fused"})
      .Flag("--loss",
            "how logits become a loss: all at once, some tokens at a time, or "
            "by a kernel that makes gradients in the forward, as Liger's");
  t.Switch("", &f->dropout).Flag("--dropout", "dropout's masks are kept");
  t.Switch("", &f->borrow)
      .Flag("--borrow-activations",
            "activations are borrowed from Castor's pool, not beside it");
  t.Text("", &f->trace)
      .Flag("--trace", "recorded step, instead of one derived from the model")
      .Form("FILE");
  t.Switch("", &f->processes)
      .Flag("--processes",
            "each rank is a process, and exchanges gradients in a part of the "
            "device budget, as with MPI and NCCL");
  t.Size("", &f->exchange_buffer)
      .Flag("--exchange-buffer",
            "bytes of that part, where the trainer chose them: PyTorch's ranks "
            "take 4MiB")
      .Default("as train_gpt with --processes, else none");
  t.Whole("", &f->ranks_per_host, 1, kMostPlannedRanks)
      .Flag("--ranks-per-host", "ranks that share a host's drives and cores");
}

OptionTable PlannedTable(PlanFlags* flags) {
  OptionTable table;
  AddModel(table, flags);
  table.Whole("", &flags->world, 1, kMostPlannedRanks)
      .Flag("--world", "ranks that share the model");
  table.Add(EngineOptions(&flags->engine, &flags->files).For(kPlanFlag));
  table.OfFlag("--chunk").Default("what the search recommends");
  table.Bind("--device-budget", &flags->device_budget).Default("no limit");
  table.Switch("", &flags->keep_copies)
      .Flag("--keep-copies", kKeepCopiesFlagHelp);
  table.Bind("--host-budget", &flags->host_budget).Default("0");
  table.Bind("--compute", &flags->compute);
  AddBudgets(table, flags);
  AddStep(table, flags);
  return table;
}

// --- What they come to ------------------------------------------------------
Status CheckTogether(const PlanFlags& flags) {
  if (!flags.files.layout.empty() &&
      (flags.engine.chunk_size || flags.min || flags.max)) {
    return InvalidArgument(
        "--layout says where every parameter lies: leave --chunk, --min and "
        "--max away");
  }
  if (flags.engine.chunk_size && (flags.min || flags.max)) {
    return InvalidArgument(
        "--chunk is the size, and --min and --max are for searching one; give "
        "either");
  }
  if (flags.engine.optimizer.momentum != 0 &&
      flags.engine.optimizer.kind != OptimizerKind::kSgd) {
    return InvalidArgument("--momentum is for --optimizer sgd");
  }
  if (flags.seq && !flags.trace.empty()) {
    return InvalidArgument(
        "--seq counts activations by formula and --trace has what was on "
        "lease; give one of them");
  }
  if (flags.activations && (flags.seq || !flags.trace.empty())) {
    return InvalidArgument(
        fmt::format("--activations says what {} counts; give one of them",
                    flags.seq ? "--seq" : "--trace"));
  }
  if (flags.borrow && !flags.seq) {
    return InvalidArgument(
        "--borrow-activations needs --seq, from which activations follow");
  }
  if (flags.engine.grad_mode == GradMode::kReuse &&
      flags.step.micro_batches > 1) {
    return InvalidArgument(
        fmt::format("--grad-mode reuse writes gradients over parameters, which "
                    "{} micro-batches need again; take one, or another mode",
                    flags.step.micro_batches));
  }
  if (flags.batch && !flags.seq) {
    return InvalidArgument(
        "--batch says how large activations are, and so needs --seq");
  }
  return OkStatus();
}

// A list may tell how a parameter is updated, and what states it has.
Status CheckStates(const OptimizerOptions& optimizer,
                   const PlanSubject& subject) {
  const auto kept = std::ssize(optimizer.states);
  for (const ParamSpec& spec : subject.model.params) {
    if (!spec.whole && spec.states < 0) continue;
    if (optimizer.kind != OptimizerKind::kCustom) {
      return InvalidArgument(fmt::format(
          "the list says how parameter {} is updated, and {} updates all "
          "alike: give --optimizer custom",
          Quoted(spec.name), OptimizerName(optimizer.kind)));
    }
    if (spec.states <= kept) continue;
    return InvalidArgument(
        fmt::format("the list has {} states of parameter {}, and the optimizer "
                    "keeps {}: name each by --state",
                    spec.states, Quoted(spec.name), kept));
  }
  return OkStatus();
}

Status CheckChunks(const PlanFlags& flags, const PlanSubject& subject,
                   ZeroOptions* options) {
  const ChunkBounds bounds = BoundsOf(flags, subject).front();
  options->min_chunk = bounds.least;
  options->max_chunk = bounds.most;
  if (options->min_chunk == Bytes(0)) {
    return InvalidArgument(
        "a chunk of 0 bytes holds nothing: give --min and --max more");
  }
  if (options->min_chunk <= options->max_chunk) return OkStatus();
  return InvalidArgument(fmt::format("--min {} is above --max {}",
                                     FormatSizeExact(options->min_chunk),
                                     FormatSizeExact(options->max_chunk)));
}

Status FillActivations(const PlanFlags& flags, const PlanSubject& subject,
                       PlanRequest* request) {
  if (flags.activations) request->step.resident = *flags.activations;
  if (!flags.seq) return OkStatus();
  TransformerShape shape = subject.shape;
  shape.batch = flags.batch.value_or(1);
  shape.seq = *flags.seq;
  if (flags.width) shape.query_width = shape.key_width = 0;
  shape.width = flags.width.value_or(shape.width);
  shape.heads = flags.heads.value_or(shape.heads);
  shape.vocab = flags.vocab.value_or(shape.vocab);
  shape.mlp_width = flags.mlp_width.value_or(shape.mlp_width);
  shape.dropout = flags.dropout;
  shape.keeps_scores = flags.attention == "scores";
  shape.loss = flags.loss == "chunked" ? LossKind::kChunked
               : flags.loss == "fused" ? LossKind::kFused
                                       : LossKind::kPlain;
  if (const auto& params = subject.model.params; !params.empty()) {
    shape.element_bytes = DTypeBits(params.front().dtype) / 8;
  }
  if (shape.width == 0 || shape.heads == 0) {
    return InvalidArgument(fmt::format(
        "nothing tells the model's {}, from which activations follow; give {}",
        shape.width == 0 ? "hidden size" : "attention heads",
        shape.width == 0 ? "--width and --heads" : "--heads"));
  }
  CASTOR_RETURN_IF_ERROR(ValidateShape(shape));
  request->activations = shape;
  request->borrows = flags.borrow;
  return OkStatus();
}

// Names that share a parameter which the list has.
std::vector<TiedParam> TiedParamsOf(const ModelList& model) {
  std::map<std::string, int32_t> ids;
  for (size_t p = 0; p < model.params.size(); ++p) {
    ids.emplace(model.params[p].name, static_cast<int32_t>(p));
  }
  std::vector<TiedParam> tied;
  for (const TiedName& name : model.tied) {
    const auto found = ids.find(name.to);
    if (found != ids.end() && !ids.contains(name.name)) {
      tied.push_back({name.name, ParamId(found->second)});
    }
  }
  if (!model.family.empty()) return tied;
  if (const std::optional<TiedParam> head = SuspectedTie(model.params)) {
    tied.push_back(*head);
  }
  return tied;
}

// What a list says of the step leaves nothing to say by flags.
Status CheckListedStep(const PlanFlags& flags, const PlanSubject& subject) {
  if (subject.step_source() != StepSource::kListed) return OkStatus();
  const PlanFlags usual;
  const std::string_view said = flags.step.recompute ? "--recompute"
                                : flags.step.order != usual.step.order
                                    ? "--batch-order"
                                : flags.hold != usual.hold ? "--working-set"
                                                           : "";
  if (!said.empty()) {
    return InvalidArgument(fmt::format(
        "the list says what a step does, and {} tells how one is derived: "
        "leave the flag away, or the list's lines that begin with a tab",
        said));
  }
  const bool in_place = flags.engine.grad_mode == GradMode::kReuse;
  if (subject.model.step.grads_in_place == in_place) return OkStatus();
  return InvalidArgument(fmt::format(
      "the list's step is of a trainer that {}, and --grad-mode is {}: have "
      "the trainer print the list in that mode",
      in_place ? "has gradients of their own"
               : "writes gradients over parameters",
      GradModeName(flags.engine.grad_mode)));
}

}  // namespace

std::string_view StepSourceName(StepSource source) {
  switch (source) {
    case StepSource::kRecorded:
      return "recorded";
    case StepSource::kListed:
      return "listed";
    case StepSource::kDerived:
      return "derived";
  }
  return "unknown";
}

StepSource PlanSubject::step_source() const {
  if (trace) return StepSource::kRecorded;
  return model.step.uses.empty() ? StepSource::kDerived : StepSource::kListed;
}

void DeclarePlannedFlags(CLI::App& app, PlanFlags* flags) {
  AddPositional(app, "MODEL", &flags->model,
                "what to read: see below; - is a list on stdin");
  DeclareOptions(app, PlannedTable(flags));
}

void DeclarePlanFlags(CLI::App& app, PlanFlags* flags) {
  DeclarePlannedFlags(app, flags);
  AddTextFlag(app, "-o,--output", &flags->output,
              "write the plan that trainers load to this file", "FILE");
  AddTextFlag(app, "--compare", &flags->compare,
              "also print what this run's record measured", "FILE");
  AddTextFlag(app, "--html", &flags->html,
              "also write a page of pictures to this file");
  AddTextFlag(app, "--explain", &flags->explain,
              "also say why the states of these parameters are where they are",
              "PATTERN");
  AddSwitch(app, "--json", &flags->json, "print one JSON document");
  AddSwitch(app, "--plain", &flags->plain, "print tab-separated lines");
  SetHelpFooter(app, kFooter);
}

std::string PlanCommandText(const PlanFlags& flags) {
  PlanFlags own = flags;
  PlanFlags usual;
  const OptionTable table = PlannedTable(&own);
  return fmt::format("castor plan {}{}", ShellWord(flags.model),
                     GivenFlagsText(table, PlannedTable(&usual)));
}

Result<PlanSubject> ReadPlanSubject(const PlanFlags& flags) {
  PlanSubject subject;
  ReadModelOptions read = flags.read;
  read.python = PythonToAsk(read.python);
  if (!flags.dtype.empty()) {
    const Result<DType> dtype = ReadDType(flags.dtype, DTypeSpelling::kLenient);
    if (!dtype.ok()) {
      return InvalidArgument(
          std::string(dtype.status().WithContext("--dtype").message()));
    }
    read.dtype = *dtype;
  }
  if (!flags.files.machine.empty()) {
    CASTOR_ASSIGN_OR_RETURN(subject.machine,
                            ReadMachineFile(flags.files.machine));
  }
  if (!flags.trace.empty()) {
    Result<TraceFile> trace = ReadTraceFile(flags.trace);
    if (!trace.ok()) {
      return NameOtherKind(trace.status(), flags.trace,
                           "the trace of a step (train_gpt --trace FILE)");
    }
    subject.trace = *std::move(trace);
  }
  if (!flags.files.layout.empty()) {
    CASTOR_ASSIGN_OR_RETURN(LayoutFile layout,
                            ReadLayoutFile(flags.files.layout));
    subject.layout = std::make_shared<const LayoutFile>(std::move(layout));
  }
  Result<ModelList> model = ReadModel(flags.model, read);
  if (!model.ok()) {
    return NameOtherKind(model.status(), flags.model,
                         "a model (castor search --help says which)");
  }
  subject.model = *std::move(model);
  CASTOR_ASSIGN_OR_RETURN(subject.shape,
                          ReadModelShape(flags.model, subject.model));
  const std::vector<TiedParam> tied = TiedParamsOf(subject.model);
  const std::vector<ParamSpec>& params = subject.model.params;
  for (const ParamSpec& spec : params) {
    // The reader has refused shapes that overflow.
    const Elements count = CountElements(spec.shape, spec.dtype).value();
    subject.elements += count;
    subject.bytes += BytesOf(count, spec.dtype);
  }
  subject.by_block = FindModelBlocks(params, tied, HoldUnit::kBlock);
  subject.by_module = FindModelBlocks(params, tied, HoldUnit::kModule);
  return subject;
}

std::vector<ChunkBounds> BoundsOf(const PlanFlags& flags,
                                  const PlanSubject& subject) {
  std::optional<Bytes> device = flags.device_budget;
  if (device) {
    *device -= flags.overhead() + flags.exchange_buffer.value_or(Bytes(0));
  }
  std::vector<ChunkBounds> bounds =
      ChunkBoundsFor(subject.bytes, device, flags.world, flags.min, flags.max);
  if (flags.engine.chunk_size || subject.layout) bounds.resize(1);
  return bounds;
}

Result<PlanRequest> CheckPlanFlags(const PlanFlags& flags,
                                   const PlanSubject& subject) {
  CASTOR_RETURN_IF_ERROR(CheckTogether(flags));
  CASTOR_RETURN_IF_ERROR(CheckListedStep(flags, subject));
  CASTOR_RETURN_IF_ERROR(CheckStates(flags.engine.optimizer, subject));
  PlanRequest request;
  request.flags = flags;
  ZeroOptions& options = request.options;
  options = flags.engine;
  options.layout = subject.layout;
  options.machine = subject.machine;
  CASTOR_RETURN_IF_ERROR(CheckChunks(flags, subject, &options));
  options.device_budget = flags.device_budget.value_or(kNoDeviceLimit);
  // Who gives no limit asks for what is needed.
  options.keep_copies = flags.device_budget || flags.keep_copies;
  options.host_budget = flags.host_budget.value_or(flags.other_states);
  if (flags.nvme) options.nvme = {{{}, flags.nvme}};
  options.step_compute_ns = flags.compute.value_or(0);
  const bool recorded = subject.trace && subject.trace->step.updates_early;
  if (flags.update_in_backward || recorded) {
    const double clip = flags.engine.clip_norm;
    if (clip != PlanFlags().engine.clip_norm && clip > 0) {
      return InvalidArgument(fmt::format(
          "{} updates before the norm is known, and --clip {} clips by it: "
          "leave one of them away",
          recorded ? "the trace" : "--update-in-backward", clip));
    }
    options.clip_norm = 0;
  }
  request.step = flags.step;
  request.step.whole_grads = options.accumulation == AccumulationOrder::kLast;
  request.step.grads_in_place = options.grad_mode == GradMode::kReuse;
  CASTOR_RETURN_IF_ERROR(FillActivations(flags, subject, &request));
  return request;
}

}  // namespace castor
