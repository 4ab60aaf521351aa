// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/answers/search_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

#include "chunk/search/chunk_bounds.h"
#include "chunk/text/quantity_text.h"
#include "chunk/text/units_text.h"

namespace castor {
namespace {

// A gathered slot in use and one that is being released or filled; the rest are
// fetched ahead.
constexpr int64_t kSlotsWithoutPrefetch = 2;

constexpr int64_t kMaxWorld = 1 << 20;
constexpr int64_t kMaxAlign = int64_t{1} << 30;
constexpr int64_t kMaxPrefetchDepth = 1024;

std::string Spelled(std::string_view key, OptionSpelling spelling) {
  if (spelling == OptionSpelling::kKey) return std::string(key);
  std::string flag = "--" + std::string(key);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

// "24GB/s" or "24GB/s,10us", of a link or of a ring.
template <typename Model>
Status TakeSpeed(const std::string& name, const std::string& text,
                 std::optional<Model>* model) {
  if (text.empty()) return OkStatus();
  const size_t comma = text.find(',');
  const Result<int64_t> rate = ParseBandwidth(
      text.substr(0, comma), kMinBytesPerSecond, kMaxBytesPerSecond);
  if (!rate.ok()) return rate.status().WithContext(name);
  const Result<int64_t> latency =
      comma == text.npos ? 0 : ParseTime(text.substr(comma + 1), kMaxLatencyNs);
  if (!latency.ok()) return latency.status().WithContext(name);
  *model = Model{*rate, *latency};
  return OkStatus();
}

Status TakeSpeeds(const SearchWords& words, OptionSpelling spelling,
                  TierModel* speeds) {
  const auto spelled = [&](const char* key) { return Spelled(key, spelling); };
  CASTOR_RETURN_IF_ERROR(
      TakeSpeed(spelled("h2d"), words.h2d, &speeds->host_to_device));
  CASTOR_RETURN_IF_ERROR(
      TakeSpeed(spelled("d2h"), words.d2h, &speeds->device_to_host));
  for (const auto& [key, text, ring] :
       {std::tuple("all_gather", &words.all_gather, &speeds->all_gather),
        std::tuple("reduce_scatter", &words.reduce_scatter,
                   &speeds->reduce_scatter)}) {
    if (words.search.pack.world == 1 && !text->empty()) {
      return InvalidArgument(fmt::format(
          "{} {} is the speed of an exchange between ranks, and there is one "
          "rank; give {}",
          spelled(key), *text, spelled("world")));
    }
    CASTOR_RETURN_IF_ERROR(TakeSpeed(spelled(key), *text, ring));
  }
  return OkStatus();
}

Status CheckBounds(const SearchWords& words, OptionSpelling spelling) {
  for (const auto& [key, size] :
       {std::pair("min", words.min), std::pair("max", words.max)}) {
    if (size != Bytes(0)) continue;
    return InvalidArgument(fmt::format(
        "{} 0B: a chunk of 0 bytes holds nothing; give 1KiB or more, or leave "
        "it away for a bound that suits the model",
        Spelled(key, spelling)));
  }
  if (!words.min || !words.max || *words.min <= *words.max) return OkStatus();
  return InvalidArgument(
      fmt::format("{} {} is above {} {}", Spelled("min", spelling),
                  FormatSizeExact(*words.min), Spelled("max", spelling),
                  FormatSizeExact(*words.max)));
}

}  // namespace

OptionTable SearchRows(SearchWords* words) {
  SearchOptions* const search = &words->search;
  OptionTable t;
  t.Size("min", &words->min)
      .Flag("--min", "least chunk size (half of the largest, at most 32MiB)");
  t.Size("max", &words->max)
      .Flag("--max",
            "largest chunk size (640MiB, or a sixteenth of the model)");
  t.Whole("world", &search->pack.world, 1, kMaxWorld)
      .Flag("--world", "ranks that share a chunk (1)");
  t.Whole("align", &search->pack.align, 64, kMaxAlign)
      .Flag("--align", "parameters start at multiples of N elements (64)");
  t.Choice("mode", &words->mode, {"uniform", "layer", "all"})
      .Flag("--mode", "how sizes are chosen: see below (all)");
  t.Whole("prefetch", &words->prefetch, 0, kMaxPrefetchDepth)
      .Flag("--prefetch", "chunks gathered ahead of use, on top of two (1)");
  t.Size("device_budget", &search->device_budget)
      .Flag("--device-budget", "recommend only what fits these bytes");
  t.Choice("rule", &words->rule, {"gemini"})
      .Flag("--rule", "say what the rule of ColossalAI's Gemini picks");
  for (const auto& [key, flag, text, help] :
       {std::tuple("h2d", "--h2d", &words->h2d, "host to device"),
        std::tuple("d2h", "--d2h", &words->d2h, "device to host"),
        std::tuple("all_gather", "--all-gather", &words->all_gather,
                   "bus bandwidth between ranks"),
        std::tuple("reduce_scatter", "--reduce-scatter", &words->reduce_scatter,
                   "the same for gradients")}) {
    t.Text(key, text).Form("SPEED").Flag(flag, help);
  }
  return t;
}

SearchOptions SearchOf(const SearchQuestion& question,
                       std::span<const ParamSpec> params) {
  SearchOptions search = question.search;
  const ChunkBounds bounds =
      ChunkBoundsFor(ModelBytes(params), std::nullopt, search.pack.world,
                     question.min, question.max)
          .front();
  search.min_chunk = bounds.least;
  search.max_chunk = bounds.most;
  // As an engine that shards optimizer states over all ranks.
  search.pack.shards = search.pack.world;
  return search;
}

Result<SearchQuestion> CheckSearchWords(const SearchWords& words,
                                        OptionSpelling spelling) {
  const int64_t align = words.search.pack.align.count();
  if (align % 64 != 0) {
    return InvalidArgument(
        fmt::format("{} {} is not a multiple of 64 elements; try {}",
                    Spelled("align", spelling), align, (align / 64 + 1) * 64));
  }
  CASTOR_RETURN_IF_ERROR(CheckBounds(words, spelling));
  SearchQuestion question;
  question.min = words.min;
  question.max = words.max;
  question.search = words.search;
  CASTOR_RETURN_IF_ERROR(TakeSpeeds(words, spelling, &question.declared));
  question.search.modes = {SearchMode::kUniform, SearchMode::kLayer};
  if (words.mode == "uniform") question.search.modes = {SearchMode::kUniform};
  if (words.mode == "layer") question.search.modes = {SearchMode::kLayer};
  question.search.gathered_slots = words.prefetch + kSlotsWithoutPrefetch;
  return question;
}

Result<SearchQuestion> ReadSearchQuestion(std::string_view json) {
  SearchWords words;
  const Result<std::vector<std::string>> said =
      ReadOptions(json, SearchRows(&words));
  // Of the caller's own, as a flag is.
  if (!said.ok()) return InvalidArgument(std::string(said.status().message()));
  return CheckSearchWords(words, OptionSpelling::kKey);
}

}  // namespace castor
