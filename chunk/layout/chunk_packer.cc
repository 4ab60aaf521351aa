// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/layout/chunk_packer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "chunk/base/check.h"

namespace castor {
namespace {

// The offset at which a parameter of `size` goes in a chunk of `chunk_size`
// that is filled up to `used`; empty where the chunk has no room for it. No
// border of shards cuts a parameter that is to stay `whole`.
std::optional<Elements> OffsetFor(Elements used, Elements size, bool whole,
                                  Elements chunk_size,
                                  const PackOptions& options) {
  Elements offset = RoundUp(used, options.align);
  if (whole) {
    const Elements border = RoundUp(offset, chunk_size / options.shards);
    if (border < offset + size) offset = border;
  }
  if (offset + size > chunk_size) return std::nullopt;
  return offset;
}

// Lays the parameters of one group into chunks that it appends.
class GroupBuilder {
 public:
  GroupBuilder(int32_t group, Elements chunk_size, const PackOptions& options,
               std::vector<ChunkInfo>* chunks, std::vector<ParamPlace>* places)
      : group_(group),
        chunk_size_(chunk_size),
        options_(options),
        chunks_(*chunks),
        places_(*places) {}

  // REQUIRES: size > 0; if it is `whole`, no more than a shard has.
  void Add(ParamId param, Elements size, bool whole) {
    if (size > chunk_size_) {
      Open(RoundUp(size, ChunkQuantum(options_.world)), /*oversize=*/true);
      Append(param, size, Elements(0));
      open_ = false;
      return;
    }
    std::optional<Elements> offset;
    if (open_) {
      offset = OffsetFor(Last().used, size, whole, chunk_size_, options_);
    }
    if (!offset) {
      Open(chunk_size_, /*oversize=*/false);
      offset = Elements(0);
    }
    Append(param, size, *offset);
  }

  std::vector<ChunkId> Finish() && { return std::move(ids_); }

 private:
  ChunkInfo& Last() { return chunks_.back(); }

  void Open(Elements size, bool oversize) {
    ids_.emplace_back(static_cast<int32_t>(chunks_.size()));
    ChunkInfo& chunk = chunks_.emplace_back();
    chunk.group = group_;
    chunk.size = size;
    chunk.oversize = oversize;
    open_ = true;
  }

  void Append(ParamId param, Elements size, Elements offset) {
    places_[param.index()] = {ids_.back(), offset, size};
    ChunkInfo& chunk = Last();
    chunk.used = offset + size;
    chunk.payload += size;
    chunk.params.push_back(param);
  }

