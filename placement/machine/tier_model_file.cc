// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/machine/tier_model_file.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/text/json_fields.h"
#include "chunk/text/json_value.h"
#include "chunk/text/strict_json.h"

namespace castor {
namespace {

constexpr char kBandwidth[] = "bytes_per_second";
constexpr char kLinkLatency[] = "latency_ns";
constexpr char kRingLatency[] = "step_latency_ns";

using Keys = std::vector<std::string>;

using Links = std::map<std::string, std::optional<LinkModel> TierModel::*>;
using Rings = std::map<std::string, std::optional<RingModel> TierModel::*>;
using Rates = std::map<std::string, std::optional<RateModel> TierModel::*>;

const Links& KnownLinks() {
  static const Links links = {
      {"host_to_device", &TierModel::host_to_device},
      {"device_to_host", &TierModel::device_to_host},
      {"host_to_device_duplex", &TierModel::host_to_device_duplex},
      {"device_to_host_duplex", &TierModel::device_to_host_duplex},
      {"nvme_read", &TierModel::nvme_read},
      {"nvme_write", &TierModel::nvme_write},
      {"nvme_mixed", &TierModel::nvme_mixed}};
  return links;
}

const Rings& KnownRings() {
  static const Rings rings = {{"all_gather", &TierModel::all_gather},
                              {"reduce_scatter", &TierModel::reduce_scatter}};
  return rings;
}

const Rates& KnownRates() {
  static const Rates rates = {{"memory", &TierModel::memory},
                              {"optimizer", &TierModel::optimizer}};
  return rates;
}

const Keys& Sections() {
  static const Keys keys = {"schema", "links", "collectives", "memory",
                            "optimizer"};
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

const Keys& RateFields() {
  static const Keys keys = {kBandwidth};
  return keys;
}

template <typename Map>
Keys KeysOf(const Map& map) {
  Keys keys;
  for (const auto& [key, member] : map) keys.push_back(key);
  return keys;
}

// Depth 1 is a section, 2 a link or a collective, 3 a number of it; of a rate,
// which is a section by itself, a number has depth 2.
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
    if (IsSchema(path)) {
      has_schema_ = true;
      return CheckSchema(scalar, kMachineSchema);
    }
    const bool bandwidth = path.back().key == kBandwidth;
    CASTOR_ASSIGN_OR_RETURN(
        (bandwidth ? bandwidth_ : latency_),
        ReadJsonCount(path, scalar, bandwidth ? kMinBytesPerSecond : 0,
                      bandwidth ? kMaxBytesPerSecond : kMaxLatencyNs));
    return OkStatus();
  }

  Status Close(const JsonPath& path) override {
    if (path.empty()) {
      return has_schema_ ? OkStatus() : MissingKey(path, "schema");
    }
    // A section of links or collectives is complete with what it holds.
    if (path.size() == 1 && !IsRate(path)) return OkStatus();
    if (!bandwidth_) return MissingKey(path, kBandwidth);
    if (IsRate(path)) {
      model_.*KnownRates().at(path[0].key) = RateModel{*bandwidth_};
      return OkStatus();
    }
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
  static bool IsRate(const JsonPath& path) {
    return KnownRates().contains(path[0].key);
  }
  static bool IsSchema(const JsonPath& path) {
    return path.size() == 1 && path[0].key == "schema";
  }
  static bool IsNumber(const JsonPath& path) {
    return path.size() == 3 || (path.size() == 2 && IsRate(path));
  }

  // Whether a string or a number belongs there.
  static bool IsScalar(const JsonPath& path) {
    return IsNumber(path) || IsSchema(path);
  }

  static std::string_view Belongs(const JsonPath& path) {
    if (IsSchema(path)) return "a string";
    return IsNumber(path) ? "a number" : "an object";
  }

  static Status CheckKey(const JsonPath& path) {
    switch (path.size()) {
      case 0:
        return OkStatus();
      case 1:
        return CheckKnownKey(path, Sections());
      case 2:
        if (IsRate(path)) return CheckKnownKey(path, RateFields());
        return CheckKnownKey(
            path, IsLink(path) ? KeysOf(KnownLinks()) : KeysOf(KnownRings()));
      default:
        return CheckKnownKey(path, IsLink(path) ? LinkFields() : RingFields());
    }
  }

  TierModel model_;
  bool has_schema_ = false;
  // Of what is being read.
  std::optional<int64_t> bandwidth_;
  std::optional<int64_t> latency_;
};

JsonValue Bandwidth(int64_t bytes_per_second) {
  CASTOR_CHECK_GE(bytes_per_second, kMinBytesPerSecond);
  CASTOR_CHECK_LE(bytes_per_second, kMaxBytesPerSecond);
  JsonValue json;
  json[kBandwidth] = bytes_per_second;
  return json;
}

JsonValue BandwidthAndLatency(int64_t bytes_per_second, const char* name,
                              int64_t latency_ns) {
  CASTOR_CHECK_GE(latency_ns, 0);
  CASTOR_CHECK_LE(latency_ns, kMaxLatencyNs);
  JsonValue json = Bandwidth(bytes_per_second);
  json[name] = latency_ns;
  return json;
}

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

std::string FormatTierModel(const TierModel& model) {
  JsonValue json;
  json["schema"] = kMachineSchema;
  for (const auto& [name, member] : KnownLinks()) {
    const std::optional<LinkModel>& link = model.*member;
    if (!link) continue;
    json["links"][name] = BandwidthAndLatency(link->bytes_per_second,
                                              kLinkLatency, link->latency_ns);
  }
  for (const auto& [name, member] : KnownRings()) {
    const std::optional<RingModel>& ring = model.*member;
    if (!ring) continue;
    json["collectives"][name] = BandwidthAndLatency(
        ring->bytes_per_second, kRingLatency, ring->step_latency_ns);
  }
  for (const auto& [name, member] : KnownRates()) {
    const std::optional<RateModel>& rate = model.*member;
    if (rate) json[name] = Bandwidth(rate->bytes_per_second);
  }
  return json.Dump(2) + "\n";
}

}  // namespace castor
