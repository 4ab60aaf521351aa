// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/json_value.h"
#include "chunk/base/quote.h"
#include "chunk/base/units.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_reader.h"
#include "collectives/checkpoint/checkpoint_verify.h"
#include "tools/cli/json_out.h"
#include "tools/cli/size_text.h"
#include "tools/commands/ckpt/ckpt_list.h"

namespace castor {
namespace {

// What one checkpoint turned out to be.
struct Verdict {
  Status status;  // why it could not be read
  std::vector<CheckpointDamage> damage;
  Bytes bytes;
  bool manifest_digest = true;  // false: of a version without
  bool sound() const { return status.ok() && damage.empty(); }
};

Verdict Examine(const std::string& path) {
  Verdict verdict;
  const Result<CheckpointReader> reader = CheckpointReader::Open(path);
  verdict.status = reader.status();
  if (!reader.ok()) return verdict;
  verdict.bytes = Bytes(static_cast<int64_t>(reader->manifest().bytes()));
  verdict.manifest_digest = reader->manifest().has_digest;
  Result<std::vector<CheckpointDamage>> damage = FindDamage(*reader);
  verdict.status = damage.status();
  if (damage.ok()) verdict.damage = *std::move(damage);
  return verdict;
}

std::string DamageText(const CheckpointDamage& damage) {
  if (damage.tensor.empty()) {
    return fmt::format("{} does not hold what was saved", Quoted(damage.file));
  }
  return fmt::format("tensor {} in {} does not hold what was saved",
                     Quoted(damage.tensor), Quoted(damage.file));
}

std::string VerdictText(const FoundCheckpoint& found, const Verdict& verdict) {
  const std::string head = fmt::format("{}: ", found.path);
  if (!verdict.status.ok()) {
    return fmt::format("{}{}\n", head, verdict.status.message());
  }
  if (verdict.damage.empty()) {
    return fmt::format(
        "{}sound, {}{}\n", head, FormatSize(verdict.bytes),
        verdict.manifest_digest
            ? ""
            : fmt::format("; but {} is of an older version of Castor, without "
                          "a digest that covers what it says itself",
                          kManifestName));
  }
  std::string text;
  for (const CheckpointDamage& damage : verdict.damage) {
    text += fmt::format("{}{}\n", head, DamageText(damage));
  }
  return text;
}

JsonValue VerdictJson(const FoundCheckpoint& found, const Verdict& verdict) {
  JsonValue damage = JsonValue::Array();
  for (const CheckpointDamage& each : verdict.damage) {
    damage.Append(JsonValue::Object(
        {{"file", each.file},
         {"tensor",
          each.tensor.empty() ? JsonValue(nullptr) : JsonValue(each.tensor)}}));
  }
  return JsonValue::Object(
      {{"step", found.step},
       {"path", found.path},
       {"sound", verdict.sound()},
       {"manifest_covered", verdict.status.ok() && verdict.manifest_digest},
       {"problem", verdict.status.ok() ? JsonValue(nullptr)
                                       : JsonValue(verdict.status.message())},
       {"size_bytes", verdict.bytes.count()},
       {"damage", std::move(damage)}});
}

}  // namespace

Status RunCkptVerify(const CkptRequest& request, const Console& console) {
  CASTOR_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> found,
                          CheckpointsOf(request));
  JsonValue checkpoints = JsonValue::Array();
  Status unread;
  int64_t unsound = 0;
  for (const FoundCheckpoint& each : found) {
    const Verdict verdict = Examine(each.path);
    // What is missing or cut short is damaged like the rest.
    if (!verdict.status.ok() &&
        verdict.status.code() != ErrorCode::kMalformed) {
      unread = verdict.status;
    }
    unsound += !verdict.sound();
    if (request.json) {
      checkpoints.Append(VerdictJson(each, verdict));
    } else {
      console.out << VerdictText(each, verdict);
    }
  }
  if (request.json) {
    WriteJson(JsonValue::Object({{"schema", "castor.ckpt.verify/1"},
                                 {"sound", unsound == 0},
                                 {"checkpoints", std::move(checkpoints)}}),
              console.out);
  }
  CASTOR_RETURN_IF_ERROR(unread);
  if (unsound == 0) return OkStatus();
  return Infeasible(fmt::format(
      "{} of {} checkpoints are damaged: copy them again, or use one that is "
      "sound",
      unsound, found.size()));
}

}  // namespace castor
