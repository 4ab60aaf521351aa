// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_RUN_REPORT_H_
#define CASTOR_TOOLS_REPORT_RUN_REPORT_H_

// What `castor report` does once its flags are read: shows a record, exports
// it. Owner thread only.

#include <string>
#include <string_view>

#include "chunk/base/status.h"
#include "tools/cli/console.h"
#include "tools/report/report_text.h"
#include "tools/report/step_windows.h"

namespace castor {

struct ReportRequest {
  enum class Format { kText, kJson, kPlain };

  std::string file;
  Format format = Format::kText;
  StepRange steps;
  std::string chrome;  // where to export to; empty: nowhere
  TextOptions text;
};

// "7", or "2-30" with both ends included; steps count from 1. InvalidArgument
// for anything else.
Result<StepRange> ParseStepRange(std::string_view text);

// Writes the report to console.out. kStoppedEarly when the record is not
// complete: what could be read has been written then, and the message says
// where it ends.
Status RunReport(const ReportRequest& request, const Console& console);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_RUN_REPORT_H_
