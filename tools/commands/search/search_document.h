// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_DOCUMENT_H_
#define CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_DOCUMENT_H_

// What `castor search` says, and the parts of it. Pure functions, thread-safe.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "chunk/chunk_size_search.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/text/json_value.h"
#include "placement/tier_model.h"
#include "tools/cli/text/document.h"
#include "tools/commands/search/search_run.h"
#include "tools/zoo/zoo.h"

namespace castor {

// The page of `castor search`, and its JSON of schema "castor.search/1".
//
// The page is one screen of kPageLines lines and kPageColumns columns, as far
// as the number of groups allows: tables leave out what is between, and say how
// much.
//
// In JSON as collectives/answers/search_answer.h has it. Where the
// experts of a model were searched in both ways, `expert_layouts` has both
// results, and the document around it is that of the model as it is.
Document SearchDocument(const SearchReport& report);

// Of --zoo, schema "castor.search.zoo/1". On the page a row for each model, of
// at most kPageColumns columns; among the plain lines one for each model and
// way to choose.
Document ZooDocument(std::span<const ZooRow> rows,
                     const SearchQuestion& question);

// --- search_candidates.cc: sizes and what they cost --------------------------
// The time of a step's transfers included where a machine is known
// (placement/machine/step_cost.h).

// Every candidate of every group, for --plain.
Table AllCandidates(const SearchReport& report);

// A table of one group's candidates for the page, by chunk size, about `rows`
// of them: what has a note comes first. After them the user's own size, if
// there is one, and what other systems' rules pick. Returns how many are left
// out.
int64_t AddCandidates(const SearchReport& report, size_t group, size_t rows,
                      Document* doc);

// Where the column's title says that it is a percentage.
Value ShareCell(double share);

// The links that were used, and those that would be but have no speed.
void SayMachine(const SearchReport& report, Document* doc);

// --- search_waste.cc: what is wasted, and why not less -----------------------

// A paragraph for each mode: how much the best of all that it allows wastes,
// and why nothing it allows wastes less. `brief`: how much alone, in one.
void SayProofs(const GroupSearchResult& group, const PackOptions& pack,
               bool brief, Document* doc);

// The causes in bytes, and chunks with the parameters they hold: on the page
// those that waste most, in JSON every one, in elements of its type. REQUIRES:
// a choice.
Document ExplainDocument(const SearchReport& report);

// What Gemini's rule picks, what it claims of that and what is true, next to
// Castor's own answer, where that was asked for.
void SayRule(const SearchReport& report, Document* doc);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_DOCUMENT_H_
