// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Where states are to live: limits and rules.

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "chunk/base/dtype.h"
#include "chunk/base/tier.h"
#include "collectives/internal/config_fields.h"
#include "collectives/internal/plan_fields.h"
#include "collectives/zero_config_parts.h"
#include "placement/placement_rules.h"
#include "placement/run_event.h"
#include "placement/static_policy.h"

namespace castor::internal {
namespace {

// As it comes: the keys of an object have no order.
struct OneLimit {
  std::optional<StateKind> state;
  std::optional<Tier> tier;
  std::optional<Bytes> bytes;
  std::optional<double> fraction;
};

Status TakeLimit(const JsonPath& path, const OneLimit& one,
                 StaticLimits& limits) {
  if (!one.state) return MissingKey(path, "state");
  if (!one.tier) return MissingKey(path, "tier");
  if (one.bytes.has_value() == one.fraction.has_value()) {
    return Malformed(
        fmt::format("{} has {} \"bytes\" {} \"fraction\": give one of them",
                    JsonPathText(path), one.bytes ? "both" : "neither",
                    one.bytes ? "and" : "nor"));
  }
  std::optional<StateLimit>& place =
      limits[static_cast<size_t>(*one.state)].on(*one.tier);
  if (place) {
    return Malformed(fmt::format("{} gives {} on {} a limit, which has one",
                                 JsonPathText(path), StateKindName(*one.state),
                                 TierName(*one.tier)));
  }
  place = one.bytes ? StateLimit(*one.bytes) : StateLimit(*one.fraction);
  return OkStatus();
}

void AddLimits(ConfigFields& fields, ZeroOptions* options) {
  const auto one = std::make_shared<OneLimit>();
  fields.List(
      "home_limits",
      [=](const JsonPath&) {
        *one = {};
        return OkStatus();
      },
      [=](const JsonPath& path) {
        if (!options->home_limits) options->home_limits.emplace();
        return TakeLimit(path, *one, *options->home_limits);
      });
  fields.Add("home_limits[].state",
             [=](const JsonPath& path, const JsonScalar& scalar) -> Status {
               CASTOR_ASSIGN_OR_RETURN(one->state, ReadState(path, scalar));
               return OkStatus();
             });
  fields.Add("home_limits[].tier",
             [=](const JsonPath& path, const JsonScalar& scalar) -> Status {
               CASTOR_ASSIGN_OR_RETURN(one->tier, ReadTier(path, scalar));
               return OkStatus();
             });
  fields.Size("home_limits[].bytes", [=](Bytes v) { one->bytes = v; });
  fields.Number("home_limits[].fraction", [=](double v) { one->fraction = v; });
}

void AddRules(ConfigFields& fields, ZeroOptions* options) {
  const auto tiered = std::make_shared<bool>(false);
  fields.List(
      "home_rules",
      [=](const JsonPath&) {
        options->home_rules.emplace_back();
        *tiered = false;
        return OkStatus();
      },
      [=](const JsonPath& path) {
        return *tiered ? OkStatus() : MissingKey(path, "tier");
      });
  fields.Text("home_rules[].glob",
              [=](std::string_view v) { options->home_rules.back().glob = v; });
  fields.Add("home_rules[].tier",
             [=](const JsonPath& path, const JsonScalar& scalar) -> Status {
               *tiered = true;
               CASTOR_ASSIGN_OR_RETURN(options->home_rules.back().tier,
                                       ReadTier(path, scalar));
               return OkStatus();
             });
  fields.Add("home_rules[].state",
             [=](const JsonPath& path, const JsonScalar& scalar) -> Status {
               CASTOR_ASSIGN_OR_RETURN(options->home_rules.back().state,
                                       ReadState(path, scalar));
               return OkStatus();
             });
  fields.Add("home_rules[].dtype",
             [=](const JsonPath& path, const JsonScalar& scalar) -> Status {
               std::string name;
               CASTOR_RETURN_IF_ERROR(ReadText(path, scalar, &name));
               options->home_rules.back().dtype = ParseDType(name);
               if (options->home_rules.back().dtype) return OkStatus();
               return WrongJsonType(path, JsonScalarText(scalar),
                                    "a type such as BF16");
             });
  fields.Size("home_rules[].least_bytes",
              [=](Bytes v) { options->home_rules.back().least = v; });
  fields.Size("home_rules[].most_bytes",
              [=](Bytes v) { options->home_rules.back().most = v; });
}

}  // namespace

void AddHomeFields(ConfigFields& fields, ZeroOptions* options) {
  AddLimits(fields, options);
  AddRules(fields, options);
}

}  // namespace castor::internal
