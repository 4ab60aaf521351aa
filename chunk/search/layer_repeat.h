// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_SEARCH_LAYER_REPEAT_H_
#define CASTOR_CHUNK_SEARCH_LAYER_REPEAT_H_

// Part of the chunk-size search (chunk_size_search.h).
// Which part of a list of parameters repeats back to back: a model's layers,
// found by sizes alone, whatever the parameters are called. Pure function,
// thread-safe.

#include <optional>
#include <span>

#include "chunk/base/units.h"
#include "chunk/search/layer_certificate.h"

namespace castor {

// Of all runs of two or more equal sequences of sizes, back to back, the one
// that covers the most elements; of those the one of the shortest sequence, and
// of those the one that begins first. So a sequence is never itself a repeat of
// a shorter one, and where the list goes on periodically before or behind a
// model's layers (a norm of the same size), the run begins as early as it can.
// Empty where nothing repeats that has elements.
//
// Exact, by the method of Main and Lorentz ("An O(n log n) algorithm for
// finding all repetitions in a string", J. Algorithms 5, 1984). The list is
// halved. Four passes that match each half against itself and the other give
// the repetitions across the middle. A half that has no more elements than the
// best run so far is left out: in a model of equal layers, every one after the
// first pass. O(n log n) in the worst case, without hashing. REQUIRES: sizes >=
// 0 whose sum does not overflow.
std::optional<LayerRepeat> FindLayerRepeat(std::span<const Elements> sizes);

}  // namespace castor

#endif  // CASTOR_CHUNK_SEARCH_LAYER_REPEAT_H_
