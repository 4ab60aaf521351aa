// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include "collectives/option_table.h"
#include "placement/step_trace.h"
#include "tools/cli/flags.h"
#include "tools/cli/text_forms.h"
#include "tools/commands/plan/plan_request.h"

namespace castor {
namespace {

constexpr int64_t kMaxWorld = 1 << 20;
constexpr int64_t kMaxBatches = 1 << 20;
constexpr int64_t kMaxSize = (int64_t{1} << 31) - 1;

constexpr char kFooter[] =
    R"(MODEL is what castor search takes (castor search --help); weights are never read.
SIZE is 24GiB (2^30), 24GB (10^9), 1.5GiB, 512KiB or bytes. All budgets are those of
one rank: what it may hold there, everything that the table lists included.

Without --device-budget everything goes to the device, however large. Without --seq or
--trace activations are not counted. Without --machine no time is told. What a CUDA
context and NCCL hold is what --cuda-context and --nccl say, 0 unless given.

Where it does not fit, the smallest changes that would are printed, each as a command
that was tried, and the exit code is 3.

Examples:
  castor plan ./Llama-3-8B --dtype bf16 --world 8 --device-budget 24GiB --host-budget 64GiB
  castor plan config.json --world 2 --device-budget 16GiB --host-budget 96GiB --nvme 200GiB \
      --seq 4096 --batch 1 --recompute --machine machine.json
  castor plan config.json --world 8 --device-budget 24GiB --host-budget 64GiB -o plan.json
  castor plan config.json --device-budget 8GiB --host-budget 32GiB --limit 'exp_avg@host=25%'
  castor plan model.tsv --order file --world 2 --device-budget 16MiB --compare run.rec
)";

void AddModel(OptionTable& t, PlanFlags* f) {
  t.Text("", &f->dtype)
      .Flag("--dtype", "type of every parameter, f32, bf16 or f16")
      .Default("the model's own");
  t.Choice("", &f->read.order, ParamOrderName,
           {ParamOrder::kFamily, ParamOrder::kFile, ParamOrder::kNatural})
      .Flag("--order", "order of packing")
      .Default("family where known, else natural");
  t.Choice("", &f->read.expert_layout,
           +[](ExpertLayout layout) -> std::string_view {
             return layout == ExpertLayout::kFused ? "fused" : "per-expert";
           },
           {ExpertLayout::kFused, ExpertLayout::kPerExpert})
      .Flag("--expert-layout", "how the trainer holds experts");
  t.Texts(&f->read.freeze)
      .Flag("--freeze", "PATTERN of names that are not trained; repeatable");
  t.Texts(&f->read.only)
      .Flag("--only", "PATTERN of names that alone are trained; repeatable");
}

void AddBudgets(OptionTable& t, PlanFlags* f) {
  t.Size("", &f->min)
      .Flag("--min", "least chunk size searched")
      .Default("32MiB");
  t.Size("", &f->max)
      .Flag("--max", "largest chunk size searched")
      .Default(
          "512MiB, or an eighth of the device budget if that is less, but no "
          "less than --min's 32MiB or, of a small model, a 64th of it");
  t.Size("", &f->nvme)
      .Flag("--nvme", "bytes of a rank on NVMe")
      .Default("there is none");
  t.Size("", &f->cuda_context)
      .Flag("--cuda-context",
            "device bytes of a CUDA context, as nvidia-smi shows them");
  t.Size("", &f->nccl).Flag("--nccl", "device bytes of NCCL's buffers");
}

void AddStep(OptionTable& t, PlanFlags* f) {
  t.Whole("", &f->batch, 1, kMaxSize)
      .Flag("--batch", "sequences of a rank's micro-batch")
      .Default("1");
  t.Whole("", &f->seq, 1, kMaxSize)
      .Flag("--seq",
            "tokens of a sequence: activations are counted by formula");
  t.Whole("", &f->step.micro_batches, 1, kMaxBatches)
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
  t.Choice("", &f->hold, {"block", "module"})
      .Flag("--hold", "what the trainer acquires at a time");
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
  t.Switch("", &f->dropout).Flag("--dropout", "dropout's masks are kept");
  t.Switch("", &f->borrow)
      .Flag("--borrow-activations",
            "activations are borrowed from Castor's pool, not beside it");
  t.Text("", &f->trace)
      .Flag("--trace", "recorded step, instead of one derived from the model")
      .Form("FILE");
  t.Whole("", &f->ranks_per_host, 1, kMaxWorld)
      .Flag("--ranks-per-host", "ranks that share a host's drives and cores");
}

OptionTable PlannedTable(PlanFlags* flags) {
  OptionTable table;
  AddModel(table, flags);
  table.Whole("", &flags->world, 1, kMaxWorld)
      .Flag("--world", "ranks that share the model");
  table.Add(EngineOptions(&flags->engine, &flags->files).For(kPlanFlag));
  table.OfFlag("--chunk").Default("what the search recommends");
  table.Bind("--device-budget", &flags->device_budget).Default("no limit");
  table.Bind("--host-budget", &flags->host_budget).Default("0");
  table.Bind("--compute", &flags->compute);
  AddBudgets(table, flags);
  AddStep(table, flags);
  return table;
}

}  // namespace

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
  OptionTable defaults = PlannedTable(&usual);
  std::string text = fmt::format("castor plan {}", ShellWord(flags.model));
  for (const Option& row : table.rows()) {
    const std::vector<std::string> words = OptionWords(row);
    if (words == OptionWords(defaults.OfFlag(row.flag))) continue;
    for (const std::string& word : words) {
      text += fmt::format(" {}", row.flag);
      if (!word.empty()) text += fmt::format(" {}", ShellWord(word));
    }
  }
  return text;
}

}  // namespace castor
