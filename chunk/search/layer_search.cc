// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "chunk/layout/chunk_packer.h"
#include "chunk/search/layer_certificate.h"
#include "chunk/search/layer_repeat.h"
#include "chunk/search/mode_search.h"

namespace castor {
namespace {

// One repeat, as it lies in one endless chunk: a chunk that begins with
// parameter b holds those that end at most C behind b's start.
class RepeatPacking {
 public:
  RepeatPacking(std::span<const Elements> sizes, const PackOptions& options)
      : quantum_(ChunkQuantum(options.world)) {
    Elements start;
    for (const Elements size : sizes) {
      if (size == Elements(0)) continue;
      starts_.push_back(start);
      ends_.push_back(start + size);
      start = RoundUp(ends_.back(), options.align);
      largest_ = std::max(largest_, size);
    }
  }

  // C_m for m = 1 to 8.
  std::array<Elements, kMaxChunksPerRepeat> LeastSizes() const {
    std::array<Elements, kMaxChunksPerRepeat> sizes;
    const Elements least = RoundUp(largest_, quantum_);
    Elements enough = RoundUp(ends_.back(), quantum_);  // for one chunk
    for (int64_t m = 1; m <= kMaxChunksPerRepeat; ++m) {
      // What is enough for fewer chunks is for more.
      int64_t below = least / quantum_ - 1;
      int64_t fits = enough / quantum_;
      while (fits - below > 1) {
        const int64_t middle = below + (fits - below) / 2;
        (Takes(quantum_ * middle, m) ? fits : below) = middle;
      }
      enough = quantum_ * fits;
      sizes[static_cast<size_t>(m - 1)] = enough;
    }
    return sizes;
  }

 private:
  // Whether chunks of `chunk_size`, none of them oversize, take it in at most
  // `chunks`.
  bool Takes(Elements chunk_size, int64_t chunks) const {
    auto next = ends_.begin();
    for (int64_t chunk = 0; chunk < chunks && next != ends_.end(); ++chunk) {
      const Elements start = starts_[static_cast<size_t>(next - ends_.begin())];
      next = std::upper_bound(next, ends_.end(), start + chunk_size);
    }
    return next == ends_.end();
  }

  Elements quantum_;
  Elements largest_;
  std::vector<Elements> starts_;  // of parameters that have elements
  std::vector<Elements> ends_;
};

}  // namespace

std::optional<ModeSearch> SearchLayer(const ModeSearchInput& input) {
  if (input.groups.size() != 1 || !input.groups[0].whole.empty()) {
    return std::nullopt;
  }
  const std::span<const Elements> all = input.groups[0].sizes;
  const std::optional<LayerRepeat> repeat = FindLayerRepeat(all);
  if (!repeat) return std::nullopt;
  const std::span<const Elements> one = all.subspan(
      static_cast<size_t>(repeat->first), static_cast<size_t>(repeat->params));
  const std::array<Elements, kMaxChunksPerRepeat> sizes =
      RepeatPacking(one, input.pack).LeastSizes();
  if (!ValidatePackSums(all, sizes.front(), input.dtype, input.pack).ok()) {
    return std::nullopt;
  }

  LayerCertificate certificate;
  certificate.repeat = *repeat;
  std::vector<ChunkSizeCandidate> candidates;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i == 0 || sizes[i] != sizes[i - 1]) {
      candidates.push_back(CandidateAt(SearchMode::kLayer, sizes[i], input));
      candidates.back().reason =
          fmt::format("one layer in {} chunk{}", i + 1, i == 0 ? "" : "s");
    }
    certificate.steps.push_back(
        {static_cast<int64_t>(i) + 1, sizes[i], candidates.back().waste});
  }

  ModeSearch search;
  search.result.mode = SearchMode::kLayer;
  // By falling size, so of equal ones the last.
  search.result.best = *std::min_element(
      candidates.rbegin(), candidates.rend(),
      [](const ChunkSizeCandidate& a, const ChunkSizeCandidate& b) {
        return a.waste < b.waste;
      });
  search.result.lower_bound_waste = search.result.best.waste;
  search.result.optimal = true;
  search.result.certificate = std::move(certificate);
  search.candidates = FrontOf(std::move(candidates));
  return search;
}

}  // namespace castor
