// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/text/json_value.h"
#include "chunk/text/quote.h"
#include "collectives/checkpoint/checkpoint_folder.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_reader.h"
#include "collectives/checkpoint/files/weight_files.h"
#include "collectives/lr_schedule.h"
#include "tools/examples/gpt/ranks/rank_group.h"

namespace castor::gpt {
namespace {

namespace fs = std::filesystem;

using Rows = std::vector<std::pair<std::string, std::string>>;

constexpr std::string_view kSchema = "castor.train_gpt/1";

// Of checkpoints, in a sentence.
constexpr size_t kMostNames = 8;

// All that decides which updates are to come, by the names that users know.
Rows Told(const TrainOptions& options) {
  const ZeroOptions& engine = options.engine;
  const auto text = [](const auto& value) { return fmt::format("{}", value); };
  Rows told = {{"--text", Quoted(options.text)},
               {"--heads", text(options.model.heads)},
               {"--ranks", text(options.ranks)},
               {"--accumulate", text(options.accumulate)},
               {"--batch", text(options.batch)},
               {"--seq", text(options.model.context)},
               {"--schedule", std::string(LrShapeName(options.schedule))},
               {"--warmup", text(options.warmup)},
               {"--lr", text(options.lr)},
               {"learning_rate.floor", text(options.lr_floor)},
               {"--clip", text(engine.clip_norm)},
               {"--weight-decay", text(engine.optimizer.weight_decay)},
               {"optimizer.beta1", text(engine.optimizer.beta1)},
               {"optimizer.beta2", text(engine.optimizer.beta2)}};
  // A rate that does not fall has no last step.
  if (options.schedule != LrShape::kConstant) {
    told.emplace_back("--steps", text(options.steps));
  }
  return told;
}

Result<JsonValue> ParseTold(std::string_view text) {
  Result<JsonValue> told = ParseJson(text);
  if (told.ok() && told->is_object() && told->contains("schema") &&
      (*told)["schema"] == JsonValue(kSchema) && told->contains("seed") &&
      (*told)["seed"].is_int64()) {
    return told;
  }
  return Status(Malformed(fmt::format(
      "what its trainer saved is not of this program: it has no schema {} or "
      "no seed; give a checkpoint that train_gpt saved",
      kSchema)));
}

std::string HowOtherwise(const JsonValue& saved, const TrainOptions& options) {
  // Checkpoints of older versions do not tell.
  if (!saved.contains("told") || !saved["told"].is_object()) return "";
  std::string before;
  std::string after;
  for (const auto& [name, value] : Told(options)) {
    if (!saved["told"].contains(name)) continue;
    const JsonValue& was = saved["told"][name];
    if (was == JsonValue(value)) continue;
    before += fmt::format(" {} {}", name, was.text());
    after += fmt::format(" {} {}", name, value);
  }
  if (before.empty()) return "";
  return fmt::format(
      "it was trained with{} and goes on with{}: the steps to come are others "
      "than they would have been",
      before, after);
}

// Whether the run may begin anew: it saves where it looks, and nothing is
// there.
bool MayBegin(const TrainOptions& options) {
  if (options.save != options.resume) return false;
  std::error_code error;
  if (!fs::exists(options.resume, error)) return !error;
  const Result<std::vector<FoundCheckpoint>> found =
      ListCheckpoints(options.resume);
  return found.ok() && found->empty();
}

}  // namespace

Status CheckToldAlike(Communicator& ranks, const TrainOptions& options,
                      const TextData& data) {
  if (ranks.world() == 1) return OkStatus();
  Rows told = Told(options);
  // Paths may differ where machines do.
  std::erase_if(told, [](const auto& row) { return row.first == "--text"; });
  const auto add = [&](const char* name, const auto& value) {
    told.emplace_back(name, fmt::format("{}", value));
  };
  add("--steps", options.steps);
  add("--seed", options.seed);
  add("the text",
      fmt::format("{} bytes, digest {:016x}", data.size(), data.digest()));
  add("--digest-at", options.digest_step.value_or(0));
  add("--stop-on-nan", options.stop_on_nan);
  add("--save", options.save);
  add("--save-every", options.save_every);
  add("--save-async", options.save_async);
  add("--keep", options.keep);
  add("the step that --resume goes on after", options.first_step - 1);
  add("--init", options.init.empty() ? "not given" : "given");
  std::array<uint64_t, 32> mine = {};
  CASTOR_CHECK_LE(told.size(), mine.size());
  std::ranges::transform(told, mine.begin(), [](const auto& row) {
    const std::string text = row.first + ' ' + row.second;
    return XXH3_64bits(text.data(), text.size());
  });
  CASTOR_ASSIGN_OR_RETURN(const auto all, Exchange(ranks, mine));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    for (size_t i = 0; i < told.size(); ++i) {
      if (all[rank][i] == all[0][i]) continue;
      return InvalidArgument(fmt::format(
          "{} differs between rank 0 and rank {} (here, on rank {}, it is {}): "
          "start all ranks alike",
          told[i].first, rank, ranks.rank(), told[i].second));
    }
  }
  return OkStatus();
}

