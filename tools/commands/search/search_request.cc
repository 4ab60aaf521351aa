// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_request.h"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>
#include <tuple>

#include "chunk/base/dtype.h"
#include "chunk/base/quantity_text.h"
#include "chunk/base/units_text.h"
#include "chunk/search_result.h"
#include "chunk/tensor_fields.h"
#include "tools/rules/compatibility_rule.h"

namespace castor {
namespace {

// A gathered slot in use and one that is being released or filled; the rest are
// fetched ahead.
constexpr int64_t kSlotsWithoutPrefetch = 2;

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
      !flags.expert_layout.empty() || !flags.freeze.empty() ||
      !flags.only.empty() || flags.device_budget || flags.chunk ||
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

// "24GB/s" or "24GB/s,10us", of a link or of a ring.
template <typename Model>
Status TakeSpeed(const char* flag, const std::string& text,
                 std::optional<Model>* model) {
  if (text.empty()) return OkStatus();
  const size_t comma = text.find(',');
  const Result<int64_t> rate =
      ParseBandwidth(text.substr(0, comma), kMaxBytesPerSecond);
  if (!rate.ok()) return rate.status().WithContext(flag);
  const Result<int64_t> latency =
      comma == text.npos ? 0 : ParseTime(text.substr(comma + 1), kMaxLatencyNs);
  if (!latency.ok()) return latency.status().WithContext(flag);
  *model = Model{*rate, *latency};
  return OkStatus();
}

Status TakeMachine(const SearchFlags& flags, SearchRequest* request) {
  request->machine_file = flags.machine;
  TierModel& speeds = request->declared;
  CASTOR_RETURN_IF_ERROR(TakeSpeed("--h2d", flags.h2d, &speeds.host_to_device));
  CASTOR_RETURN_IF_ERROR(TakeSpeed("--d2h", flags.d2h, &speeds.device_to_host));
  for (const auto& [flag, text, ring] :
       {std::tuple("--all-gather", &flags.all_gather, &speeds.all_gather),
        std::tuple("--reduce-scatter", &flags.reduce_scatter,
                   &speeds.reduce_scatter)}) {
    if (flags.world == 1 && !text->empty()) {
      return InvalidArgument(fmt::format(
          "{} {} is the speed of an exchange between ranks, and there is one "
          "rank; give --world",
          flag, *text));
    }
    CASTOR_RETURN_IF_ERROR(TakeSpeed(flag, *text, ring));
  }
  return OkStatus();
}

Status TakeSearch(const SearchFlags& flags, SearchOptions* search) {
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
  search->modes = {SearchMode::kUniform, SearchMode::kLayer};
  if (flags.mode == "uniform") search->modes = {SearchMode::kUniform};
  if (flags.mode == "layer") search->modes = {SearchMode::kLayer};
  search->gathered_slots = flags.prefetch_depth + kSlotsWithoutPrefetch;
  return OkStatus();
}

Status TakeRead(const SearchFlags& flags, ReadModelOptions* read) {
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
  for (const ParamOrder order : {ParamOrder::kFamily, ParamOrder::kFile,
                                 ParamOrder::kNatural, ParamOrder::kTrace}) {
    if (flags.order == ParamOrderName(order)) read->order = order;
  }
  read->trace_file = flags.trace;
  for (const ExpertLayout layout :
       {ExpertLayout::kFused, ExpertLayout::kPerExpert}) {
    if (flags.expert_layout == ExpertLayoutName(layout)) {
      read->expert_layout = layout;
    }
  }
  return OkStatus();
}

}  // namespace

Result<SearchRequest> CheckSearchFlags(const SearchFlags& flags) {
  CASTOR_RETURN_IF_ERROR(CheckTogether(flags));
  SearchRequest request;
  CASTOR_ASSIGN_OR_RETURN(request.form, FormOf(flags.json, flags.plain));
  CASTOR_RETURN_IF_ERROR(TakeRead(flags, &request.read));
  CASTOR_RETURN_IF_ERROR(TakeSearch(flags, &request.search));
  CASTOR_RETURN_IF_ERROR(TakeMachine(flags, &request));
  request.zoo = flags.zoo;
  request.model = flags.model;
  if (flags.rule == "all") {
    request.rules.assign(std::begin(kCompatibilityRules),
                         std::end(kCompatibilityRules));
  } else {
    request.rules = {ParseCompatibilityRule(flags.rule)
                         .value_or(CompatibilityRule::kGemini)};
  }
  request.rules_asked_for = !flags.rule.empty();
  if (flags.pick == "best") request.pick = ChoicePick::kBest;
  if (flags.chunk) request.pick = ChoicePick::kChunk;
  request.chunk = flags.chunk;
  request.explain = flags.explain;
  request.output = flags.output;
  return request;
}

}  // namespace castor
