// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_SEALING_LAYOUT_CHOICE_H_
#define CASTOR_COLLECTIVES_SEALING_LAYOUT_CHOICE_H_

// Which layout parameters get: the one that was given, chunks of the size that
// was given, or of a size that is searched until memory suffices. Pure
// functions, thread-safe.

#include <span>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/param_spec.h"
#include "chunk/search/chunk_bounds.h"
#include "collectives/memory/sharding.h"
#include "collectives/sealing/seal_plan.h"
#include "collectives/zero_options.h"

namespace castor {

// Between which sizes a search looks, one after the other: ChunkBoundsFor with
// what the options say.
std::vector<ChunkBounds> BoundsFor(std::span<const ParamSpec> params,
                                   const ZeroOptions& options, int world,
                                   Bytes device_budget);

// The layout given, if it is of these parameters, or the one made of them by
// what the options say. REQUIRES: CheckOptions is ok; the options give a
// layout, a chunk size or a largest one.
Result<ChunkLayout> LayoutOf(std::span<const ParamSpec> params,
                             const ZeroOptions& options, int world);

// The same. Where the options give none of these, it is the first layout within
// BoundsFor that the budgets serve. Where they serve none, Infeasible as
// PlanMemory, with NearestRaises: with any of these, a search finds what fits.
Result<ChunkLayout> ChooseLayout(std::span<const ParamSpec> params,
                                 const ZeroOptions& options,
                                 const Sharding& sharding,
                                 const SealBudgets& budgets,
                                 const SealOptions& declared);

// Moments of smaller parameters are never kept in 8 bits: norms and biases
// among them take little memory and much precision (Dettmers et al. 2022).
inline constexpr Elements kLeastMoments8{4096};

// InvalidArgument, naming the first parameter, where a layout that was made
// elsewhere does not keep parameters whose moments are of 8 bits apart.
Status CheckMomentChunks(const ChunkLayout& layout,
                         std::span<const ParamSpec> params,
                         const ZeroOptions& options);

// What to say of a layout whose chunk size the options give. Empty unless the
// layout wastes more than a tenth of the model, and a search from half of that
// size to twice picks a better one.
std::string WastedByGivenSize(const ChunkLayout& layout,
                              std::span<const ParamSpec> params,
                              const ZeroOptions& options, int world);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_SEALING_LAYOUT_CHOICE_H_
