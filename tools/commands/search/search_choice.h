// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_CHOICE_H_
#define CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_CHOICE_H_

// One choice of chunk sizes for a whole model, out of what a search found or by
// the user's own size, and the layout that it makes: what `castor search -o`
// writes and --explain explains. Pure functions, thread-safe.

#include <optional>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "tools/commands/search/search_report.h"

namespace castor {

// The layout of what `pick` says. With kChunk every group has one size, `chunk`
// rounded up to a multiple of Q of its type; where it differs, a sentence is
// added to `notes`. InvalidArgument where that cannot be packed. REQUIRES:
// `chunk` is given with kChunk and only then; `report.result` was found in
// `report.model`.
Result<SearchChoice> MakeChoice(const SearchReport& report, ChoicePick pick,
                                std::optional<Bytes> chunk,
                                std::vector<std::string>* notes);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_CHOICE_H_
