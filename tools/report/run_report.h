// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_RUN_REPORT_H_
#define CASTOR_TOOLS_REPORT_RUN_REPORT_H_

// What `castor report` does once its flags are read: shows a record, exports
// it. Owner thread only.

#include <string>

#include "chunk/base/status.h"
#include "tools/cli/console.h"
#include "tools/cli/document.h"
#include "tools/cli/text_forms.h"
#include "tools/report/run_times.h"

namespace castor {

struct ReportRequest {
  std::string file;
  Form form = Form::kPage;
  StepRange steps;
  std::string chrome;  // where to export to; empty: nowhere
  StripInk ink = StripInk::kAscii;
};

// Writes the report to console.out. kStoppedEarly when the record is not
// complete: what could be read has been written then, and the message says
// where it ends.
Status RunReport(const ReportRequest& request, const Console& console);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_RUN_REPORT_H_
