// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_PROOF_H_
#define CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_PROOF_H_

// What the certificates of a search prove, in sentences for people. Pure
// functions, thread-safe.

#include <string>

#include "chunk/chunk_packer.h"
#include "chunk/search_result.h"

namespace castor {

// A paragraph for each mode: how much the best of all that it allows wastes,
// and why nothing it allows wastes less; where the bound is lower than that,
// the gap.
std::string ProofParagraphs(const GroupSearchResult& group,
                            const PackOptions& pack);

// The bounds alone, in one paragraph.
std::string ProofSummary(const GroupSearchResult& group);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_PROOF_H_
