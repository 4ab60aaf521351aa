// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/units.h"
#include "chunk/text/json_value.h"
#include "chunk/text/quote.h"
#include "chunk/text/units_text.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_reader.h"
#include "collectives/checkpoint/checkpoint_verify.h"
#include "tools/commands/ckpt/ckpt.h"

namespace castor {
namespace {

// What one checkpoint turned out to be.
struct Verdict {
  Status status;  // why it could not be read
  std::vector<CheckpointDamage> damage;
  Bytes bytes;
  bool manifest_digest = true;  // false: of a version without
  bool undamaged() const { return status.ok() && damage.empty(); }
  bool sound() const { return undamaged() && manifest_digest; }
  // Data as its manifest says, which nothing proves to be what was saved: any
  // manifest can be given an older version's label.
  bool unproved() const { return undamaged() && !manifest_digest; }
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
    if (verdict.sound()) {
      return fmt::format("{}sound, {}\n", head, FormatSize(verdict.bytes));
    }
    return fmt::format(
        "{}unproved, {}: the data is what {} says, and nothing covers what {} "
        "says: it is of an older version of Castor, or made to look so\n",
        head, FormatSize(verdict.bytes), kManifestName, kManifestName);
  }
  std::string text;
  for (const CheckpointDamage& damage : verdict.damage) {
    text += fmt::format("{}{}\n", head, DamageText(damage));
  }
  return text;
}

JsonValue VerdictJson(const FoundCheckpoint& found, const Verdict& verdict) {
  const Status& status = verdict.status;
  return Fields(
      {{"step", found.step},
       {"path", found.path},
       {"sound", verdict.sound()},
       {"unproved", verdict.unproved()},
       {"manifest_covered", status.ok() && verdict.manifest_digest},
       {"problem", status.ok() ? Value() : Value(status.message())},
       {"size_bytes", verdict.bytes},
       {"damage", ListOf(verdict.damage, [](const CheckpointDamage& each) {
          return Fields(
              {{"file", each.file},
               {"tensor", each.tensor.empty() ? Value() : Value(each.tensor)}});
        })}});
}

}  // namespace

Status RunCkptVerify(const CkptRequest& request, const Console& console) {
  CASTOR_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> found,
                          CheckpointsOf(request));
  Document document("castor.ckpt.verify/1");
  JsonValue checkpoints = JsonValue::Array();
  Status unread;
  int64_t damaged = 0;
  int64_t unproved = 0;
  for (const FoundCheckpoint& each : found) {
    const Verdict verdict = Examine(each.path);
    // What is missing or cut short is damaged like the rest.
    if (!verdict.status.ok() &&
        verdict.status.code() != ErrorCode::kMalformed) {
      unread = verdict.status;
    }
    damaged += !verdict.undamaged();
    unproved += verdict.unproved();
    checkpoints.Append(VerdictJson(each, verdict));
    document.Text(VerdictText(each, verdict));
  }
  document.Set("sound", damaged + unproved == 0);
  document.Set("checkpoints", std::move(checkpoints));
  Print(document, request.form, console);
  CASTOR_RETURN_IF_ERROR(unread);
  if (damaged > 0) {
    return Infeasible(fmt::format(
        "{} of {} checkpoints are damaged: copy them again, or use one that is "
        "sound",
        damaged, found.size()));
  }
  if (unproved == 0) return OkStatus();
  return Infeasible(fmt::format(
      "{} of {} checkpoints are unproved: resume from one that you trust, and "
      "what is saved then has the digest that proves it",
      unproved, found.size()));
}

}  // namespace castor
