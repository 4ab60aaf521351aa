// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "chunk/base/json_value.h"
#include "chunk/base/quote.h"
#include "collectives/checkpoint/checkpoint_folder.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_reader.h"
#include "collectives/checkpoint/weight_files.h"
#include "collectives/lr_schedule.h"
#include "offload/kernels/optimizer_options.h"

namespace castor::gpt {
namespace {

constexpr std::string_view kSchema = "castor.train_gpt/1";

// Of checkpoints, in a sentence.
constexpr size_t kMostNames = 8;

// Whether the run may begin anew: it saves where it looks, and nothing is
// there.
bool MayBegin(const TrainOptions& options) {
  if (options.save != options.resume) return false;
  std::error_code error;
  if (!std::filesystem::exists(options.resume, error)) return !error;
  const Result<std::vector<FoundCheckpoint>> found =
      ListCheckpoints(options.resume);
  return found.ok() && found->empty();
}

// A whole number from 0 to 2^63 - 1.
std::optional<int64_t> CountIn(const JsonValue& document, const char* key) {
  if (!document.contains(key) || !document[key].is_int64()) return {};
  const int64_t count = document[key].integer();
  if (count < 0) return {};
  return count;
}

std::string DataNote(const DataPosition& saved, const DataPosition& now) {
  const auto text = [](const DataPosition& at) {
    return fmt::format("--ranks {} --accumulate {} --batch {} --seq {}",
                       at.ranks, at.accumulate, at.batch, at.seq);
  };
  std::string before = text(saved);
  std::string after = text(now);
  if (before == after) before = after = "";
  if (saved.text && now.text && saved.text != now.text) {
    const std::string_view gap = before.empty() ? "" : " ";
    before += fmt::format("{}--text {}", gap, Quoted(*saved.text));
    after += fmt::format("{}--text {}", gap, Quoted(*now.text));
  }
  if (before == after) return "";
  return fmt::format(
      "it was trained with {} and goes on with {}: the steps to come take "
      "other sequences than they would have",
      before, after);
}

// Weights have the same shapes for any number of heads.
std::string ModelNote(const DataPosition& saved, const DataPosition& now) {
  if (!saved.heads || !now.heads || saved.heads == now.heads) return "";
  return fmt::format(
      "it was trained with --heads {} and goes on with --heads {}: its weights "
      "are taken for another model's",
      *saved.heads, *now.heads);
}

// The numbers of a rule, by what users call them.
constexpr std::pair<const char*, double UpdateRule::*> kReals[] = {
    {"--lr", &UpdateRule::lr},
    {"learning_rate.floor", &UpdateRule::lr_floor},
    {"--clip", &UpdateRule::clip_norm},
    {"--weight-decay", &UpdateRule::weight_decay},
    {"optimizer.beta1", &UpdateRule::beta1},
    {"optimizer.beta2", &UpdateRule::beta2}};

// Only what differs.
std::string RuleNote(const UpdateRule& saved, const UpdateRule& now) {
  std::string before;
  std::string after;
  const auto compare = [&](std::string_view name, const auto& was,
                           const auto& is) {
    if (was == is) return;
    before += fmt::format(" {} {}", name, was);
    after += fmt::format(" {} {}", name, is);
  };
  compare("--schedule", saved.schedule, now.schedule);
  compare("--warmup", saved.warmup, now.warmup);
  // A rate that does not fall has no last step.
  const std::string_view constant = LrShapeName(LrShape::kConstant);
  if (saved.schedule != constant || now.schedule != constant) {
    compare("--steps", saved.steps, now.steps);
  }
  for (const auto& [name, member] : kReals) {
    compare(name, saved.*member, now.*member);
  }
  if (before.empty()) return "";
  return fmt::format(
      "it was trained with{} and goes on with{}: the updates to come are "
      "others than they would have been",
      before, after);
}

UpdateRule RuleOf(const TrainOptions& options) {
  const LrSchedule schedule = ScheduleOf(options);
  const OptimizerOptions& optimizer = options.engine.optimizer;
  return {.schedule = std::string(LrShapeName(schedule.shape)),
          .lr = schedule.peak,
          .lr_floor = schedule.floor,
          .warmup = schedule.warmup,
          .steps = schedule.steps,
          .clip_norm = options.engine.clip_norm,
          .weight_decay = optimizer.weight_decay,
          .beta1 = optimizer.beta1,
          .beta2 = optimizer.beta2};
}

JsonValue RuleJson(const UpdateRule& rule) {
  return JsonValue::Object({{"schedule", rule.schedule},
                            {"lr", rule.lr},
                            {"lr_floor", rule.lr_floor},
                            {"warmup", rule.warmup},
                            {"steps", rule.steps},
                            {"clip_norm", rule.clip_norm},
                            {"weight_decay", rule.weight_decay},
                            {"beta1", rule.beta1},
                            {"beta2", rule.beta2}});
}

// Nothing where it is none.
std::optional<UpdateRule> RuleIn(const JsonValue& json) {
  if (!json.is_object() || !json.contains("schedule")) return {};
  UpdateRule rule;
  for (const LrShape shape : kLrShapes) {
    if (json["schedule"] == JsonValue(LrShapeName(shape))) {
      rule.schedule = LrShapeName(shape);
    }
  }
  if (rule.schedule.empty()) return {};
  const std::pair<const char*, double*> reals[] = {
      {"lr", &rule.lr},
      {"lr_floor", &rule.lr_floor},
      {"clip_norm", &rule.clip_norm},
      {"weight_decay", &rule.weight_decay},
      {"beta1", &rule.beta1},
      {"beta2", &rule.beta2}};
  for (const auto& [key, value] : reals) {
    if (!json.contains(key) || !json[key].is_number()) return {};
    *value = json[key].real();
  }
  const std::optional<int64_t> warmup = CountIn(json, "warmup");
  const std::optional<int64_t> steps = CountIn(json, "steps");
  if (!warmup || !steps) return {};
  rule.warmup = *warmup;
  rule.steps = *steps;
  return rule;
}

}  // namespace

DataPosition PositionOf(const TrainOptions& options) {
  return {options.seed,  options.ranks,         options.accumulate,
          options.batch, options.model.context, options.model.heads,
          options.text,  RuleOf(options)};
}

std::string WritePosition(const DataPosition& position) {
  JsonValue json = JsonValue::Object({{"schema", kSchema},
                                      {"seed", position.seed},
                                      {"ranks", position.ranks},
                                      {"accumulate", position.accumulate},
                                      {"batch", position.batch},
                                      {"seq", position.seq}});
  if (position.heads) json["heads"] = *position.heads;
  if (position.text) json["text"] = *position.text;
  if (position.rule) json["rule"] = RuleJson(*position.rule);
  return json.Dump();
}

Result<DataPosition> ParsePosition(std::string_view text) {
  const Result<JsonValue> parsed = ParseJson(text);
  const auto bad = [](std::string_view why) {
    return Malformed(fmt::format(
        "what its trainer saved is not of this program: {}; give a checkpoint "
        "that train_gpt saved",
        why));
  };
  if (!parsed.ok()) return bad(parsed.status().message());
  const JsonValue& document = *parsed;
  if (!document.is_object() || !document.contains("schema") ||
      !(document["schema"] == JsonValue(kSchema))) {
    return bad(fmt::format("it has no schema {}", kSchema));
  }
  DataPosition position;
  const std::pair<const char*, int64_t*> counts[] = {
      {"ranks", &position.ranks},
      {"accumulate", &position.accumulate},
      {"batch", &position.batch},
      {"seq", &position.seq}};
  for (const auto& [key, value] : counts) {
    const std::optional<int64_t> count = CountIn(document, key);
    if (!count) return bad(fmt::format("{} is no whole number", key));
    *value = *count;
  }
  const std::optional<int64_t> seed = CountIn(document, "seed");
  if (!seed) return bad("seed is no whole number");
  position.seed = static_cast<uint64_t>(*seed);
  if (document.contains("heads")) {
    position.heads = CountIn(document, "heads");
    if (!position.heads) return bad("heads is no whole number");
  }
  if (document.contains("text")) {
    if (!document["text"].Dump().starts_with('"')) {
      return bad("text is not the name of one");
    }
    position.text = document["text"].text();
  }
  if (document.contains("rule")) {
    position.rule = RuleIn(document["rule"]);
    if (!position.rule) return bad("rule has other members than it should");
  }
  return position;
}

std::string NoteOf(const DataPosition& saved, const DataPosition& now) {
  std::string notes;
  for (const std::string& note :
       {DataNote(saved, now), ModelNote(saved, now),
        saved.rule && now.rule ? RuleNote(*saved.rule, *now.rule) : ""}) {
    if (note.empty()) continue;
    notes += notes.empty() ? note : "; " + note;
  }
  return notes;
}

Status TakeCheckpoint(bool seed_given, TrainOptions* options) {
  if (MayBegin(*options)) {
    options->resume.clear();
    return OkStatus();
  }
  const std::string asked = options->resume;
  CASTOR_ASSIGN_OR_RETURN(options->resume, FindCheckpoint(asked, std::nullopt));
  CASTOR_ASSIGN_OR_RETURN(
      const CheckpointReader reader,
      CheckpointReader::Find(options->resume, std::nullopt));
  const Result<std::string> text = reader.ReadTrainer();
  if (!text.ok()) return NameOlderCheckpoint(text.status(), options->resume);
  const Result<DataPosition> position = ParsePosition(*text);
  const std::string where = QuotedPath(options->resume);
  if (!position.ok()) return position.status().WithContext(where);
  if (seed_given && options->seed != position->seed) {
    return InvalidArgument(
        fmt::format("{} was trained with --seed {}, not {}: leave --seed away, "
                    "its own is taken",
                    where, position->seed, options->seed));
  }
  const int64_t step = reader.manifest().step;
  if (step > options->steps) {
    return InvalidArgument(fmt::format(
        "{} has made {} steps already, and the run ends after {}: give --steps "
        "more, or an older checkpoint",
        where, step, options->steps));
  }
  options->seed = position->seed;
  options->first_step = step + 1;
  options->resume_note = NoteOf(*position, PositionOf(*options));
  return OkStatus();
}

Status TakeInitialWeights(TrainOptions* options) {
  if (!options->resume.empty()) {
    options->init.clear();
    return OkStatus();
  }
  const Result<std::string> checkpoint =
      FindCheckpoint(options->init, std::nullopt);
  std::string found =
      FindWeightFiles(checkpoint.ok() ? *checkpoint : options->init);
  if (found.empty()) {
    return InvalidArgument(fmt::format(
        "--init: {} is nothing to begin with: name a checkpoint, a "
        ".safetensors "
        "file, an index of several, or a folder with model.safetensors",
        QuotedPath(options->init)));
  }
  options->init = std::move(found);
  return OkStatus();
}

Status CheckSaveFolder(const TrainOptions& options) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(options.save, error)) return OkStatus();
  CASTOR_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> found,
                          ListCheckpoints(options.save));
  const bool goes_on_there =
      !options.resume.empty() &&
      fs::equivalent(fs::canonical(options.resume, error).parent_path(),
                     options.save, error);
  // Where no step is left, the one that it goes on from is saved again.
  const int64_t first =
      goes_on_there ? options.first_step : options.first_step - 1;
  // A run that is stopped saves after any of its steps.
  for (fs::directory_iterator entry(options.save, error), end;
       !error && entry != end; entry.increment(error)) {
    const std::optional<int64_t> step =
        StepOfCheckpointName(entry->path().filename().string());
    if (step && *step >= first && *step <= options.steps) {
      CASTOR_RETURN_IF_ERROR(
          CheckMayReplace(options.save, *step).WithContext("--save"));
    }
  }
  std::vector<std::string> names;
  for (const FoundCheckpoint& each : found) {
    if (each.step >= first || (options.keep > 0 && !goes_on_there)) {
      names.push_back(CheckpointName(each.step));
    }
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
