// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_SEARCH_LAYER_CERTIFICATE_H_
#define CASTOR_CHUNK_SEARCH_LAYER_CERTIFICATE_H_

// Beside search_certificate.h. The proof of a layer search: where sizes repeat
// back to back, and for each m from 1 to 8 the least size C_m, a multiple of Q
// that holds every parameter of the repeat, at which next-fit packs one repeat
// into at most m chunks. Counts never rise with C there, so one packing at C_m
// and one at C_m - Q prove a step. Values and pure functions, thread-safe.

#include <cstdint>
#include <span>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/layout/chunk_packer.h"

namespace castor {

// The m of a layer search go from 1 to this.
inline constexpr int64_t kMaxChunksPerRepeat = 8;

// Parameters [first, first + params * repeats) of a group are `repeats` times
// the same `params` sizes, zeros included.
struct LayerRepeat {
  int64_t first = 0;
  int64_t params = 0;
  int64_t repeats = 0;  // 2 or more
};

struct LayerStep {
  int64_t chunks_per_repeat = 0;  // m
  Elements chunk_size;            // C_m
  Elements waste;                 // of the whole group packed at C_m
};

struct LayerCertificate {
  LayerRepeat repeat;
  std::vector<LayerStep> steps;  // m = 1 to 8, each once, in this order
};

// Verifies `certificate` for these parameter sizes, independently of the
// search. Malformed with the first thing that does not hold: a repeat that does
// not repeat, has no elements, could begin a parameter earlier or goes on once
// more; an m left out; a size that is not the least for its m; a wrong waste;
// or a `best_waste` that is not the least of the steps'. That no other run of
// repeats covers more elements is not checked. REQUIRES: sizes >= 0.
Status VerifyLayerCertificate(const LayerCertificate& certificate,
                              std::span<const Elements> sizes,
                              const PackOptions& options, Elements best_waste);

}  // namespace castor

#endif  // CASTOR_CHUNK_SEARCH_LAYER_CERTIFICATE_H_
