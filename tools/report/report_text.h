// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_REPORT_TEXT_H_
#define CASTOR_TOOLS_REPORT_REPORT_TEXT_H_

// A run's statistics as people read them, on one screen. Pure function,
// thread-safe.

#include <string>
#include <string_view>

#include "tools/report/run_statistics.h"

namespace castor {

struct TextOptions {
  // What strips are drawn with: ASCII is the same everywhere, blocks read
  // better on a terminal that shows UTF-8.
  enum class Ink { kAscii, kBlocks };
  Ink ink = Ink::kAscii;
};

// `name` is what the record is called. Ends with a line end.
std::string ReportText(std::string_view name, const RunStatistics& statistics,
                       const TextOptions& options = {});

// "1.23 s", "45.6 ms", "789 us", "12 ns": three digits. REQUIRES: ns >= 0.
std::string FormatDuration(int64_t ns);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_REPORT_TEXT_H_
