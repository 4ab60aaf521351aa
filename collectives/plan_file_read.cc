// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Reading a plan: every scalar by its place, each of which is asked for once;
// what nobody asked for is unknown.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/base/json_fields.h"
#include "chunk/base/strict_json.h"
#include "chunk/base/tier.h"
#include "collectives/internal/plan_fields.h"
#include "collectives/plan_file.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "placement/step_trace.h"

namespace castor {
namespace {

using internal::kMaxPlanCount;
using internal::ReadBytes;
using internal::ReadCount;
using internal::ReadName;
using internal::ReadState;
using internal::ReadText;
using internal::ReadTier;

constexpr int64_t kMaxWorld = 1 << 20;
constexpr int64_t kMaxDepth = 1024;
constexpr size_t kMaxListed = 4096;  // limits, and rules

const std::vector<std::string>& KeysIn(std::string_view parent) {
  static const std::vector<std::string> top = {
      "schema",         "model",
      "world",          "stage",
      "align_elements", "chunk",
      "limits",         "device_budget_bytes",
      "rules",          "host_budget_bytes",
      "nvme_bytes",     "prefetch_depth",
      "policy",         "machine",
      "shard_group",    "optimizer_span",
      "grad_mode",      "accumulation_order",
      "prefetch",       "step_compute_ns"};
  static const std::vector<std::string> model = {"name", "tensors", "elements"};
  static const std::vector<std::string> chunk = {"min_bytes", "max_bytes",
                                                 "bytes", "layout"};
  static const std::vector<std::string> limit = {"state", "tier", "bytes",
                                                 "fraction"};
  static const std::vector<std::string> rule = {
      "tier", "glob", "dtype", "least_bytes", "most_bytes", "state"};
  if (parent == "model") return model;
  if (parent == "chunk") return chunk;
  if (parent == "limits") return limit;
  if (parent == "rules") return rule;
  return top;
}

bool IsList(std::string_view key) { return key == "limits" || key == "rules"; }

class PlanHandler final : public JsonHandler {
 public:
  PlanFile Take() { return std::move(plan_); }

  Status Open(const JsonPath& path, JsonContainer container) override {
    CASTOR_RETURN_IF_ERROR(CheckKey(path));
    const bool list = path.size() == 1 && IsList(path[0].key);
    const bool object = path.empty() ||
                        (path.size() == 1 && !KeysOfObject(path).empty()) ||
                        (path.size() == 2 && IsList(path[0].key));
    const bool is_object = container == JsonContainer::kObject;
    if (is_object ? !object : !list) {
      return WrongJsonType(path, is_object ? "an object" : "an array",
                           list     ? "an array"
                           : object ? "an object"
                                    : "a string or a number");
    }
    if (path.size() < 2) return OkStatus();
    seen_.erase(path[0].key);
    if (path[1].index >= kMaxListed) {
      return Malformed(fmt::format("{} holds more than {} entries", path[0].key,
                                   kMaxListed));
    }
    limit_ = {};
    if (path[0].key == "rules") plan_.rules.emplace_back();
    return OkStatus();
  }

  Status Scalar(const JsonPath& path, const JsonScalar& scalar) override {
    CASTOR_RETURN_IF_ERROR(CheckKey(path));
    if (path.empty() ||
        (path.size() == 1 &&
         (IsList(path[0].key) || !KeysOfObject(path).empty())) ||
        !path.back().in_object) {
      return WrongJsonType(
          path, JsonScalarText(scalar),
          path.size() == 1 && IsList(path[0].key) ? "an array" : "an object");
    }
    const std::string& key = path.back().key;
    seen_[path.size() == 1 ? std::string() : path[0].key].push_back(key);
    if (path.size() == 1) return Top(path, key, scalar);
    if (path[0].key == "model") return Model(path, key, scalar);
    if (path[0].key == "chunk") return Chunk(path, key, scalar);
    if (path[0].key == "limits") return Limit(path, key, scalar);
    return Rule(path, key, scalar, plan_.rules.back());
  }

  Status Close(const JsonPath& path) override {
    if (path.empty()) return CloseDocument(path);
    if (path.size() == 1 && path[0].key == "model") {
      return Require(path, "model", {"name", "tensors", "elements"});
    }
    if (path.size() == 1 && path[0].key == "chunk") return CloseChunk(path);
    if (path.size() == 2 && path[0].key == "limits") return CloseLimit(path);
    if (path.size() == 2) return Require(path, "rules", {"tier", "glob"});
    return OkStatus();
  }

 private:
  struct OneLimit {
    std::optional<StateKind> state;
    std::optional<Tier> tier;
    std::optional<StateLimit> amount;
  };

  static const std::vector<std::string>& KeysOfObject(const JsonPath& path) {
    static const std::vector<std::string> none;
    const std::string& key = path[0].key;
    return key == "model" || key == "chunk" ? KeysIn(key) : none;
  }

