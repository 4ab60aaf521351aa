// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/certificate_json.h"

#include <nlohmann/json.hpp>
#include <variant>
#include <vector>

#include "chunk/classes_certificate.h"
#include "chunk/layer_certificate.h"
#include "chunk/search_certificate.h"
#include "chunk/search_mode.h"

namespace castor {
namespace {

using Json = nlohmann::ordered_json;

Json IntervalsJson(const std::vector<CertificateInterval>& intervals) {
  Json json = Json::array();
  for (const CertificateInterval& interval : intervals) {
    json.push_back({{"from_elements", interval.from.count()},
                    {"to_elements", interval.to.count()},
                    {"chunks", interval.chunks},
                    {"oversize_elements", interval.oversize.count()}});
  }
  return json;
}

// What only one mode's proof has.
void AddTo(Json& json, const SearchCertificate& certificate) {
  json["intervals"] = IntervalsJson(certificate.intervals);
}

void AddTo(Json& json, const LayerCertificate& certificate) {
  json["repeat"] = {{"first", certificate.repeat.first},
                    {"params", certificate.repeat.params},
                    {"repeats", certificate.repeat.repeats}};
  json["steps"] = Json::array();
  for (const LayerStep& step : certificate.steps) {
    json["steps"].push_back({{"chunks_per_repeat", step.chunks_per_repeat},
                             {"chunk_elements", step.chunk_size.count()},
                             {"waste_elements", step.waste.count()}});
  }
}

void AddTo(Json& json, const ClassesCertificate& certificate) {
  json["max_classes"] = certificate.max_classes;
  json["max_elements"] = certificate.max_size.count();
  json["oversize_waste_elements"] = certificate.oversize_waste.count();
  json["pairs"] = Json::array();
  for (const ClassCover& cover : certificate.covers) {
    json["pairs"].push_back(
        {{"above_elements", cover.above.count()},
         {"up_to_elements", cover.up_to.count()},
         {"lower_bound_waste_elements", cover.lower_bound_waste.count()},
         {"intervals", IntervalsJson(cover.intervals)}});
  }
}

}  // namespace

Json CertificateJson(const ModeResult& mode, const std::string& group) {
  Json json;
  json["mode"] = SearchModeName(mode.mode);
  if (!group.empty()) json["group"] = group;
  json["lower_bound_waste_elements"] = mode.lower_bound_waste.count();
  json["optimal"] = mode.optimal;
  std::visit([&json](const auto& certificate) { AddTo(json, certificate); },
             mode.certificate);
  return json;
}

Json EmptyCertificateJson() {
  return {{"lower_bound_waste_elements", 0},
          {"optimal", true},
          {"intervals", Json::array()}};
}

}  // namespace castor
