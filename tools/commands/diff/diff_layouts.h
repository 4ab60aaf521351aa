// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_DIFF_DIFF_LAYOUTS_H_
#define CASTOR_TOOLS_COMMANDS_DIFF_DIFF_LAYOUTS_H_

// Two layouts, next to each other. Pure function, thread-safe.

#include <vector>

#include "chunk/layout_file.h"
#include "tools/commands/diff/diff_report.h"

namespace castor {

// Chunks, their bytes and waste, and the parameters that one has and the other
// has not, or that lie in another chunk or elsewhere in theirs.
std::vector<DiffSection> DiffLayouts(const LayoutFile& a, const LayoutFile& b);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_DIFF_DIFF_LAYOUTS_H_
