// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_flags.h"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/rules/compatibility_rule.h"
#include "chunk/search_mode.h"
#include "chunk/tensor_fields.h"
#include "tools/cli/flags.h"
#include "tools/cli/rate_text.h"
#include "tools/cli/size_text.h"

namespace castor {
namespace {

constexpr int64_t kMaxWorld = 1 << 20;
constexpr int64_t kMaxAlign = int64_t{1} << 30;
constexpr int64_t kMaxClasses = 16;
constexpr int64_t kMaxPrefetchDepth = 1024;
// A gathered slot in use and one that is being released or filled; the rest are
// fetched ahead.
constexpr int64_t kSlotsWithoutPrefetch = 2;

constexpr char kFooter[] =
    R"(MODEL is a folder with .safetensors files, a config.json or a .gguf, one such
file, a *.safetensors.index.json, ORG/NAME or ORG/NAME@REVISION of a model in the
Hugging Face cache of this machine, or a list: lines name<TAB>d0,d1,...<TAB>DTYPE,
or JSON [{"name":"w","shape":[2,3],"dtype":"BF16"}]. Only headers are read, never
weights, and nothing is read online.

A PATTERN of --freeze and --only is matched with whole names: * stands for any
characters, dots too, ? for one, [a-z] for one of a set. Both may be repeated.

SIZE is 24GiB (2^30), 24GB (10^9), 1.5GiB, 512KiB or bytes.

Modes: uniform is one size from --min to --max; layer the sizes that hold one repeat
of a layer in 1 to 8 chunks; classes at most K sizes up to --max, each parameter in
the smallest that holds it.

SPEED is 24GB/s or 22GiB/s, with a comma and the latency of one transfer where it
counts: 24GB/s,10us. A castor.machine/1 file has them all.

Examples:
  castor search ./Llama-3-8B --world 8
  castor search config.json --dtype bf16 --device-budget 8GiB
  castor search model.safetensors --explain --json
  castor search config.json --h2d 24GB/s,10us --d2h 24GB/s,10us
  castor search config.json --world 8 -o layout.json
  castor search model-Q4_K_M.gguf --dtype bf16
  castor search meta-llama/Llama-3.1-8B --freeze '*embed_tokens*' --freeze 'lm_head.*'
  castor search ./lora --only '*.lora_[AB].*'
  castor search - --order file < list.tsv
)";

// Which modes --mode names.
std::vector<SearchMode> ModesOf(const std::string& mode) {
  if (mode == "uniform") return {SearchMode::kUniform};
  if (mode == "layer") return {SearchMode::kLayer};
  if (mode == "classes") return {SearchMode::kClasses};
  return {SearchMode::kUniform, SearchMode::kLayer, SearchMode::kClasses};
}

// A model is given, or the zoo and nothing that is for one model.
Status CheckModel(const SearchFlags& flags) {
  if (!flags.zoo) {
    if (!flags.model.empty()) return OkStatus();
    return InvalidArgument(
        "MODEL is missing (flags and values: castor search --help)");
  }
  if (!flags.model.empty()) {
    return InvalidArgument(
        "--zoo searches models that Castor knows; leave out MODEL");
  }
  const bool for_one_model =
      !flags.dtype.empty() || !flags.order.empty() ||
      !flags.expert_layout.empty() || flags.device_budget || flags.chunk ||
      !flags.pick.empty() || flags.explain || !flags.output.empty() ||
      !flags.rule.empty() || !flags.machine.empty() || !flags.h2d.empty() ||
      !flags.d2h.empty() || !flags.all_gather.empty() ||
      !flags.reduce_scatter.empty();
  if (!for_one_model) return OkStatus();
  return InvalidArgument(
      "--zoo takes --min, --max, --world, --align, --mode, --classes, "
      "--prefetch-depth, --json and --plain; the other flags are for one "
      "MODEL");
}

Status CheckTogether(const SearchFlags& flags) {
  CASTOR_RETURN_IF_ERROR(CheckModel(flags));
  if (flags.order == "trace") {
    return InvalidArgument(
        "--order trace needs the trace of a run, and this version reads none; "
        "use --order family, file or natural");
  }
  if (flags.json && flags.plain) {
    return InvalidArgument("--json and --plain exclude each other");
  }
  if (flags.align % 64 != 0) {
    return InvalidArgument(
        fmt::format("--align {} is not a multiple of 64 elements; try {}",
                    flags.align, (flags.align / 64 + 1) * 64));
  }
  if (flags.classes && (flags.mode == "uniform" || flags.mode == "layer")) {
    return InvalidArgument(fmt::format(
        "--classes {} is for --mode classes or all, and --mode {} has one size",
        *flags.classes, flags.mode));
  }
  if (!flags.pick.empty() && flags.chunk) {
    return InvalidArgument(
        "--pick and --chunk each say what is written and explained; give one "
        "of them");
  }
  if (!flags.pick.empty() && flags.output.empty() && !flags.explain) {
    return InvalidArgument(fmt::format(
        "--pick {} says what -o writes and --explain explains; give one of "
        "those too",
        flags.pick));
  }
  return OkStatus();
}

// "24GB/s" or "24GB/s,10us".
Result<LinkModel> ReadSpeed(const std::string& flag, const std::string& text) {
  const size_t comma = text.find(',');
  LinkModel speed;
  const auto in_flag = [&flag](const Status& status) {
    return status.WithContext(flag);
  };
  const Result<int64_t> rate = ParseBandwidth(text.substr(0, comma));
  if (!rate.ok()) return in_flag(rate.status());
  speed.bytes_per_second = *rate;
  if (comma != text.npos) {
    const Result<int64_t> latency = ParseLatency(text.substr(comma + 1));
    if (!latency.ok()) return in_flag(latency.status());
    speed.latency_ns = *latency;
  }
  return speed;
}

Status FillLink(const std::string& flag, const std::string& text,
                std::optional<LinkModel>* link) {
  if (text.empty()) return OkStatus();
  CASTOR_ASSIGN_OR_RETURN(*link, ReadSpeed(flag, text));
  return OkStatus();
}

Status FillRing(const std::string& flag, const std::string& text, int64_t world,
                std::optional<RingModel>* ring) {
  if (text.empty()) return OkStatus();
  if (world == 1) {
    return InvalidArgument(fmt::format(
        "{} {} is the speed of an exchange between ranks, and there is one "
        "rank; give --world",
        flag, text));
  }
  CASTOR_ASSIGN_OR_RETURN(const LinkModel speed, ReadSpeed(flag, text));
  *ring = RingModel{speed.bytes_per_second, speed.latency_ns};
  return OkStatus();
}

Status FillMachine(const SearchFlags& flags, SearchRequest* request) {
  request->machine_file = flags.machine;
  TierModel& declared = request->declared;
  CASTOR_RETURN_IF_ERROR(
      FillLink("--h2d", flags.h2d, &declared.host_to_device));
  CASTOR_RETURN_IF_ERROR(
      FillLink("--d2h", flags.d2h, &declared.device_to_host));
  CASTOR_RETURN_IF_ERROR(FillRing("--all-gather", flags.all_gather, flags.world,
                                  &declared.all_gather));
  return FillRing("--reduce-scatter", flags.reduce_scatter, flags.world,
                  &declared.reduce_scatter);
}

std::vector<CompatibilityRule> RulesOf(const std::string& rule) {
  if (rule == "all") {
    return {std::begin(kCompatibilityRules), std::end(kCompatibilityRules)};
  }
  return {ParseCompatibilityRule(rule).value_or(CompatibilityRule::kGemini)};
}

Status FillSearch(const SearchFlags& flags, SearchOptions* search) {
  if (flags.min) search->min_chunk = *flags.min;
  if (flags.max) search->max_chunk = *flags.max;
  if (search->min_chunk > search->max_chunk) {
    return InvalidArgument(fmt::format(
        "--min {}{} is above --max {}{}; give both",
        FormatSizeExact(search->min_chunk), flags.min ? "" : " (the default)",
        FormatSizeExact(search->max_chunk), flags.max ? "" : " (the default)"));
  }
  search->pack.world = static_cast<int>(flags.world);
  search->pack.align = Elements(flags.align);
  search->device_budget = flags.device_budget;
  search->modes = ModesOf(flags.mode);
  if (flags.classes) search->max_classes = *flags.classes;
  search->gathered_slots = flags.prefetch_depth + kSlotsWithoutPrefetch;
  return OkStatus();
}

Status FillRead(const SearchFlags& flags, ReadModelOptions* read) {
  if (!flags.dtype.empty()) {
    const Result<DType> dtype = ReadDType(flags.dtype, DTypeSpelling::kLenient);
    if (!dtype.ok()) {
      return InvalidArgument(
          fmt::format("--dtype: {}", dtype.status().message()));
    }
    read->dtype = *dtype;
  }
  read->freeze = flags.freeze;
  read->only = flags.only;
  if (flags.order == "family") read->order = ParamOrder::kFamily;
  if (flags.order == "file") read->order = ParamOrder::kFile;
  if (flags.order == "natural") read->order = ParamOrder::kNatural;
  if (flags.expert_layout == "fused") {
    read->expert_layout = ExpertLayout::kFused;
  }
  if (flags.expert_layout == "per-expert") {
    read->expert_layout = ExpertLayout::kPerExpert;
  }
  return OkStatus();
}

}  // namespace

