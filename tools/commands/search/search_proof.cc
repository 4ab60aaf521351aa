// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_proof.h"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/layer_certificate.h"
#include "chunk/search_certificate.h"
#include "chunk/search_mode.h"
#include "tools/cli/size_text.h"
#include "tools/cli/text_forms.h"

namespace castor {
namespace {

std::string SizeOf(Elements size, DType dtype) {
  return FormatSize(BytesToHold(size, dtype));
}

// "5.08 MiB (1,332,416 elements)"
std::string WasteText(Elements waste, DType dtype) {
  return fmt::format("{} ({} elements)", SizeOf(waste, dtype),
                     Grouped(waste.count()));
}

// Sentences about one mode of one group.
class ModeProof {
 public:
  ModeProof(const GroupSearchResult& group, const ModeResult& mode,
            const PackOptions& pack)
      : group_(group), mode_(mode), pack_(pack) {}

  std::string operator()(const SearchCertificate& proof) const {
    const int64_t sizes =
        (proof.max_size - proof.min_size) / ChunkQuantum(pack_.world) + 1;
    if (sizes == 1 && mode_.optimal) {
      return fmt::format("the only allowed size, {}, wastes {}",
                         SizeOf(proof.min_size, group_.dtype), Bound());
    }
    return fmt::format(
        "none of the {} allowed sizes, {} to {}, wastes less than {}; {} cover "
        "them{}",
        Grouped(sizes), SizeOf(proof.min_size, group_.dtype),
        SizeOf(proof.max_size, group_.dtype), Bound(),
        Plural(static_cast<int64_t>(proof.intervals.size()), "interval"),
        Gap());
  }

  std::string operator()(const LayerCertificate& proof) const {
    return fmt::format(
        "{} repeat {} times; of the least sizes that hold one repeat in 1 to 8 "
        "chunks ({} of them) none wastes less than {}{}",
        Plural(proof.repeat.params, "tensor"), Grouped(proof.repeat.repeats),
        proof.steps.size(), Bound(), Gap());
  }

 private:
  std::string Bound() const {
    return WasteText(mode_.lower_bound_waste, group_.dtype);
  }

  // Empty where what was found wastes just the bound.
  std::string Gap() const {
    if (mode_.optimal) return {};
    const Elements gap = mode_.best.waste - mode_.lower_bound_waste;
    const double share = static_cast<double>(gap.count()) /
                         static_cast<double>(group_.payload.count());
    return fmt::format("; the best found wastes {}, a gap of {} of the model",
                       SizeOf(mode_.best.waste, group_.dtype), Percent(share));
  }

  const GroupSearchResult& group_;
  const ModeResult& mode_;
  const PackOptions& pack_;
};

}  // namespace

std::string ProofParagraphs(const GroupSearchResult& group,
                            const PackOptions& pack) {
  std::string text;
  for (const ModeResult& mode : group.modes) {
    text += Paragraph(mode.optimal ? "Proved" : "Bounded",
                      fmt::format("{}: {}", SearchModeName(mode.mode),
                                  std::visit(ModeProof(group, mode, pack),
                                             mode.certificate)));
  }
  return text;
}

std::string ProofSummary(const GroupSearchResult& group) {
  std::vector<std::string> bounds;
  bool optimal = true;
  for (const ModeResult& mode : group.modes) {
    std::string bound =
        fmt::format("{} {}", SearchModeName(mode.mode),
                    SizeOf(mode.lower_bound_waste, group.dtype));
    if (!mode.optimal) {
      optimal = false;
      bound += fmt::format(" (found {})", SizeOf(mode.best.waste, group.dtype));
    }
    bounds.push_back(std::move(bound));
  }
  return Paragraph(optimal ? "Proved" : "Bounded",
                   fmt::format("nothing that is allowed wastes less than {}",
                               JoinedWithAnd(bounds)));
}

}  // namespace castor
