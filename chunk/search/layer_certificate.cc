// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/search/layer_certificate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "chunk/base/dtype.h"

namespace castor {
namespace {

// Whether sizes [begin, end) equal those `distance` further on. REQUIRES: all
// of them exist.
bool Repeats(std::span<const Elements> sizes, int64_t begin, int64_t end,
             int64_t distance) {
  const auto first = sizes.begin() + begin;
  return std::equal(first, sizes.begin() + end, first + distance);
}

Status CheckRepeat(const LayerRepeat& repeat, std::span<const Elements> sizes) {
  const int64_t count = static_cast<int64_t>(sizes.size());
  const int64_t first = repeat.first;
  const int64_t params = repeat.params;
  if (first < 0 || params < 1 || repeat.repeats < 2 ||
      repeat.repeats > (count - first) / params) {
    return Malformed(fmt::format(
        "the certificate's layers are {} times {} parameters from number {} "
        "on; there must be two or more of one or more, within the group's {}",
        repeat.repeats, params, first, count));
  }
  const int64_t end = first + params * repeat.repeats;
  if (!Repeats(sizes, first, end - params, params)) {
    return Malformed(fmt::format(
        "the {} parameters from number {} on do not repeat {} times", params,
        first, repeat.repeats));
  }
  if (std::all_of(sizes.begin() + first, sizes.begin() + end,
                  [](Elements size) { return size == Elements(0); })) {
    return Malformed("the certificate's layers have no elements");
  }
  if (first > 0 && Repeats(sizes, first - 1, first, params)) {
    return Malformed(
        fmt::format("the layers of {} parameters could begin before number {}",
                    params, first));
  }
  if (end + params <= count && Repeats(sizes, end - params, end, params)) {
    return Malformed(fmt::format(
        "the {} parameters from number {} on repeat more than {} times", params,
        first, repeat.repeats));
  }
  return OkStatus();
}

// `one` is one repeat, `sizes` the whole group.
Status CheckStep(const LayerStep& step, std::span<const Elements> one,
                 std::span<const Elements> sizes, const PackOptions& options) {
  const Elements quantum = ChunkQuantum(options.world);
  const Elements largest = *std::max_element(one.begin(), one.end());
  if (step.chunk_size < largest || step.chunk_size % quantum != Elements(0)) {
    return Malformed(fmt::format(
        "the size for {} chunks, {} elements, must be a multiple of {} and "
        "hold the layer's largest parameter, {}",
        step.chunks_per_repeat, step.chunk_size.count(), quantum.count(),
        largest.count()));
  }
  // Elements only are added here, whatever their type.
  CASTOR_RETURN_IF_ERROR(
      ValidatePackSums(sizes, step.chunk_size, DType::kU8, options));
  const int64_t chunks = CountPacking(one, step.chunk_size, options).chunks;
  if (chunks > step.chunks_per_repeat) {
    return Malformed(
        fmt::format("chunks of {} elements hold a layer in {}, not in {}",
                    step.chunk_size.count(), chunks, step.chunks_per_repeat));
  }
  const Elements smaller = step.chunk_size - quantum;
  if (smaller >= largest &&
      CountPacking(one, smaller, options).chunks <= step.chunks_per_repeat) {
    return Malformed(fmt::format(
        "chunks of {} elements hold a layer in {} too, so {} is not the least "
        "size that does",
        smaller.count(), step.chunks_per_repeat, step.chunk_size.count()));
  }
  Elements payload;
  for (const Elements size : sizes) payload += size;
  const Elements waste =
      CountPacking(sizes, step.chunk_size, options).allocated - payload;
  if (waste != step.waste) {
    return Malformed(fmt::format(
        "the certificate says that chunks of {} elements waste {}; packing "
        "wastes {}",
        step.chunk_size.count(), step.waste.count(), waste.count()));
  }
  return OkStatus();
}

}  // namespace

Status VerifyLayerCertificate(const LayerCertificate& certificate,
                              std::span<const Elements> sizes,
                              const PackOptions& options, Elements best_waste) {
  CASTOR_RETURN_IF_ERROR(ValidatePackOptions(options));
  CASTOR_RETURN_IF_ERROR(CheckRepeat(certificate.repeat, sizes));
  const std::span<const Elements> one =
      sizes.subspan(static_cast<size_t>(certificate.repeat.first),
                    static_cast<size_t>(certificate.repeat.params));
  const std::vector<LayerStep>& steps = certificate.steps;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].chunks_per_repeat != static_cast<int64_t>(i) + 1) {
      return Malformed(
          fmt::format("step {} of the certificate is for {} chunks, not {}", i,
                      steps[i].chunks_per_repeat, i + 1));
    }
    CASTOR_RETURN_IF_ERROR(CheckStep(steps[i], one, sizes, options));
  }
  if (steps.size() != static_cast<size_t>(kMaxChunksPerRepeat)) {
    return Malformed(
        fmt::format("the certificate has {} steps; there must be {}, from 1 to "
                    "{} chunks",
                    steps.size(), kMaxChunksPerRepeat, kMaxChunksPerRepeat));
  }
  const Elements least =
      std::min_element(steps.begin(), steps.end(),
                       [](const LayerStep& a, const LayerStep& b) {
                         return a.waste < b.waste;
                       })
          ->waste;
  if (best_waste != least) {
    return Malformed(fmt::format(
        "the best wastes {} elements, but the least of the steps is {}",
        best_waste.count(), least.count()));
  }
  return OkStatus();
}

}  // namespace castor