  const int32_t group_;
  const Elements chunk_size_;
  const PackOptions& options_;
  std::vector<ChunkInfo>& chunks_;
  std::vector<ParamPlace>& places_;
  std::vector<ChunkId> ids_;
  bool open_ = false;
};

Status ValidateChunkSize(Elements chunk_size, const PackOptions& options) {
  const Elements quantum = ChunkQuantum(options.world);
  if (chunk_size > Elements(0) && chunk_size % quantum == Elements(0)) {
    return OkStatus();
  }
  return InvalidArgument(fmt::format(
      "chunk size {} elements is not a positive multiple of {} (128 elements "
      "for each of {} ranks); use {}",
      chunk_size.count(), quantum.count(), options.world,
      std::max(RoundUp(std::max(chunk_size, Elements(1)), quantum), quantum)
          .count()));
}

Status ValidateWhole(const ParamSpec& param, Elements size, Elements chunk_size,
                     const PackOptions& options) {
  const Elements quantum = WholeQuantum(options);
  const Elements least = LeastForWhole(size, options);
  if (chunk_size >= least && chunk_size % quantum == Elements(0)) {
    return OkStatus();
  }
  return InvalidArgument(fmt::format(
      "parameter '{}' of {} elements is updated as a whole, and chunks of {} "
      "elements are cut into {} shards: give chunks of {} elements at least, "
      "in multiples of {}",
      param.name, size.count(), chunk_size.count(), options.shards,
      least.count(), quantum.count()));
}

}  // namespace

Elements WholeQuantum(const PackOptions& options) {
  return Elements(std::lcm(ChunkQuantum(options.world).count(),
                           options.align.count() * options.shards));
}

Elements LeastForWhole(Elements size, const PackOptions& options) {
  return RoundUp(RoundUp(size, options.align) * options.shards,
                 WholeQuantum(options));
}

Status ValidatePackOptions(const PackOptions& options) {
  constexpr int kMaxWorld = 1 << 20;
  constexpr Elements kMaxAlign(int64_t{1} << 30);
  if (options.world < 1 || options.world > kMaxWorld) {
    return InvalidArgument(
        fmt::format("world of {} ranks: it must be between 1 and {}",
                    options.world, kMaxWorld));
  }
  if (options.align <= Elements(0) || options.align > kMaxAlign ||
      options.align % Elements(64) != Elements(0)) {
    return InvalidArgument(fmt::format(
        "alignment of {} elements: it must be a multiple of 64 between 64 and "
        "{}",
        options.align.count(), kMaxAlign.count()));
  }
  return OkStatus();
}

Status ValidatePackSums(std::span<const Elements> sizes, Elements chunk_size,
                        DType dtype, const PackOptions& options) {
  // Two neighbouring chunks of one run hold more than C with their padding; so
  // do two neighbouring shards of a chunk, of a shard, where parameters stay
  // whole. Ordinary chunks thus take at most twice the padded sizes plus C for
  // each run. Every run but the first follows an oversize parameter of more
  // than C.
  const Elements quantum = ChunkQuantum(options.world);
  __int128 padded = 0;
  for (const Elements size : sizes) {
    padded += size.count();
    padded += options.align.count();
    padded += quantum.count();
  }
  const __int128 bits = 4 * (padded + chunk_size.count()) * DTypeBits(dtype);
  if (bits <= std::numeric_limits<int64_t>::max()) return OkStatus();
  return InvalidArgument(fmt::format(
      "{} parameters of {} in chunks of {} elements may take more than 2^63 "
      "bits; give fewer or smaller parameters, or a smaller chunk size",
      sizes.size(), DTypeName(dtype), chunk_size.count()));
}

std::vector<ParamGroup> GroupParams(std::span<const ParamSpec> params) {
  CASTOR_CHECK_LE(params.size(),
                  static_cast<size_t>(std::numeric_limits<int32_t>::max()));
  std::vector<ParamGroup> groups;
  size_t last = 0;  // lists are long runs of one group
  for (size_t i = 0; i < params.size(); ++i) {
    const ParamSpec& param = params[i];
    const auto holds = [&param](const ParamGroup& group) {
      return group.dtype == param.dtype && group.trainable == param.trainable &&
             group.states == param.states && group.moments8 == param.moments8;
    };
    if (groups.empty() || !holds(groups[last])) {
      const auto found = std::find_if(groups.begin(), groups.end(), holds);
      last = static_cast<size_t>(found - groups.begin());
      if (found == groups.end()) {
        groups.push_back(
            {param.dtype, param.trainable, {}, param.states, param.moments8});
      }
    }
    groups[last].params.emplace_back(static_cast<int32_t>(i));
  }
  return groups;
}

Result<std::vector<Elements>> GroupSizes(std::span<const ParamSpec> params,
                                         const ParamGroup& group) {
  std::vector<Elements> sizes;
  sizes.reserve(group.params.size());
  for (const ParamId id : group.params) {
    const ParamSpec& param = params[id.index()];
    const Result<Elements> size = CountElements(param.shape, param.dtype);
    if (!size.ok()) {
      return size.status().WithContext(
          fmt::format("parameter '{}'", param.name));
    }
    sizes.push_back(*size);
  }
  return sizes;
}

std::vector<bool> GroupWhole(std::span<const ParamSpec> params,
                             const ParamGroup& group,
                             const PackOptions& options) {
  std::vector<bool> whole;
  if (options.shards == 1) return whole;
  for (size_t i = 0; i < group.params.size(); ++i) {
    if (!params[group.params[i].index()].whole) continue;
    whole.resize(group.params.size());
    whole[i] = true;
  }
  return whole;
}

PackCount CountPacking(std::span<const Elements> sizes, Elements chunk_size,
                       const PackOptions& options,
                       const std::vector<bool>& whole) {
  const Elements quantum = ChunkQuantum(options.world);
  CASTOR_CHECK_GT(chunk_size, Elements(0));
  CASTOR_CHECK_EQ(chunk_size % quantum, Elements(0));
  PackCount count;
  int64_t ordinary = 0;
  Elements used;
  bool open = false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Elements size = sizes[i];
    CASTOR_CHECK_GE(size, Elements(0));
    if (size == Elements(0)) continue;
    if (size > chunk_size) {
      ++count.oversize_chunks;
      count.oversize_allocated += RoundUp(size, quantum);
      open = false;
      continue;
    }
    std::optional<Elements> offset;
    if (open) {
      offset = OffsetFor(used, size, !whole.empty() && whole[i], chunk_size,
                         options);
    }
    if (!offset) {
      ++ordinary;
      open = true;
      offset = Elements(0);
    }
    used = *offset + size;
  }
  count.chunks = ordinary + count.oversize_chunks;
  count.allocated = chunk_size * ordinary + count.oversize_allocated;
  return count;
}

Result<ChunkLayout> PackChunks(std::span<const ParamSpec> params,
                               std::span<const Elements> chunk_sizes,
                               const PackOptions& options) {
  CASTOR_RETURN_IF_ERROR(ValidatePackOptions(options));
  const std::vector<ParamGroup> groups = GroupParams(params);
  if (chunk_sizes.size() != groups.size()) {
    return InvalidArgument(fmt::format(
        "{} chunk sizes for {} groups of parameters; give one for each (dtype, "
        "trainable) in order of first sight",
        chunk_sizes.size(), groups.size()));
  }
  std::vector<ParamPlace> places(params.size());
  std::vector<ChunkInfo> chunks;
  std::vector<GroupInfo> infos;
  for (size_t g = 0; g < groups.size(); ++g) {
    const ParamGroup& group = groups[g];
    CASTOR_RETURN_IF_ERROR(ValidateChunkSize(chunk_sizes[g], options));
    CASTOR_ASSIGN_OR_RETURN(const std::vector<Elements> sizes,
                            GroupSizes(params, group));
    CASTOR_RETURN_IF_ERROR(
        ValidatePackSums(sizes, chunk_sizes[g], group.dtype, options));
    GroupBuilder builder(static_cast<int32_t>(g), chunk_sizes[g], options,
                         &chunks, &places);
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] == Elements(0)) continue;
      const ParamSpec& param = params[group.params[i].index()];
      const bool whole = param.whole && options.shards > 1;
      if (whole) {
        CASTOR_RETURN_IF_ERROR(
            ValidateWhole(param, sizes[i], chunk_sizes[g], options));
      }
      builder.Add(group.params[i], sizes[i], whole);
    }
    infos.push_back({group.dtype, group.trainable, chunk_sizes[g],
                     std::move(builder).Finish(), group.states,
                     group.moments8});
  }
  return ChunkLayout(options.world, options.align, std::move(places),
                     std::move(chunks), std::move(infos));
}

}  // namespace castor
