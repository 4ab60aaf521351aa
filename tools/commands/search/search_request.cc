// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_request.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "chunk/base/dtype.h"
#include "chunk/search_mode.h"
#include "chunk/tensor_fields.h"
#include "tools/cli/rate_text.h"
#include "tools/cli/size_text.h"
#include "tools/rules/compatibility_rule.h"

namespace castor {
namespace {

// A gathered slot in use and one that is being released or filled; the rest are
// fetched ahead.
constexpr int64_t kSlotsWithoutPrefetch = 2;

// Which modes --mode names.
std::vector<SearchMode> ModesOf(const std::string& mode) {
  if (mode == "uniform") return {SearchMode::kUniform};
  if (mode == "layer") return {SearchMode::kLayer};
  return {SearchMode::kUniform, SearchMode::kLayer};
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
      !flags.dtype.empty() || !flags.order.empty() || !flags.trace.empty() ||
      !flags.expert_layout.empty() || flags.device_budget || flags.chunk ||
      !flags.pick.empty() || flags.explain || !flags.output.empty() ||
      !flags.rule.empty() || !flags.machine.empty() || !flags.h2d.empty() ||
      !flags.d2h.empty() || !flags.all_gather.empty() ||
      !flags.reduce_scatter.empty();
  if (!for_one_model) return OkStatus();
  return InvalidArgument(
      "--zoo takes --min, --max, --world, --align, --mode, "
      "--prefetch-depth, --json and --plain; the other flags are for one "
      "MODEL");
}

Status CheckTogether(const SearchFlags& flags) {
  CASTOR_RETURN_IF_ERROR(CheckModel(flags));
  if ((flags.order == "trace") != !flags.trace.empty()) {
    return InvalidArgument(
        flags.trace.empty()
            ? "--order trace needs the trace of a step: give --trace FILE, as "
              "train_gpt --trace FILE records it"
            : "--trace is for --order trace: give both or neither");
  }
  if (flags.trace == "-" && flags.model == "-") {
    return InvalidArgument(
        "MODEL and --trace cannot both be the standard input: give one of them "
        "as a file");
  }
  if (flags.json && flags.plain) {
    return InvalidArgument("--json and --plain exclude each other");
  }
  if (flags.align % 64 != 0) {
    return InvalidArgument(
        fmt::format("--align {} is not a multiple of 64 elements; try {}",
                    flags.align, (flags.align / 64 + 1) * 64));
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
  if (search->min_chunk == Bytes(0)) {
    return InvalidArgument(
        "--min 0B: a chunk of 0 bytes holds nothing; give 1KiB or more, or "
        "leave it away for 32MiB");
  }
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
  if (flags.order == "trace") read->order = ParamOrder::kTrace;
  read->trace_file = flags.trace;
  if (flags.expert_layout == "fused") {
    read->expert_layout = ExpertLayout::kFused;
  }
  if (flags.expert_layout == "per-expert") {
    read->expert_layout = ExpertLayout::kPerExpert;
  }
  return OkStatus();
}

}  // namespace

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
