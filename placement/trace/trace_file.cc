// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/trace/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/text/json_fields.h"
#include "chunk/text/strict_json.h"
#include "placement/trace/trace_access_names.h"

namespace castor {
namespace {

constexpr int64_t kMostRanks = int64_t{1} << 20;
constexpr int64_t kMostParts = (int64_t{1} << 31) - 2;

using Keys = std::vector<std::string>;

const Keys& RootKeys() {
  static const Keys keys = {"schema",        "rank",          "world",
                            "chunks",        "moments",       "params",
                            "evaluations",   "shard_group",   "optimizer_span",
                            "missing_grads", "updates_early", "lease_ends"};
  return keys;
}
constexpr std::string_view kSpanGroup = "group";
constexpr std::string_view kSpanWorld = "world";
constexpr size_t kRootsNeeded = 5;  // of these, the first

const Keys& ChunkKeys() {
  static const Keys keys = {"class", "gathered_bytes", "shard_bytes",
                            "trainable", "dtype"};
  return keys;
}
constexpr size_t kChunkFieldsNeeded = 4;  // of these, the first

const Keys& MomentKeys() {
  static const Keys keys = {
      "moment",     "access",         "chunk", "leased_bytes",
      "compute_ns", "lease_gap_bytes"};  // of earlier versions, ignored
  return keys;
}

const Keys& EvaluationKeys() {
  static const Keys keys = {"evaluation", "before", "access", "chunk",
                            "compute_ns"};
  return keys;
}
constexpr size_t kEvaluationsNeeded = 4;  // of these, the first

const Keys& MissingGradKeys() {
  static const Keys keys = {"chunk", "param"};
  return keys;
}
constexpr size_t kMissingGradNeeded = 1;  // of these, the first

const Keys& LeaseEndKeys() {
  static const Keys keys = {"use", "before"};
  return keys;
}

// Depth 1 is a number or a section, 2 an element of it, 3 a field of that; the
// elements of "params" are names.
class TraceHandler final : public JsonHandler {
 public:
  TraceFile Take() { return std::move(file_); }

  Status Open(const JsonPath& path, JsonContainer container) override {
    CASTOR_RETURN_IF_ERROR(CheckKey(path));
    const bool object = container == JsonContainer::kObject;
    const std::string_view belongs = Belongs(path);
    if (belongs != (object ? "an object" : "an array")) {
      return WrongJsonType(path, object ? "an object" : "an array", belongs);
    }
    if (path.size() == 1) See(path[0].key, RootKeys(), root_seen_);
    if (path.size() == 2) return Begin(path);
    return OkStatus();
  }

  Status Scalar(const JsonPath& path, const JsonScalar& scalar) override {
    CASTOR_RETURN_IF_ERROR(CheckKey(path));
    const std::string_view belongs = Belongs(path);
    if (belongs == "an object" || belongs == "an array") {
      return WrongJsonType(path, JsonScalarText(scalar), belongs);
    }
    if (path.size() == 1) {
      See(path[0].key, RootKeys(), root_seen_);
      return TakeRoot(path, scalar);
    }
    if (path.size() == 2) return TakeName(path, scalar);
    See(path[2].key, FieldsOf(path), fields_seen_);
    if (IsChunk(path)) return TakeChunkField(path, scalar);
    if (IsMissingGrad(path)) return TakeMissingGradField(path, scalar);
    if (IsLeaseEnd(path)) return TakeLeaseEndField(path, scalar);
    return IsEvaluation(path) ? TakeEvaluationField(path, scalar)
                              : TakeMomentField(path, scalar);
  }

  Status Close(const JsonPath& path) override {
    if (path.empty()) {
      return CheckSeen(path, std::span(RootKeys()).first(kRootsNeeded),
                       root_seen_);
    }
    if (path.size() != 2 || IsParam(path)) return OkStatus();
    if (IsChunk(path)) {
      return CheckSeen(path, std::span(ChunkKeys()).first(kChunkFieldsNeeded),
                       fields_seen_);
    }
    if (IsMissingGrad(path)) {
      return CheckSeen(path,
                       std::span(MissingGradKeys()).first(kMissingGradNeeded),
                       fields_seen_);
    }
    if (IsLeaseEnd(path)) {
      return CheckSeen(path, LeaseEndKeys(), fields_seen_);
    }
    return IsEvaluation(path) ? EndEvaluationAccess(path) : EndMoment(path);
  }

