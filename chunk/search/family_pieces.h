// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_SEARCH_FAMILY_PIECES_H_
#define CASTOR_CHUNK_SEARCH_FAMILY_PIECES_H_

// Part of the chunk-size search (chunk_size_search.h).
// What every allowed chunk size gives all groups of a family together
// (size_family.h). Pure function, thread-safe.
//
// A group in which no parameter stays whole is swept (packing_sweep.h). Where
// parameters stay whole, the borders of shards move with C and a sweep has no
// old borders to meet again; the pieces are found by bisection, as counts never
// rise with C there either:
//
// Let C' > C, and d the difference of their shards. Claim: a parameter at x in
// a chunk of C lies at x + j * d at most in a chunk of C', j borders of C'
// being before. Only a border of C' that cuts a parameter could break the
// claim: the parameter moves to (j + 1) * (shard of C'). In C, the parameter
// ends behind border j + 1, and no border cuts it. So the parameter begins at
// (j + 1) * (shard of C) or later, which keeps the claim. What fits a chunk of
// C thus fits a chunk of C'. Greedy packing is optimal for a fixed order, so C'
// takes no more chunks.

#include <span>
#include <vector>

#include "chunk/base/units.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/layout/size_family.h"
#include "chunk/search/packing_sweep.h"

namespace castor {

// The pieces of [min_size, max_size], by size; two neighbours differ in their
// counts. REQUIRES: valid options; min_size <= max_size, multiples of `quantum`
// that the family allows; sizes >= 0 that ValidateFamilySums accepts at
// max_size.
std::vector<SizePiece> FamilyPieces(std::span<const PackedGroup> groups,
                                    Elements min_size, Elements max_size,
                                    Elements quantum,
                                    const PackOptions& options);

}  // namespace castor

#endif  // CASTOR_CHUNK_SEARCH_FAMILY_PIECES_H_
