// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_DIFF_DIFF_H_
#define CASTOR_TOOLS_COMMANDS_DIFF_DIFF_H_

// What two files of one kind have in common and what not. Values and pure
// functions, thread-safe.

#include <string>
#include <vector>

#include "chunk/layout_file.h"
#include "chunk/text/json_value.h"
#include "offload/record/record_reader.h"
#include "tools/cli/text/document.h"
#include "tools/report/statistics/run_times.h"

namespace castor {

struct DiffRow {
  std::string what;
  Value a;  // nothing: the file has no such thing
  Value b;

  bool equal() const { return a.Json() == b.Json(); }
};

struct DiffSection {
  std::string name;
  std::vector<DiffRow> rows;
};

// Times and bytes are of a step, in the median of those of `steps` that are
// complete, bytes of all ranks together; stalls are the mean of a step. Homes
// are told as far as transfers show them.
std::vector<DiffSection> DiffRuns(const RunRecord& a, const RunRecord& b,
                                  const StepRange& steps);

// Two JSON documents of one schema: plans, or what castor plan and castor
// simulate print. A section for all plain values, and one for each other
// member, with a row for each value that differs: named by the way to it, where
// an element of an array goes by what it says of itself ("tier", "name", "from"
// and "to", "cause"), and else by its number. The last row of a section counts
// those that are equal. What names files or commands is left out.
std::vector<DiffSection> DiffDocuments(const JsonValue& a, const JsonValue& b);

// Chunks, their bytes and waste, and the parameters that one has and the other
// has not, or that lie in another chunk or elsewhere in theirs.
std::vector<DiffSection> DiffLayouts(const LayoutFile& a, const LayoutFile& b);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_DIFF_DIFF_H_
