// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/layout/size_family.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/chunk_layout.h"

namespace castor {
namespace {

// The largest parameter of the group that stays whole; 0: there is none.
Elements LargestWhole(const PackedGroup& group) {
  Elements largest;
  for (size_t i = 0; i < group.whole.size(); ++i) {
    if (group.whole[i]) largest = std::max(largest, group.sizes[i]);
  }
  return largest;
}

// Sets which sizes the family may have. Sizes come from files nobody vouches
// for, and the ranks from a flag.
Status AllowSizes(const PackOptions& options, SizeFamily* family) {
  Elements largest;
  for (const PackedGroup& group : family->packed) {
    largest = std::max(largest, LargestWhole(group));
    family->whole += std::count(group.whole.begin(), group.whole.end(), true);
  }
  if (family->whole == 0) {
    family->quantum = ChunkQuantum(options.world);
    family->least = family->quantum;
    return OkStatus();
  }
  family->quantum = WholeQuantum(options);
  const __int128 bits =
      (static_cast<__int128>((largest + options.align).count()) *
           options.shards +
       family->quantum.count()) *
      DTypeBits(family->dtype);
  if (bits > static_cast<__int128>(kLargestChunk.count()) * 8) {
    return InvalidArgument(fmt::format(
        "{} parameters that are updated as a whole ({}, the largest of {} "
        "elements) need chunks of more than 1 PiB, cut into {} shards; give "
        "fewer ranks, or a smaller alignment",
        DTypeName(family->dtype), family->whole, largest.count(),
        options.shards));
  }
  // Those that stay whole may all be empty.
  family->least = std::max(LeastForWhole(largest, options), family->quantum);
  return OkStatus();
}

SizeFamily& FamilyOf(const ParamGroup& group,
                     std::vector<SizeFamily>* families) {
  const auto found = std::find_if(
      families->begin(), families->end(), [&group](const SizeFamily& family) {
        return family.dtype == group.dtype &&
               family.trainable == group.trainable &&
               family.moments8 == group.moments8;
      });
  if (found != families->end()) return *found;
  SizeFamily& added = families->emplace_back();
  added.dtype = group.dtype;
  added.trainable = group.trainable;
  added.moments8 = group.moments8;
  return added;
}

}  // namespace

Result<std::vector<SizeFamily>> SizeFamilies(std::span<const ParamSpec> params,
                                             const PackOptions& options) {
  std::vector<SizeFamily> families;
  const std::vector<ParamGroup> groups = GroupParams(params);
  for (size_t g = 0; g < groups.size(); ++g) {
    SizeFamily& family = FamilyOf(groups[g], &families);
    PackedGroup packed;
    CASTOR_ASSIGN_OR_RETURN(packed.sizes, GroupSizes(params, groups[g]));
    packed.whole = GroupWhole(params, groups[g], options);
    family.groups.push_back(g);
    family.packed.push_back(std::move(packed));
  }
  for (SizeFamily& family : families) {
    CASTOR_RETURN_IF_ERROR(AllowSizes(options, &family));
  }
  return families;
}

std::vector<Elements> SizesOfGroups(std::span<const SizeFamily> families,
                                    std::span<const Elements> sizes) {
  CASTOR_CHECK_EQ(families.size(), sizes.size());
  size_t count = 0;
  for (const SizeFamily& family : families) count += family.groups.size();
  std::vector<Elements> of_groups(count);
  for (size_t f = 0; f < families.size(); ++f) {
    for (const size_t g : families[f].groups) of_groups[g] = sizes[f];
  }
  return of_groups;
}

Status ValidateFamilySums(const SizeFamily& family, Elements chunk_size,
                          const PackOptions& options) {
  std::vector<Elements> all;
  for (const PackedGroup& group : family.packed) {
    all.insert(all.end(), group.sizes.begin(), group.sizes.end());
  }
  // Each group ends with a chunk that is not full.
  return ValidatePackSums(
      all, chunk_size * static_cast<int64_t>(family.packed.size()),
      family.dtype, options);
}

PackCount CountFamily(std::span<const PackedGroup> groups, Elements chunk_size,
                      const PackOptions& options) {
  PackCount sum;
  for (const PackedGroup& group : groups) {
    const PackCount count =
        CountPacking(group.sizes, chunk_size, options, group.whole);
    sum.chunks += count.chunks;
    sum.oversize_chunks += count.oversize_chunks;
    sum.allocated += count.allocated;
    sum.oversize_allocated += count.oversize_allocated;
  }
  return sum;
}

}  // namespace castor
