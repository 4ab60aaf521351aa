// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/plan/plan_flags.h"

#include <fmt/format.h>

#include <string_view>

#include "placement/plan.h"
#include "tools/cli/flags.h"
#include "tools/cli/placement_flags.h"
#include "tools/cli/prefetch_flag.h"
#include "tools/cli/size_text.h"
#include "tools/cli/text_forms.h"

namespace castor {
namespace {

constexpr int64_t kMaxWorld = 1 << 20;
constexpr int64_t kMaxAlign = int64_t{1} << 30;
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

void DeclareModelFlags(CLI::App& app, PlanFlags* flags) {
  AddPositional(app, "MODEL", &flags->model,
                "what to read: see below; - is a list on stdin");
  AddTextFlag(app, "--dtype", &flags->dtype,
              "type of every parameter, f32, bf16 or f16 (the model's own)");
  AddChoiceFlag(app, "--order", &flags->order, {"family", "file", "natural"},
                "order of packing (family where known, else natural)");
  AddChoiceFlag(app, "--expert-layout", &flags->expert_layout,
                {"fused", "per-expert"}, "how the trainer holds experts");
  AddTextListFlag(app, "--freeze", &flags->freeze,
                  "PATTERN of names that are not trained; repeatable");
  AddTextListFlag(app, "--only", &flags->only,
                  "PATTERN of names that alone are trained; repeatable");
}

void DeclareTrainingFlags(CLI::App& app, PlanFlags* flags) {
  AddIntFlag(app, "--world", &flags->world, 1, kMaxWorld,
             "ranks that share the model (1)");
  AddIntFlag(app, "--stage", &flags->stage, 0, 3, "of ZeRO (3)");
  AddIntFlag(app, "--shard-group", &flags->shard_group, 1, kMaxWorld,
             "ranks that share one set of shards; other groups keep copies "
             "(all ranks)");
  AddChoiceFlag(app, "--optimizer-span", &flags->optimizer_span,
                {"group", "world"},
                "optimizer states are cut among the ranks of a group, or among "
                "all (group)");
  AddSizeFlag(app, "--chunk", &flags->chunk,
              "chunk size (what the search recommends)");
  AddSizeFlag(app, "--min", &flags->min, "least chunk size searched (32MiB)");
  AddSizeFlag(
      app, "--max", &flags->max,
      "largest chunk size searched (512MiB, or an eighth of the device budget "
      "if that is less, but no less than --min's 32MiB or, of a small model, a "
      "64th of it)");
  AddIntFlag(app, "--align", &flags->align, 64, kMaxAlign,
             "parameters start at multiples of N elements (64)");
  AddTextFlag(app, "--layout", &flags->layout,
              "file of castor search -o, instead of a chunk size", "FILE");
  AddChoiceFlag(app, "--optimizer", &flags->optimizer,
                {"adamw", "adam", "sgd", "lion"},
                "whose states to hold (adamw)");
  AddChoiceFlag(app, "--moments", &flags->moments, {"f32", "bf16"},
                "what moments are kept in (f32)");
  AddRealFlag(app, "--momentum", &flags->momentum, 0, 1,
              "of sgd, which keeps a moment for it (0)");
  AddRealFlag(app, "--clip", &flags->clip, 0, 1e30,
              "largest global norm of the gradient; 0: none (1)");
  AddChoiceFlag(app, "--grad-mode", &flags->grad_mode,
                {"separate", "fp32", "reuse"},
                "gradients are of the parameters' type, or fp32, or take the "
                "place of parameters (separate)");
  AddChoiceFlag(app, "--accumulation-order", &flags->accumulation_order,
                {"each", "last"},
                "every micro-batch's gradients are reduced, or they are added "
                "up, whole, and reduced once (each)");
  AddTextFlag(app, "--prefetch", &flags->prefetch, kPrefetchFlagHelp,
              "N|deadlines");
  AddChoiceFlag(app, "--policy", &flags->policy, {"auto", "planned"},
                "who decides which copies stay (auto)");
  AddTextListFlag(app, "--limit", &flags->limit, kLimitFlagHelp);
  AddTextListFlag(app, "--place", &flags->place, kPlaceFlagHelp);
}

void DeclareBudgetFlags(CLI::App& app, PlanFlags* flags) {
  AddSizeFlag(app, "--device-budget", &flags->device_budget,
              "device bytes of a rank (no limit)");
  AddSizeFlag(app, "--host-budget", &flags->host_budget,
              "pinned host bytes of a rank (0)");
  AddSizeFlag(app, "--nvme", &flags->nvme,
              "bytes of a rank on NVMe (there is none)");
  AddSizeFlag(app, "--cuda-context", &flags->cuda_context,
              "device bytes of a CUDA context, as nvidia-smi shows them (0)");
  AddSizeFlag(app, "--nccl", &flags->nccl,
              "device bytes of NCCL's buffers (0)");
}

void DeclareStepFlags(CLI::App& app, PlanFlags* flags) {
  AddIntFlag(app, "--batch", &flags->batch, 1, kMaxSize,
             "sequences of a rank's micro-batch (1)");
  AddIntFlag(app, "--seq", &flags->seq, 1, kMaxSize,
             "tokens of a sequence: activations are counted by formula");
  AddIntFlag(app, "--micro-batches", &flags->micro_batches, 1, kMaxBatches,
             "of a step (1)");
  AddChoiceFlag(app, "--batch-order", &flags->batch_order,
                {"batch-major", "layer-major"},
                "a micro-batch goes through the model before the next one, or "
                "all go through a layer (batch-major)");
  AddSwitch(app, "--recompute", &flags->recompute,
            "layers keep their input and compute the rest again");
  AddChoiceFlag(app, "--hold", &flags->hold, {"block", "module"},
                "what the trainer acquires at a time (module)");
  AddIntFlag(app, "--width", &flags->width, 1, kMaxSize,
             "hidden size (config.json's)");
  AddIntFlag(app, "--heads", &flags->heads, 1, kMaxSize,
             "attention heads (config.json's)");
  AddIntFlag(app, "--vocab", &flags->vocab, 1, kMaxSize,
             "vocabulary (config.json's)");
  AddIntFlag(app, "--mlp-width", &flags->mlp_width, 1, kMaxSize,
             "inner width of the MLP (config.json's)");
  AddChoiceFlag(app, "--attention", &flags->attention, {"flash", "scores"},
                "whether attention keeps its scores (flash: it does not)");
  AddSwitch(app, "--dropout", &flags->dropout, "dropout's masks are kept");
  AddSwitch(app, "--borrow-activations", &flags->borrow,
            "activations are borrowed from Castor's pool, not beside it");
  AddTextFlag(app, "--trace", &flags->trace,
              "recorded step, instead of one derived from the model", "FILE");
}

class Words {
 public:
  void Text(std::string_view flag, const std::string& value) {
    if (!value.empty()) Add(flag, ShellWord(value));
  }
  void List(std::string_view flag, const std::vector<std::string>& values) {
    for (const std::string& value : values) Text(flag, value);
  }
  void Size(std::string_view flag, const std::optional<Bytes>& value) {
    if (value) Add(flag, FormatSizeExact(*value));
  }
  void Int(std::string_view flag, const std::optional<int64_t>& value) {
    if (value) Add(flag, fmt::format("{}", *value));
  }
  template <typename Number>
  void Unless(std::string_view flag, Number value, Number usual) {
    if (value != usual) Add(flag, fmt::format("{}", value));
  }
  void Switch(std::string_view flag, bool value) {
    if (value) text_ += fmt::format(" {}", flag);
  }
  void Add(std::string_view flag, std::string_view value) {
    text_ += fmt::format(" {} {}", flag, value);
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

void DeclarePlannedFlags(CLI::App& app, PlanFlags* flags) {
  DeclareModelFlags(app, flags);
  DeclareTrainingFlags(app, flags);
  DeclareBudgetFlags(app, flags);
  DeclareStepFlags(app, flags);
  AddTextFlag(app, "--machine", &flags->machine,
              "speeds of this machine's links, for times", "FILE");
  AddTextFlag(app, "--compute", &flags->compute,
              "how long a rank computes in a step, for example 850ms", "TIME");
  AddIntFlag(app, "--ranks-per-host", &flags->ranks_per_host, 1, kMaxWorld,
             "ranks that share a host's drives and cores (1)");
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
  const PlanFlags usual;
  Words words;
  words.Text("--dtype", flags.dtype);
  words.Text("--order", flags.order);
  words.Text("--expert-layout", flags.expert_layout);
  words.List("--freeze", flags.freeze);
  words.List("--only", flags.only);
  words.Unless("--world", flags.world, usual.world);
  words.Unless("--stage", flags.stage, usual.stage);
  words.Int("--shard-group", flags.shard_group);
  words.Text("--optimizer-span", flags.optimizer_span);
  words.Size("--chunk", flags.chunk);
  words.Size("--min", flags.min);
  words.Size("--max", flags.max);
  words.Unless("--align", flags.align, usual.align);
  words.Text("--layout", flags.layout);
  words.Text("--optimizer", flags.optimizer);
  words.Text("--moments", flags.moments);
  words.Unless("--momentum", flags.momentum, usual.momentum);
  words.Unless("--clip", flags.clip, usual.clip);
  words.Text("--grad-mode", flags.grad_mode);
  words.Text("--accumulation-order", flags.accumulation_order);
  words.Text("--prefetch", flags.prefetch.value_or(""));
  words.Text("--policy", flags.policy);
  words.List("--limit", flags.limit);
  words.List("--place", flags.place);
  words.Size("--device-budget", flags.device_budget);
  words.Size("--host-budget", flags.host_budget);
  words.Size("--nvme", flags.nvme);
  if (flags.cuda_context > Bytes(0)) {
    words.Size("--cuda-context", flags.cuda_context);
  }
  if (flags.nccl > Bytes(0)) words.Size("--nccl", flags.nccl);
  words.Int("--batch", flags.batch);
  words.Int("--seq", flags.seq);
  words.Unless("--micro-batches", flags.micro_batches, usual.micro_batches);
  words.Text("--batch-order", flags.batch_order);
  words.Switch("--recompute", flags.recompute);
  words.Text("--hold", flags.hold);
  words.Int("--width", flags.width);
  words.Int("--heads", flags.heads);
  words.Int("--vocab", flags.vocab);
  words.Int("--mlp-width", flags.mlp_width);
  words.Text("--attention", flags.attention);
  words.Switch("--dropout", flags.dropout);
  words.Switch("--borrow-activations", flags.borrow);
  words.Text("--trace", flags.trace);
  words.Text("--machine", flags.machine);
  words.Text("--compute", flags.compute);
  words.Unless("--ranks-per-host", flags.ranks_per_host, usual.ranks_per_host);
  return fmt::format("castor plan {}{}", ShellWord(flags.model), words.Take());
}

}  // namespace castor
