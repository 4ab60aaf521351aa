// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/report_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "offload/record/record_reader.h"
#include "tools/cli/quote.h"
#include "tools/report/chrome_trace.h"
#include "tools/report/report_data.h"
#include "tools/report/run_statistics.h"

namespace castor {
namespace {

bool ParseStep(std::string_view text, int32_t* step) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *step);
  return error == std::errc() && rest == end && *step >= 1;
}

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
  std::error_code ignored;
  if (std::filesystem::equivalent(request.chrome, request.file, ignored)) {
    return InvalidArgument(fmt::format(
        "the trace would overwrite the record {}; name another file",
        Quoted(request.file)));
  }
  errno = 0;
  std::ofstream file(request.chrome, std::ios::binary | std::ios::trunc);
  const bool opened = file.is_open();
  if (opened) WriteChromeTrace(record, request.steps, file);
  file.close();
  if (file) return OkStatus();
  const std::string why = errno != 0 ? std::strerror(errno) : "write failed";
  if (opened && std::filesystem::is_regular_file(request.chrome, ignored)) {
    std::filesystem::remove(request.chrome, ignored);
  }
  return IoError(fmt::format(
      "the trace cannot be written to {}: {}; name a file in a folder that "
      "exists and has room, or export fewer steps with --steps",
      Quoted(request.chrome), why));
}

std::string Render(const ReportRequest& request, const RunRecord& record) {
  StatisticsOptions options;
  options.steps = request.steps;
  const RunStatistics statistics = ComputeRunStatistics(record, options);
  switch (request.format) {
    case ReportRequest::Format::kJson:
      return ReportJson(request.file, statistics, record.completeness);
    case ReportRequest::Format::kPlain:
      return ReportPlain(request.file, statistics, record.completeness);
    case ReportRequest::Format::kText:
      break;
  }
  return ReportText(request.file, statistics, request.text);
}

}  // namespace

Result<StepRange> ParseStepRange(std::string_view text) {
  StepRange range;
  const size_t dash = text.find('-');
  const std::string_view first = text.substr(0, dash);
  const std::string_view last =
      dash == std::string_view::npos ? first : text.substr(dash + 1);
  if (!ParseStep(first, &range.first) || !ParseStep(last, &range.last) ||
      range.last < range.first) {
    return InvalidArgument(fmt::format(
        "{} names no steps: write a number from 1 on, or two with a dash "
        "between them, the smaller first, as in 2-30",
        Quoted(text)));
  }
  return range;
}

Status RunReport(const ReportRequest& request, std::ostream& out,
                 std::ostream& notes) {
  CASTOR_ASSIGN_OR_RETURN(const RunRecord record, ReadRecord(request.file));
  CASTOR_RETURN_IF_ERROR(CheckSteps(record, request.steps));
  out << Render(request, record) << std::flush;
  if (!out) return IoError("the report cannot be written to the output");
  if (record.dropped > 0) {
    notes << fmt::format(
        "note: {} of {} events were dropped while recording, so sums are too "
        "low; record to a faster disk\n",
        record.dropped,
        record.dropped + static_cast<int64_t>(record.events.size()));
  }
  if (!request.chrome.empty()) {
    CASTOR_RETURN_IF_ERROR(Export(record, request));
    notes << fmt::format("wrote {}: open it in https://ui.perfetto.dev\n",
                         request.chrome);
  }
  return record.completeness;
}

}  // namespace castor