 private:
  static bool IsChunk(const JsonPath& path) { return path[0].key == "chunks"; }
  static bool IsParam(const JsonPath& path) { return path[0].key == "params"; }
  static bool IsEvaluation(const JsonPath& path) {
    return path[0].key == "evaluations";
  }
  static bool IsMissingGrad(const JsonPath& path) {
    return path[0].key == "missing_grads";
  }
  static bool IsLeaseEnd(const JsonPath& path) {
    return path[0].key == "lease_ends";
  }
  static bool IsSection(const JsonPath& path) {
    return IsChunk(path) || IsParam(path) || IsEvaluation(path) ||
           IsMissingGrad(path) || IsLeaseEnd(path) || path[0].key == "moments";
  }
  static const Keys& FieldsOf(const JsonPath& path) {
    if (IsEvaluation(path)) return EvaluationKeys();
    if (IsMissingGrad(path)) return MissingGradKeys();
    if (IsLeaseEnd(path)) return LeaseEndKeys();
    return IsChunk(path) ? ChunkKeys() : MomentKeys();
  }

  static std::string_view Belongs(const JsonPath& path) {
    switch (path.size()) {
      case 0:
        return "an object";
      case 2:
        return IsParam(path) ? "a string" : "an object";
      case 1:
        return IsSection(path) ? "an array" : "a string or a number";
      default:
        return "a plain value";
    }
  }

  static Status CheckKey(const JsonPath& path) {
    if (path.size() == 1) return CheckKnownKey(path, RootKeys());
    if (path.size() == 3) return CheckKnownKey(path, FieldsOf(path));
    return OkStatus();
  }

  static void See(const std::string& key, const Keys& keys, uint32_t& seen) {
    seen |= uint32_t{1} << (std::find(keys.begin(), keys.end(), key) -
                            keys.begin());
  }

  static Status CheckSeen(const JsonPath& path, std::span<const std::string> of,
                          uint32_t seen) {
    for (size_t i = 0; i < of.size(); ++i) {
      if ((seen >> i & 1) == 0) return MissingKey(path, of[i]);
    }
    return OkStatus();
  }

  Status Begin(const JsonPath& path) {
    if (path[1].index >= static_cast<size_t>(kMostParts)) {
      return Malformed(fmt::format("{} is one too many", JsonPathText(path)));
    }
    fields_seen_ = 0;
    if (IsChunk(path)) {
      file_.chunks.emplace_back();
    } else if (IsEvaluation(path)) {
      evaluated_ = EvaluationAccess();
      compute_ns_.reset();
    } else if (IsMissingGrad(path)) {
      file_.step.missing_grads.emplace_back();
    } else if (IsLeaseEnd(path)) {
      file_.step.lease_ends.emplace_back();
    } else {
      file_.step.accesses.emplace_back();
      leased_.reset();
      compute_ns_.reset();
    }
    return OkStatus();
  }

  Status EndMoment(const JsonPath& path) {
    // The first three must be there.
    CASTOR_RETURN_IF_ERROR(
        CheckSeen(path, std::span(MomentKeys()).first(3), fields_seen_));
    StepTrace& step = file_.step;
    if (leased_) {
      // Where gaps alone changed, the bytes on lease did not.
      const Bytes before =
          step.leases.empty() ? Bytes(0) : step.leases.back().bytes;
      if (!has_gaps_ || Bytes(*leased_) != before) {
        step.leases.push_back(
            {static_cast<int32_t>(path[1].index), Bytes(*leased_)});
      }
    }
    if (compute_ns_) step.compute_ns.push_back(*compute_ns_);
    const bool first = path[1].index == 0;
    if (!first && compute_ns_.has_value() != times_) {
      return Malformed(fmt::format(
          "{} {} compute_ns, unlike the moments before it: it stands in every "
          "moment or in none",
          JsonPathText(path), times_ ? "has no" : "has a"));
    }
    times_ = compute_ns_.has_value();
    return OkStatus();
  }

