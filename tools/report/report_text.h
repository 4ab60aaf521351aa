// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_REPORT_TEXT_H_
#define CASTOR_TOOLS_REPORT_REPORT_TEXT_H_

// A run's statistics as people read them, on one screen. Pure function,
// thread-safe.

#include <string>
#include <string_view>

#include "tools/report/run_statistics.h"
#include "tools/report/strip.h"

namespace castor {

struct TextOptions {
  StripInk ink = StripInk::kAscii;
};

// `name` is what the record is called. Ends with a line end.
std::string ReportText(std::string_view name, const RunStatistics& statistics,
                       const TextOptions& options = {});

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_REPORT_TEXT_H_
