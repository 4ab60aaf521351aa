// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <iterator>
#include <utility>
#include <variant>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units_text.h"
#include "chunk/chunk_layout.h"
#include "chunk/layer_certificate.h"
#include "chunk/search_certificate.h"
#include "tools/cli/text_forms.h"
#include "tools/commands/search/search_parts.h"

namespace castor {
namespace {

std::string SizeOf(Elements size, DType dtype) {
  return FormatSize(BytesToHold(size, dtype));
}

std::string ProofText(const GroupSearchResult& group, const ModeResult& mode,
                      const PackOptions& pack) {
  const std::string bound = fmt::format(
      "{} ({} elements)", SizeOf(mode.lower_bound_waste, group.dtype),
      Grouped(mode.lower_bound_waste.count()));
  if (const auto* layers = std::get_if<LayerCertificate>(&mode.certificate)) {
    return fmt::format(
        "{} repeat {} times; of the least sizes that hold one repeat in 1 to 8 "
        "chunks none wastes less than {}",
        Plural(layers->repeat.params, "tensor"),
        Grouped(layers->repeat.repeats), bound);
  }
  const auto& proof = std::get<SearchCertificate>(mode.certificate);
  const std::string least = SizeOf(proof.min_size, group.dtype);
  if (proof.min_size == proof.max_size) {
    return fmt::format("the only allowed size, {}, wastes {}", least, bound);
  }
  const int64_t sizes =
      (proof.max_size - proof.min_size) / ChunkQuantum(pack.world) + 1;
  return fmt::format(
      "none of the {} allowed sizes, {} to {}, wastes less than {}; {} cover "
      "them",
      Grouped(sizes), least, SizeOf(proof.max_size, group.dtype), bound,
      Plural(std::ssize(proof.intervals), "interval"));
}

}  // namespace

void SayProofs(const GroupSearchResult& group, const PackOptions& pack,
               bool brief, Document* doc) {
  std::vector<std::string> bounds;
  for (const ModeResult& mode : group.modes) {
    bounds.push_back(fmt::format("{} {}", SearchModeName(mode.mode),
                                 SizeOf(mode.lower_bound_waste, group.dtype)));
    if (brief) continue;
    doc->Say("Proved", fmt::format("{}: {}", SearchModeName(mode.mode),
                                   ProofText(group, mode, pack)));
  }
  if (!brief) return;
  doc->Say("Proved", fmt::format("nothing that is allowed wastes less than {}",
                                 JoinedWithAnd(bounds)));
}

JsonValue CertificateJson(const ModeResult& mode, const std::string& group) {
  JsonValue json;
  json["mode"] = SearchModeName(mode.mode);
  if (!group.empty()) json["group"] = group;
  json["lower_bound_waste_elements"] = mode.lower_bound_waste.count();
  json["optimal"] = mode.optimal;
  if (const auto* proof = std::get_if<SearchCertificate>(&mode.certificate)) {
    json["intervals"] =
        ListOf(proof->intervals, [](const CertificateInterval& interval) {
          return Fields({{"from_elements", interval.from},
                         {"to_elements", interval.to},
                         {"chunks", interval.chunks},
                         {"oversize_elements", interval.oversize}});
        });
    return json;
  }
  const auto& layers = std::get<LayerCertificate>(mode.certificate);
  json["repeat"] = Fields({{"first", layers.repeat.first},
                           {"params", layers.repeat.params},
                           {"repeats", layers.repeat.repeats}});
  json["steps"] = ListOf(layers.steps, [](const LayerStep& step) {
    return Fields({{"chunks_per_repeat", step.chunks_per_repeat},
                   {"chunk_elements", step.chunk_size},
                   {"waste_elements", step.waste}});
  });
  return json;
}

JsonValue EmptyCertificateJson() {
  return Fields({{"lower_bound_waste_elements", 0},
                 {"optimal", true},
                 {"intervals", JsonValue::Array()}});
}

}  // namespace castor