  // An access of the pass before, or the first of the next one.
  Status EndEvaluationAccess(const JsonPath& path) {
    CASTOR_RETURN_IF_ERROR(
        CheckSeen(path, std::span(EvaluationKeys()).first(kEvaluationsNeeded),
                  fields_seen_));
    std::vector<EvaluationPass>& passes = file_.step.evaluations;
    const auto next = static_cast<int32_t>(passes.size());
    const bool begins = evaluated_.evaluation == next;
    if (!begins && evaluated_.evaluation != next - 1) {
      return Malformed(fmt::format(
          "{} is of evaluation {} behind {} others: they are numbered from 0, "
          "in order",
          JsonPathText(path), evaluated_.evaluation, next));
    }
    if (begins) passes.push_back({evaluated_.before, {}, {}});
    EvaluationPass& pass = passes.back();
    if (pass.moment != evaluated_.before) {
      return Malformed(fmt::format(
          "{} is before moment {}, and its evaluation before moment {}",
          JsonPathText(path), evaluated_.before, pass.moment));
    }
    if (!begins && compute_ns_.has_value() == pass.compute_ns.empty()) {
      return Malformed(fmt::format(
          "{} {} compute_ns, unlike those before it: it stands in every access "
          "of an evaluation or in none",
          JsonPathText(path), compute_ns_ ? "has a" : "has no"));
    }
    pass.accesses.push_back(evaluated_.access);
    if (compute_ns_) pass.compute_ns.push_back(*compute_ns_);
    return OkStatus();
  }

  Status TakeEvaluationField(const JsonPath& path, const JsonScalar& scalar) {
    const std::string& key = path[2].key;
    if (key == "access") {
      return TakeAccess(path, scalar, &evaluated_.access.kind);
    }
    if (key == "compute_ns") {
      CASTOR_ASSIGN_OR_RETURN(compute_ns_,
                              ReadJsonCount(path, scalar, 0, kMaxStepNs));
      return OkStatus();
    }
    if (key == "chunk") {
      return TakeChunkId(path, scalar, &evaluated_.access.chunk);
    }
    return TakeInt(
        path, scalar, 0, kMostParts,
        key == "before" ? &evaluated_.before : &evaluated_.evaluation);
  }

  Status TakeMissingGradField(const JsonPath& path, const JsonScalar& scalar) {
    MissingGrad& missing = file_.step.missing_grads.back();
    if (path[2].key == "chunk") {
      return TakeChunkId(path, scalar, &missing.chunk);
    }
    if (scalar.kind != JsonKind::kString || scalar.text.empty()) {
      return WrongJsonType(path, JsonScalarText(scalar), "a parameter's name");
    }
    missing.param = scalar.text;
    return OkStatus();
  }

  Status TakeLeaseEndField(const JsonPath& path, const JsonScalar& scalar) {
    LeaseEnd& end = file_.step.lease_ends.back();
    return TakeInt(path, scalar, 0, kMostParts,
                   path[2].key == "use" ? &end.use : &end.before);
  }

  Status TakeRoot(const JsonPath& path, const JsonScalar& scalar) {
    const std::string& key = path[0].key;
    if (key == "schema") return CheckSchema(scalar, kTraceSchema);
    if (key == "optimizer_span") return TakeSpan(path, scalar);
    if (key == "updates_early") {
      CASTOR_ASSIGN_OR_RETURN(file_.step.updates_early,
                              ReadJsonBool(path, scalar));
      return OkStatus();
    }
    if (key == "shard_group") {
      return TakeInt(path, scalar, 1, kMostRanks, &file_.shard_group);
    }
    const bool rank = key == "rank";
    return TakeInt(path, scalar, rank ? 0 : 1, kMostRanks,
                   rank ? &file_.rank : &file_.world);
  }

  Status TakeSpan(const JsonPath& path, const JsonScalar& scalar) {
    file_.spans_world = scalar.text == kSpanWorld;
    if (scalar.kind == JsonKind::kString &&
        (file_.spans_world || scalar.text == kSpanGroup)) {
      return OkStatus();
    }
    return WrongJsonType(path, JsonScalarText(scalar), "one of group, world");
  }

  Status TakeName(const JsonPath& path, const JsonScalar& scalar) {
    if (scalar.kind != JsonKind::kString) {
      return WrongJsonType(path, JsonScalarText(scalar), "a string");
    }
    file_.params.emplace_back(scalar.text);
    return OkStatus();
  }

  Status TakeChunkField(const JsonPath& path, const JsonScalar& scalar) {
    TraceChunk& chunk = file_.chunks.back();
    const std::string& key = path[2].key;
    if (key == "class") {
      return TakeInt(path, scalar, 0, static_cast<int64_t>(path[1].index),
                     &chunk.slot_class);
    }
    if (key == "trainable") {
      CASTOR_ASSIGN_OR_RETURN(chunk.trainable, ReadJsonBool(path, scalar));
      return OkStatus();
    }
    if (key == "dtype") {
      if (scalar.kind == JsonKind::kString)
        chunk.dtype = ParseDType(scalar.text);
      return chunk.dtype ? OkStatus()
                         : WrongJsonType(path, JsonScalarText(scalar),
                                         "a type such as BF16");
    }
    CASTOR_ASSIGN_OR_RETURN(
        const int64_t bytes,
        ReadJsonCount(path, scalar, 0, kMaxTraceChunk.count()));
    (key == "gathered_bytes" ? chunk.gathered : chunk.shard) = Bytes(bytes);
    return OkStatus();
  }

