// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_DOCUMENT_H_
#define CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_DOCUMENT_H_

// What `castor search` says. Pure functions, thread-safe.

#include <span>

#include "chunk/chunk_size_search.h"
#include "tools/cli/document.h"
#include "tools/commands/search/search_report.h"
#include "tools/zoo/zoo.h"

namespace castor {

// Schema "castor.search/1" of design section 5.
//
// The page is one screen of kPageLines lines and kPageColumns columns, as far
// as the number of groups allows: tables leave out what is between, and say how
// much.
//
// In JSON, with several groups, candidates name theirs, `best`, `recommended`
// and `certificate` are lists, one entry a group, and `totals` adds up what
// each choice costs; with none, the first two are null. `certificate` proves
// `best`; `certificates` has one entry for each group and mode. Where the
// experts of a model were searched in both ways, `expert_layouts` has both
// results, and the document around it is that of the model as it is.
Document SearchDocument(const SearchReport& report);

// Of --zoo, schema "castor.search.zoo/1". On the page a row for each model, of
// at most kPageColumns columns; among the plain lines one for each model and
// way to choose.
Document ZooDocument(std::span<const ZooRow> rows,
                     const SearchOptions& options);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_DOCUMENT_H_