  static Status CheckKey(const JsonPath& path) {
    if (path.empty() || !path.back().in_object) return OkStatus();
    return CheckKnownKey(
        path, KeysIn(path.size() == 1 ? std::string_view() : path[0].key));
  }

  bool Seen(const std::string& object, const std::string& key) const {
    const auto found = seen_.find(object);
    return found != seen_.end() &&
           std::find(found->second.begin(), found->second.end(), key) !=
               found->second.end();
  }
  Status Require(const JsonPath& path, const std::string& object,
                 const std::vector<std::string>& keys) const {
    for (const std::string& key : keys) {
      if (!Seen(object, key)) return MissingKey(path, key);
    }
    return OkStatus();
  }

  Status Top(const JsonPath& path, const std::string& key,
             const JsonScalar& scalar) {
    if (key == "schema") return CheckSchema(scalar, kPlanSchema);
    if (key == "world") {
      return ReadCount(path, scalar, 1, kMaxWorld, &plan_.world);
    }
    if (key == "stage") return ReadCount(path, scalar, 0, 3, &plan_.stage);
    if (key == "shard_group") {
      return ReadCount(path, scalar, 0, kMaxWorld, &plan_.shard_group);
    }
    if (key == "optimizer_span") {
      CASTOR_ASSIGN_OR_RETURN(const size_t span,
                              ReadName(path, scalar, {"group", "world"}));
      plan_.optimizer_span =
          span == 0 ? OptimizerSpan::kGroup : OptimizerSpan::kWorld;
      return OkStatus();
    }
    if (key == "machine") return ReadText(path, scalar, &plan_.machine);
    if (key == "prefetch_depth") {
      return ReadCount(path, scalar, 0, kMaxDepth, &plan_.prefetch_depth);
    }
    if (key == "prefetch") {
      CASTOR_ASSIGN_OR_RETURN(const size_t mode,
                              ReadName(path, scalar, {"depth", "deadlines"}));
      plan_.prefetch = static_cast<PrefetchMode>(mode);
      return OkStatus();
    }
    if (key == "step_compute_ns") {
      return ReadCount(path, scalar, 0, kMaxStepNs, &plan_.step_compute_ns);
    }
    if (key == "align_elements") {
      CASTOR_RETURN_IF_ERROR(
          ReadCount(path, scalar, 64, int64_t{1} << 30, &plan_.align));
      if (plan_.align.count() % 64 == 0) return OkStatus();
      return WrongJsonType(path, JsonScalarText(scalar), "a multiple of 64");
    }
    if (key == "device_budget_bytes") {
      return ReadBytes(path, scalar, &plan_.device_budget);
    }
    if (key == "host_budget_bytes") {
      return ReadBytes(path, scalar, &plan_.host_budget);
    }
    if (key == "nvme_bytes") {
      return ReadBytes(path, scalar, &plan_.nvme.emplace());
    }
    if (key == "grad_mode") {
      CASTOR_ASSIGN_OR_RETURN(
          const size_t mode,
          ReadName(path, scalar, {"separate", "fp32", "reuse"}));
      plan_.grad_mode = static_cast<GradMode>(mode);
      return OkStatus();
    }
    if (key == "accumulation_order") {
      CASTOR_ASSIGN_OR_RETURN(const size_t order,
                              ReadName(path, scalar, {"each", "last"}));
      plan_.accumulation = static_cast<AccumulationOrder>(order);
      return OkStatus();
    }
    CASTOR_ASSIGN_OR_RETURN(const size_t policy,
                            ReadName(path, scalar, {"auto", "planned"}));
    plan_.policy = policy == 0 ? PlanPolicy::kAuto : PlanPolicy::kPlanned;
    return OkStatus();
  }

  Status Model(const JsonPath& path, const std::string& key,
               const JsonScalar& scalar) {
    if (key == "name") return ReadText(path, scalar, &plan_.model);
    if (key == "tensors") {
      return ReadCount(path, scalar, 0, kMaxPlanCount, &plan_.tensors);
    }
    return ReadCount(path, scalar, 0, kMaxPlanCount, &plan_.elements);
  }

  Status Chunk(const JsonPath& path, const std::string& key,
               const JsonScalar& scalar) {
    if (key == "layout") {
      CASTOR_RETURN_IF_ERROR(ReadText(path, scalar, &plan_.layout));
      return plan_.layout.empty() ? WrongJsonType(path, "empty", "a file")
                                  : OkStatus();
    }
    if (key == "bytes") {
      return ReadCount(path, scalar, 1, kMaxPlanCount,
                       &plan_.chunk_size.emplace());
    }
    return ReadCount(path, scalar, 1, kMaxPlanCount,
                     key == "min_bytes" ? &plan_.min_chunk : &plan_.max_chunk);
  }

