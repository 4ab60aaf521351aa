// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "chunk/base/quote.h"
#include "offload/record/record_reader.h"
#include "tools/report/chrome_trace.h"
#include "tools/report/report_document.h"
#include "tools/report/run_statistics.h"

namespace castor {
namespace {

// InvalidArgument when the record holds steps, but none of those asked for.
Status CheckSteps(const RunRecord& record, const StepRange& steps) {
  const std::vector<StepWindow> all = FindStepWindows(record, {});
  if (all.empty() || !FindStepWindows(record, steps).empty()) {
    return OkStatus();
  }
  const auto [first, last] = std::minmax_element(
      all.begin(), all.end(),
      [](const StepWindow& a, const StepWindow& b) { return a.step < b.step; });
  return InvalidArgument(
      fmt::format("the record holds steps {} to {}, and none of those asked "
                  "for; try --steps {}-{}",
                  first->step, last->step, first->step, last->step));
}

// Leaves nothing behind when it fails.
Status Export(const RunRecord& record, const ReportRequest& request) {
  errno = 0;
  std::ofstream file(request.chrome, std::ios::binary | std::ios::trunc);
  const bool opened = file.is_open();
  if (opened) WriteChromeTrace(record, request.steps, file);
  file.close();
  if (file) return OkStatus();
  const int error = errno;
  std::error_code ignored;
  if (opened && std::filesystem::is_regular_file(request.chrome, ignored)) {
    std::filesystem::remove(request.chrome, ignored);
  }
  const std::string why = fmt::format(
      "the trace cannot be written to {}: {}; name a file in a folder that "
      "exists and has room, or export fewer steps with --steps",
      Quoted(request.chrome),
      error != 0 ? std::strerror(error) : "the write failed");
  const bool is_usage = error == ENOENT || error == ENOTDIR || error == EISDIR;
  return is_usage ? InvalidArgument(why) : IoError(why);
}

}  // namespace

Status RunReport(const ReportRequest& request, const Console& console) {
  std::error_code ignored;
  if (std::filesystem::equivalent(request.chrome, request.file, ignored)) {
    return InvalidArgument(fmt::format(
        "the trace would overwrite the record {}; name another file",
        Quoted(request.file)));
  }
  CASTOR_ASSIGN_OR_RETURN(const RunRecord record, ReadRecord(request.file));
  CASTOR_RETURN_IF_ERROR(CheckSteps(record, request.steps));
  const RunStatistics run =
      ComputeRunStatistics(record, {.steps = request.steps});
  Print(ReportDocument(request.file, run, record.completeness, request.ink),
        request.form, console);
  CASTOR_RETURN_IF_ERROR(FlushOutput(console));
  if (record.dropped > 0) {
    console.Note(fmt::format(
        "{} of {} events were dropped while recording, so sums are too low; "
        "record to a faster disk",
        record.dropped,
        record.dropped + static_cast<int64_t>(record.events.size())));
  }
  if (!request.chrome.empty()) {
    CASTOR_RETURN_IF_ERROR(Export(record, request));
    console.Note(fmt::format("wrote {}: open it in https://ui.perfetto.dev",
                             request.chrome));
  }
  return record.completeness;
}

}  // namespace castor