std::string WriteTold(const TrainOptions& options) {
  JsonValue told = JsonValue::Object();
  for (const auto& [name, value] : Told(options)) told[name] = value;
  return JsonValue::Object(
             {{"schema", kSchema}, {"seed", options.seed}, {"told", told}})
      .Dump();
}

Result<std::string> ToldOtherwise(std::string_view told,
                                  const TrainOptions& options) {
  CASTOR_ASSIGN_OR_RETURN(const JsonValue saved, ParseTold(told));
  return HowOtherwise(saved, options);
}

Status TakeCheckpoint(bool seed_given, TrainOptions* options) {
  if (MayBegin(*options)) {
    options->resume.clear();
    return OkStatus();
  }
  CASTOR_ASSIGN_OR_RETURN(options->resume,
                          FindCheckpoint(options->resume, std::nullopt));
  CASTOR_ASSIGN_OR_RETURN(
      const CheckpointReader reader,
      CheckpointReader::Find(options->resume, std::nullopt));
  const Result<std::string> text = reader.ReadTrainer();
  if (!text.ok()) return NameOlderCheckpoint(text.status(), options->resume);
  const std::string where = QuotedPath(options->resume);
  const Result<JsonValue> told = ParseTold(*text);
  if (!told.ok()) return told.status().WithContext(where);
  const auto seed = static_cast<uint64_t>((*told)["seed"].integer());
  if (seed_given && options->seed != seed) {
    return InvalidArgument(
        fmt::format("{} was trained with --seed {}, not {}: leave --seed away, "
                    "its own is taken",
                    where, seed, options->seed));
  }
  const int64_t step = reader.manifest().step;
  if (step > options->steps) {
    return InvalidArgument(fmt::format(
        "{} has made {} steps already, and the run ends after {}: give --steps "
        "more, or an older checkpoint",
        where, step, options->steps));
  }
  options->seed = seed;
  options->first_step = step + 1;
  options->resume_note = HowOtherwise(*told, *options);
  return OkStatus();
}

Status TakeInitialWeights(TrainOptions* options) {
  if (!options->resume.empty()) {
    options->init.clear();
    return OkStatus();
  }
  const Result<std::string> checkpoint =
      FindCheckpoint(options->init, std::nullopt);
  // A checkpoint's digests are verified, as those of --resume are.
  std::string found =
      checkpoint.ok() ? *checkpoint : FindWeightFiles(options->init);
  if (found.empty()) {
    return InvalidArgument(
        fmt::format("--init: {} is nothing to begin with: name a checkpoint, a "
                    ".safetensors file, an index of several, or a folder with "
                    "model.safetensors",
                    QuotedPath(options->init)));
  }
  options->init = std::move(found);
  return OkStatus();
}

Status CheckSaveFolder(const TrainOptions& options) {
  std::error_code error;
  if (!fs::is_directory(options.save, error)) return OkStatus();
  CASTOR_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> found,
                          ListCheckpoints(options.save));
  const bool goes_on_there =
      !options.resume.empty() &&
      fs::equivalent(fs::canonical(options.resume, error).parent_path(),
                     options.save, error);
  const int64_t others = goes_on_there ? options.first_step : 0;
  // A run that is stopped saves after any of its steps.
  for (fs::directory_iterator entry(options.save, error), end;
       !error && entry != end; entry.increment(error)) {
    const std::optional<int64_t> step =
        StepOfCheckpointName(entry->path().filename().string());
    if (step && *step >= others) {
      CASTOR_RETURN_IF_ERROR(
          CheckMayReplace(options.save, *step).WithContext("--save"));
    }
  }
  std::vector<std::string> names;
  for (const FoundCheckpoint& each : found) {
    if (each.step >= others) names.push_back(CheckpointName(each.step));
  }
  if (names.empty()) return OkStatus();
  const size_t more = names.size() - std::min(names.size(), kMostNames);
  names.resize(names.size() - more);
  return InvalidArgument(fmt::format(
      "--save {} holds checkpoints that are not of this run, which goes on "
      "after step {}: {}{}; resume from the latest of them, give --save "
      "another folder, or remove them",
      QuotedPath(options.save), options.first_step - 1, fmt::join(names, ", "),
      more > 0 ? fmt::format(" and {} more", more) : ""));
}

}  // namespace castor::gpt