  Status TakeMomentField(const JsonPath& path, const JsonScalar& scalar) {
    Access& access = file_.step.accesses.back();
    const std::string& key = path[2].key;
    if (key == "access") return TakeAccess(path, scalar, &access.kind);
    if (key == "chunk") return TakeChunkId(path, scalar, &access.chunk);
    if (key == "moment") {
      // Its own place, so that a line lost is a line missed.
      const auto place = static_cast<int64_t>(path[1].index);
      return ReadJsonCount(path, scalar, place, place).status();
    }
    if (key == "compute_ns") {
      CASTOR_ASSIGN_OR_RETURN(compute_ns_,
                              ReadJsonCount(path, scalar, 0, kMaxStepNs));
      return OkStatus();
    }
    CASTOR_ASSIGN_OR_RETURN(const int64_t bytes,
                            ReadJsonCount(path, scalar, 0, kMaxLeased.count()));
    if (key == "leased_bytes") {
      leased_ = bytes;
    } else {
      has_gaps_ = true;
    }
    return OkStatus();
  }

  static Status TakeInt(const JsonPath& path, const JsonScalar& scalar,
                        int64_t least, int64_t most, int32_t* out) {
    CASTOR_ASSIGN_OR_RETURN(const int64_t number,
                            ReadJsonCount(path, scalar, least, most));
    *out = static_cast<int32_t>(number);
    return OkStatus();
  }

  static Status TakeChunkId(const JsonPath& path, const JsonScalar& scalar,
                            ChunkId* out) {
    int32_t chunk = 0;
    CASTOR_RETURN_IF_ERROR(TakeInt(path, scalar, 0, kMostParts, &chunk));
    *out = ChunkId(chunk);
    return OkStatus();
  }

  static Status TakeAccess(const JsonPath& path, const JsonScalar& scalar,
                           AccessKind* out) {
    const auto& keys = internal::kAccessKeys;
    const auto at = scalar.kind == JsonKind::kString
                        ? std::find(keys.begin(), keys.end(), scalar.text)
                        : keys.end();
    if (at == keys.end()) {
      return WrongJsonType(path, JsonScalarText(scalar),
                           "one of use, use_end, grad_open, grad_close");
    }
    *out = static_cast<AccessKind>(at - keys.begin());
    return OkStatus();
  }

  struct EvaluationAccess {
    int32_t evaluation = 0;
    int32_t before = 0;
    Access access;
  };

  TraceFile file_;
  uint32_t root_seen_ = 0;    // by index into RootKeys()
  uint32_t fields_seen_ = 0;  // of the element being read
  EvaluationAccess evaluated_;
  // Of the moment, or the access of an evaluation, that is read.
  std::optional<int64_t> leased_;
  std::optional<int64_t> compute_ns_;
  bool times_ = false;     // the moment before it had a compute time
  bool has_gaps_ = false;  // a moment so far had lease_gap_bytes
};

}  // namespace

Result<TraceFile> ParseTrace(std::string_view text) {
  if (text.size() > kMaxTraceBytes) {
    return Malformed(fmt::format("it has {} bytes, and a trace at most {}",
                                 text.size(), kMaxTraceBytes));
  }
  TraceHandler handler;
  CASTOR_RETURN_IF_ERROR(ReadStrictJson(text, handler));
  TraceFile file = handler.Take();
  if (file.rank >= file.world) {
    return Malformed(
        fmt::format("its rank is {} of {}: ranks are numbered from 0",
                    file.rank, file.world));
  }
  if (file.shard_group > 0 && file.world % file.shard_group != 0) {
    return Malformed(
        fmt::format("its {} ranks cannot be cut into shard groups of {}",
                    file.world, file.shard_group));
  }
  CASTOR_RETURN_IF_ERROR(CheckTraceTypes(file.chunks));
  CASTOR_RETURN_IF_ERROR(CheckTraceParams(file.params));
  if (Status step = ValidateStep(file.step, file.chunks.size()); !step.ok()) {
    return Malformed(std::string(step.message()));
  }
  return file;
}

}  // namespace castor
