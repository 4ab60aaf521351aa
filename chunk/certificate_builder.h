// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_CERTIFICATE_BUILDER_H_
#define CASTOR_CHUNK_CERTIFICATE_BUILDER_H_

// Turns what the search knows into a proof that does not need it. Pure
// function, thread-safe.

#include <span>

#include "chunk/base/units.h"
#include "chunk/packing_sweep.h"
#include "chunk/search_certificate.h"

namespace castor {

// The certificate of the least waste among `pieces`, which end at `max_size`:
// the fewest intervals whose bounds still reach it. `payload` is the sum of the
// parameters' sizes. REQUIRES: pieces as SweepChunkSizes makes them.
SearchCertificate BuildCertificate(std::span<const SizePiece> pieces,
                                   Elements max_size, Elements payload,
                                   const PackOptions& options);

}  // namespace castor

#endif  // CASTOR_CHUNK_CERTIFICATE_BUILDER_H_
