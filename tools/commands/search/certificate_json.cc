// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/certificate_json.h"

#include <variant>
#include <vector>

#include "chunk/layer_certificate.h"
#include "chunk/search_certificate.h"
#include "chunk/search_mode.h"

namespace castor {
namespace {

JsonValue IntervalsJson(const std::vector<CertificateInterval>& intervals) {
  JsonValue json = JsonValue::Array();
  for (const CertificateInterval& interval : intervals) {
    json.Append(
        JsonValue::Object({{"from_elements", interval.from.count()},
                           {"to_elements", interval.to.count()},
                           {"chunks", interval.chunks},
                           {"oversize_elements", interval.oversize.count()}}));
  }
  return json;
}

// What only one mode's proof has.
void AddTo(JsonValue& json, const SearchCertificate& certificate) {
  json["intervals"] = IntervalsJson(certificate.intervals);
}

void AddTo(JsonValue& json, const LayerCertificate& certificate) {
  json["repeat"] = JsonValue::Object({{"first", certificate.repeat.first},
                                      {"params", certificate.repeat.params},
                                      {"repeats", certificate.repeat.repeats}});
  json["steps"] = JsonValue::Array();
  for (const LayerStep& step : certificate.steps) {
    json["steps"].Append(
        JsonValue::Object({{"chunks_per_repeat", step.chunks_per_repeat},
                           {"chunk_elements", step.chunk_size.count()},
                           {"waste_elements", step.waste.count()}}));
  }
}

}  // namespace

JsonValue CertificateJson(const ModeResult& mode, const std::string& group) {
  JsonValue json;
  json["mode"] = SearchModeName(mode.mode);
  if (!group.empty()) json["group"] = group;
  json["lower_bound_waste_elements"] = mode.lower_bound_waste.count();
  json["optimal"] = mode.optimal;
  std::visit([&json](const auto& certificate) { AddTo(json, certificate); },
             mode.certificate);
  return json;
}

JsonValue EmptyCertificateJson() {
  return JsonValue::Object({{"lower_bound_waste_elements", 0},
                            {"optimal", true},
                            {"intervals", JsonValue::Array()}});
}

}  // namespace castor
