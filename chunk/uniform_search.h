// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_UNIFORM_SEARCH_H_
#define CASTOR_CHUNK_UNIFORM_SEARCH_H_

// Part of the chunk-size search (chunk_size_search.h). One chunk size for a
// group: which allowed C wastes least, over every allowed C and not a sample of
// them, and a certificate that says why.
//
// Between two neighbouring distinct parameter sizes the set of oversize
// parameters is fixed, so next-fit's chunk count is non-increasing in C there
// (greedy is optimal for a fixed order) and waste grows with C while the count
// stays: the optimum is at the left end of a piece of constant count. The
// search enumerates those pieces (chunk/packing_sweep.h) instead of sizes. Pure
// functions, thread-safe.

#include <span>

#include "chunk/base/units.h"
#include "chunk/chunk_packer.h"
#include "chunk/mode_search.h"
#include "chunk/packing_sweep.h"
#include "chunk/search_certificate.h"

namespace castor {

ModeSearch SearchUniform(const ModeSearchInput& input);

// The certificate of the least waste among `pieces`, which end at `max_size`:
// the fewest intervals whose bounds still reach it. `payload` is the sum of the
// parameters' sizes. REQUIRES: pieces as SweepChunkSizes makes them.
SearchCertificate BuildCertificate(std::span<const SizePiece> pieces,
                                   Elements max_size, Elements payload,
                                   const PackOptions& options);

}  // namespace castor

#endif  // CASTOR_CHUNK_UNIFORM_SEARCH_H_