void DeclareSearchFlags(CLI::App& app, SearchFlags* flags) {
  AddOptionalPositional(app, "MODEL", &flags->model,
                        "what to read: see below; - is a list on stdin");
  AddSwitch(app, "--zoo", &flags->zoo,
            "search public models that Castor knows, instead of MODEL");
  AddSizeFlag(app, "--min", &flags->min, "least chunk size (32MiB)");
  AddSizeFlag(app, "--max", &flags->max, "largest chunk size (512MiB)");
  AddIntFlag(app, "--world", &flags->world, 1, kMaxWorld,
             "ranks that share a chunk (1)");
  AddIntFlag(app, "--align", &flags->align, 64, kMaxAlign,
             "parameters start at multiples of N elements (64)");
  AddTextFlag(app, "--dtype", &flags->dtype,
              "type of every parameter, for example bf16 (the model's own)");
  AddChoiceFlag(app, "--mode", &flags->mode,
                {"uniform", "layer", "classes", "all"},
                "how sizes are chosen: see below (all)");
  AddIntFlag(app, "--classes", &flags->classes, 1, kMaxClasses,
             "most sizes in mode classes (3)");
  AddIntFlag(app, "--prefetch-depth", &flags->prefetch_depth, 0,
             kMaxPrefetchDepth,
             "chunks gathered ahead of use, on top of two (1)");
  AddSizeFlag(app, "--device-budget", &flags->device_budget,
              "recommend only what fits these bytes");
  AddChoiceFlag(app, "--order", &flags->order,
                {"family", "file", "natural", "trace"},
                "order of packing (family where known, else natural)");
  AddChoiceFlag(app, "--expert-layout", &flags->expert_layout,
                {"fused", "per-expert"},
                "how the trainer holds experts (both are searched)");
  AddTextListFlag(app, "--freeze", &flags->freeze,
                  "PATTERN of names that are not trained; repeatable");
  AddTextListFlag(app, "--only", &flags->only,
                  "PATTERN of names that alone are trained; repeatable");
  AddSizeFlag(app, "--chunk", &flags->chunk, "also look at this chunk size");
  AddSwitch(app, "--explain", &flags->explain,
            "say by cause and by chunk where the waste is");
  AddTextFlag(app, "-o,--output", &flags->output,
              "write the layout to this file", "FILE");
  AddChoiceFlag(app, "--pick", &flags->pick, {"recommended", "best"},
                "what to write and explain (recommended, or --chunk)");
  AddChoiceFlag(app, "--rule", &flags->rule,
                {"gemini", "patrickstar", "elixir", "all"},
                "what the rules of other systems pick");
  AddTextFlag(app, "--machine", &flags->machine,
              "speeds of this machine's links, for modelled times", "FILE");
  AddTextFlag(app, "--h2d", &flags->h2d, "host to device", "SPEED");
  AddTextFlag(app, "--d2h", &flags->d2h, "device to host", "SPEED");
  AddTextFlag(app, "--all-gather", &flags->all_gather,
              "bus bandwidth between ranks", "SPEED");
  AddTextFlag(app, "--reduce-scatter", &flags->reduce_scatter,
              "the same for gradients", "SPEED");
  AddSwitch(app, "--json", &flags->json, "print one JSON document");
  AddSwitch(app, "--plain", &flags->plain, "print tab-separated lines");
  SetHelpFooter(app, kFooter);
}

Result<SearchRequest> CheckSearchFlags(const SearchFlags& flags) {
  CASTOR_RETURN_IF_ERROR(CheckTogether(flags));
  SearchRequest request;
  request.zoo = flags.zoo;
  request.model = flags.model;
  CASTOR_RETURN_IF_ERROR(FillRead(flags, &request.read));
  CASTOR_RETURN_IF_ERROR(FillSearch(flags, &request.search));
  CASTOR_RETURN_IF_ERROR(FillMachine(flags, &request));
  request.rules = RulesOf(flags.rule);
  request.rules_asked_for = !flags.rule.empty();
  if (flags.pick == "best") request.pick = ChoicePick::kBest;
  if (flags.chunk) request.pick = ChoicePick::kChunk;
  request.chunk = flags.chunk;
  request.explain = flags.explain;
  request.output = flags.output;
  if (flags.json) request.form = SearchRequest::Form::kJson;
  if (flags.plain) request.form = SearchRequest::Form::kPlain;
  return request;
}

}  // namespace castor