  Status CloseChunk(const JsonPath& path) const {
    const bool searched =
        Seen("chunk", "min_bytes") || Seen("chunk", "max_bytes");
    const int ways = int{searched} + int{Seen("chunk", "bytes")} +
                     int{Seen("chunk", "layout")};
    if (ways != 1) {
      return Malformed(fmt::format(
          "{} says {}: give min_bytes and max_bytes, or bytes, or layout",
          JsonPathText(path),
          ways == 0 ? "nothing of a size" : "more than one size"));
    }
    if (!searched) return OkStatus();
    CASTOR_RETURN_IF_ERROR(Require(path, "chunk", {"min_bytes", "max_bytes"}));
    if (plan_.min_chunk <= plan_.max_chunk) return OkStatus();
    return Malformed(fmt::format(
        "{} has a min_bytes of {} above its max_bytes "
        "of {}",
        JsonPathText(path), plan_.min_chunk.count(), plan_.max_chunk.count()));
  }

  Status Limit(const JsonPath& path, const std::string& key,
               const JsonScalar& scalar) {
    if (key == "state") {
      CASTOR_ASSIGN_OR_RETURN(limit_.state, ReadState(path, scalar));
      return OkStatus();
    }
    if (key == "tier") {
      CASTOR_ASSIGN_OR_RETURN(limit_.tier, ReadTier(path, scalar));
      return OkStatus();
    }
    if (key == "bytes") {
      Bytes bytes;
      CASTOR_RETURN_IF_ERROR(ReadBytes(path, scalar, &bytes));
      limit_.amount = bytes;
      return OkStatus();
    }
    double fraction = scalar.kind == JsonKind::kUnsigned
                          ? static_cast<double>(scalar.number)
                          : scalar.real;
    const bool number =
        scalar.kind == JsonKind::kUnsigned || scalar.kind == JsonKind::kReal;
    if (!number || !(fraction >= 0 && fraction <= 1)) {
      return WrongJsonType(path, JsonScalarText(scalar),
                           "a number from 0 to 1");
    }
    limit_.amount = fraction;
    return OkStatus();
  }

  Status CloseLimit(const JsonPath& path) {
    CASTOR_RETURN_IF_ERROR(Require(path, "limits", {"state", "tier"}));
    if (Seen("limits", "bytes") == Seen("limits", "fraction")) {
      return Malformed(fmt::format("{} needs either bytes or a fraction",
                                   JsonPathText(path)));
    }
    std::optional<StateLimit>& place =
        plan_.limits[static_cast<size_t>(*limit_.state)].on(*limit_.tier);
    if (place) {
      return Malformed(
          fmt::format("{} is given a limit twice: {} on {}", JsonPathText(path),
                      StateKindName(*limit_.state), TierName(*limit_.tier)));
    }
    place = limit_.amount;
    return OkStatus();
  }

  static Status Rule(const JsonPath& path, const std::string& key,
                     const JsonScalar& scalar, PlacementRule& rule) {
    if (key == "glob") return ReadText(path, scalar, &rule.glob);
    if (key == "least_bytes") return ReadBytes(path, scalar, &rule.least);
    if (key == "most_bytes") {
      return ReadBytes(path, scalar, &rule.most.emplace());
    }
    if (key == "tier") {
      CASTOR_ASSIGN_OR_RETURN(rule.tier, ReadTier(path, scalar));
      return OkStatus();
    }
    if (key == "state") {
      CASTOR_ASSIGN_OR_RETURN(rule.state, ReadState(path, scalar));
      return OkStatus();
    }
    std::string name;
    CASTOR_RETURN_IF_ERROR(ReadText(path, scalar, &name));
    rule.dtype = ParseDType(name);
    if (rule.dtype) return OkStatus();
    return WrongJsonType(path, JsonScalarText(scalar), "a type such as BF16");
  }

  Status CloseDocument(const JsonPath& path) const {
    CASTOR_RETURN_IF_ERROR(
        Require(path, "",
                {"schema", "world", "stage", "align_elements",
                 "device_budget_bytes", "host_budget_bytes", "prefetch_depth",
                 "policy", "grad_mode", "accumulation_order"}));
    for (const char* const object : {"model", "chunk"}) {
      if (!seen_.contains(object)) return MissingKey(path, object);
    }
    return OkStatus();
  }

  PlanFile plan_;
  // Keys of each object; of lists, of the entry being read.
  std::map<std::string, std::vector<std::string>> seen_;
  OneLimit limit_;
};

}  // namespace

Result<PlanFile> ParsePlan(std::string_view text) {
  if (text.size() > kMaxPlanBytes) {
    return Malformed(fmt::format("it has {} bytes, and a plan at most {}",
                                 text.size(), kMaxPlanBytes));
  }
  PlanHandler handler;
  CASTOR_RETURN_IF_ERROR(ReadStrictJson(text, handler));
  return handler.Take();
}

}  // namespace castor
