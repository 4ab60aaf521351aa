// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_REPORT_COMMAND_H_
#define CASTOR_TOOLS_COMMANDS_REPORT_COMMAND_H_

// `castor report FILE`: where chunks were in a recorded run, what moved, who
// waited for what. Owner thread only.

#include <string>

#include "chunk/base/status.h"
#include "tools/cli/console.h"
#include "tools/cli/text/document.h"
#include "tools/cli/text/text_forms.h"
#include "tools/report/statistics/run_times.h"

namespace castor {

struct ReportRequest {
  std::string file;
  Form form = Form::kPage;
  StepRange steps;
  // Where to export to; empty: nowhere.
  std::string html;  // where a page goes; empty: nowhere
  std::string chrome;
  std::string memory_viz;
  StripInk ink = StripInk::kAscii;
};

// Writes the report to console.out. kStoppedEarly when the record is not
// complete: what could be read has been written then, and the message says
// where it ends.
Status RunReport(const ReportRequest& request, const Console& console);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_REPORT_COMMAND_H_
