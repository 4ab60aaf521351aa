// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_SEARCH_RECOMMENDATION_H_
#define CASTOR_CHUNK_SEARCH_RECOMMENDATION_H_

// Part of the chunk-size search (chunk_size_search.h).
// Chooses among the candidates of a search. Pure function, thread-safe.

#include <optional>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/search/search_result.h"

namespace castor {

// Fills, from the candidates of every group, their reasons (which may have one
// already; the best of a mode has its candidate's), `best`,
// `recommended` and the rule it follows. Groups choose by falling payload, each
// within what the budget leaves when every later one takes its least. What does
// not suit is chosen only where nothing that suits fits.
// Infeasible where even the least of all groups do not fit together. REQUIRES:
// groups with at least one candidate each, by chunk size, the best of each mode
// among them.
Status Recommend(std::optional<Bytes> device_budget, SearchResult* result);

}  // namespace castor

#endif  // CASTOR_CHUNK_SEARCH_RECOMMENDATION_H_
