// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/tier_model_file.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/json_fields.h"
#include "chunk/base/strict_json.h"

namespace castor {
namespace {

constexpr char kSchema[] = "castor.machine/1";
constexpr char kBandwidth[] = "bytes_per_second";
constexpr char kLinkLatency[] = "latency_ns";
constexpr char kRingLatency[] = "step_latency_ns";

using Keys = std::vector<std::string>;

const Keys& Sections() {
  static const Keys keys = {"schema", "links", "collectives"};
  return keys;
}

const Keys& LinkFields() {
  static const Keys keys = {kBandwidth, kLinkLatency};
  return keys;
}

const Keys& RingFields() {
  static const Keys keys = {kBandwidth, kRingLatency};
  return keys;
}

using Links = std::map<std::string, std::optional<LinkModel> TierModel::*>;
using Rings = std::map<std::string, std::optional<RingModel> TierModel::*>;

const Links& KnownLinks() {
  static const Links links = {{"host_to_device", &TierModel::host_to_device},
                              {"device_to_host", &TierModel::device_to_host},
                              {"nvme_read", &TierModel::nvme_read},
                              {"nvme_write", &TierModel::nvme_write}};
  return links;
}

const Rings& KnownRings() {
  static const Rings rings = {{"all_gather", &TierModel::all_gather},
                              {"reduce_scatter", &TierModel::reduce_scatter}};
  return rings;
}

template <typename Map>
Keys KeysOf(const Map& map) {
  Keys keys;
  for (const auto& [key, member] : map) keys.push_back(key);
  return keys;
}

// Depth 1 is a section, 2 a link or a collective, 3 a number of it.
class MachineHandler final : public JsonHandler {
 public:
  const TierModel& model() const { return model_; }

  Status Open(const JsonPath& path, JsonContainer container) override {
    CASTOR_RETURN_IF_ERROR(CheckKey(path));
    const bool object = container == JsonContainer::kObject;
    if (!object || IsScalar(path)) {
      return WrongJsonType(path, object ? "an object" : "an array",
                           Belongs(path));
    }
    bandwidth_.reset();
    latency_.reset();
    return OkStatus();
  }

  Status Scalar(const JsonPath& path, const JsonScalar& scalar) override {
    CASTOR_RETURN_IF_ERROR(CheckKey(path));
    if (!IsScalar(path)) {
      return WrongJsonType(path, JsonScalarText(scalar), Belongs(path));
    }
    if (path.size() == 1) {
      has_schema_ = true;
      return CheckSchema(scalar, kSchema);
    }
    const bool bandwidth = path[2].key == kBandwidth;
    CASTOR_ASSIGN_OR_RETURN(
        (bandwidth ? bandwidth_ : latency_),
        ReadJsonCount(path, scalar, bandwidth ? 1 : 0,
                      bandwidth ? kMaxBytesPerSecond : kMaxLatencyNs));
    return OkStatus();
  }

  Status Close(const JsonPath& path) override {
    if (path.empty() && !has_schema_) return MissingKey(path, "schema");
    if (path.size() != 2) return OkStatus();
    if (!bandwidth_) return MissingKey(path, kBandwidth);
    if (!latency_) {
      return MissingKey(path, IsLink(path) ? kLinkLatency : kRingLatency);
    }
    if (IsLink(path)) {
      model_.*KnownLinks().at(path[1].key) = LinkModel{*bandwidth_, *latency_};
    } else {
      model_.*KnownRings().at(path[1].key) = RingModel{*bandwidth_, *latency_};
    }
    return OkStatus();
  }

 private:
  static bool IsLink(const JsonPath& path) { return path[0].key == "links"; }

  // Whether a string or a number belongs there.
  static bool IsScalar(const JsonPath& path) {
    return path.size() == 3 || (path.size() == 1 && path[0].key == "schema");
  }

  static std::string_view Belongs(const JsonPath& path) {
    if (path.size() == 1 && path[0].key == "schema") return "a string";
    return path.size() == 3 ? "a number" : "an object";
  }

  static Status CheckKey(const JsonPath& path) {
    switch (path.size()) {
      case 0:
        return OkStatus();
      case 1:
        return CheckKnownKey(path, Sections());
      case 2:
        return CheckKnownKey(
            path, IsLink(path) ? KeysOf(KnownLinks()) : KeysOf(KnownRings()));
      default:
        return CheckKnownKey(path, IsLink(path) ? LinkFields() : RingFields());
    }
  }

  TierModel model_;
  bool has_schema_ = false;
  // Of the link or collective being read.
  std::optional<int64_t> bandwidth_;
  std::optional<int64_t> latency_;
};

}  // namespace

Result<TierModel> ParseTierModel(std::string_view text) {
  if (text.size() > kMaxTierModelBytes) {
    return Malformed(
        fmt::format("it has {} bytes, and a machine file at most {}",
                    text.size(), kMaxTierModelBytes));
  }
  MachineHandler handler;
  CASTOR_RETURN_IF_ERROR(ReadStrictJson(text, handler));
  return handler.model();
}

}  // namespace castor
