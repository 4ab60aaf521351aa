// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_LAYOUT_SIZE_FAMILY_H_
#define CASTOR_CHUNK_LAYOUT_SIZE_FAMILY_H_

// Which groups share a chunk size, and which sizes a family of groups may have.
// Groups of one dtype, trainable or frozen, are a family: they differ in how
// many states their optimizers keep, and all their chunks use the same slots.
// Values and pure functions, thread-safe.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/param_spec.h"

namespace castor {

// The parameters of one group, as packing sees them.
struct PackedGroup {
  std::vector<Elements> sizes;   // in order
  std::vector<bool> whole = {};  // by parameter; empty: none stays whole
};

struct SizeFamily {
  DType dtype = DType::kF32;
  bool trainable = true;
  bool moments8 = false;
  std::vector<size_t> groups;       // indices into GroupParams, rising
  std::vector<PackedGroup> packed;  // of these groups
  int64_t whole = 0;                // parameters that stay whole
  // A chunk size is a multiple of the quantum, and no smaller than the least.
  Elements quantum;
  Elements least;
};

// The families of GroupParams(params), in order of first sight. Malformed names
// the first parameter whose shape is. InvalidArgument where parameters that
// stay whole need chunks of more than kLargestChunk. REQUIRES: valid options.
Result<std::vector<SizeFamily>> SizeFamilies(std::span<const ParamSpec> params,
                                             const PackOptions& options);

// The chunk size of each group, as PackChunks takes them. `sizes`: by family.
std::vector<Elements> SizesOfGroups(std::span<const SizeFamily> families,
                                    std::span<const Elements> sizes);

// InvalidArgument where some group's sums could overflow: ValidatePackSums.
Status ValidateFamilySums(const SizeFamily& family, Elements chunk_size,
                          const PackOptions& options);

// The sum of the groups' counts, packed in chunks of one size.
PackCount CountFamily(std::span<const PackedGroup> groups, Elements chunk_size,
                      const PackOptions& options);

}  // namespace castor

#endif  // CASTOR_CHUNK_LAYOUT_SIZE_FAMILY_H_
