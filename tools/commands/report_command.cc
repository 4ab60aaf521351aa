// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/report_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <langinfo.h>
#include <locale.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <system_error>
#include <vector>

#include "chunk/text/quote.h"
#include "offload/record/record_reader.h"
#include "tools/cli/command.h"
#include "tools/cli/flags.h"
#include "tools/cli/output_paths.h"
#include "tools/commands/registry.h"
#include "tools/report/advice.h"
#include "tools/report/chrome_trace.h"
#include "tools/report/memory_snapshot.h"
#include "tools/report/page/page.h"
#include "tools/report/report_document.h"
#include "tools/report/run_model.h"
#include "tools/report/statistics/run_files.h"
#include "tools/report/statistics/run_setup.h"
#include "tools/report/statistics/run_statistics.h"
#include "tools/report/statistics/step_detail.h"

namespace castor {
namespace {

constexpr char kFooter[] =
    R"(FILE is what a run wrote with --record. Of ranks that are processes each writes FILE.0, FILE.1 and so
on; FILE names them all. Of a record that was cut off the page shows the readable part, with exit
code 6.

Examples:
  castor report run.rec
  castor report run.rec --steps 2-30
  castor report run.rec --html run.html           (open it in a browser)
  castor report run.rec --chrome run.json         (open it in https://ui.perfetto.dev)
  castor report run.rec --memory-viz run.pickle   (open it in https://pytorch.org/memory_viz)
  castor report run.rec --json
)";

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

// A file that a record is exported to.
struct ExportFile {
  const std::string& path;  // empty: none was asked for
  const char* what;         // in messages
  const char* viewer;
};

std::array<ExportFile, 3> ExportsOf(const ReportRequest& request) {
  return {{{request.html, "page", "a browser"},
           {request.chrome, "trace", "https://ui.perfetto.dev"},
           {request.memory_viz, "memory snapshot",
            "https://pytorch.org/memory_viz"}}};
}

Status CheckExports(const ReportRequest& request) {
  return CheckOutputs(
      std::array{NamedPath{"FILE", request.file}},
      std::array{NamedPath{"--html", request.html},
                 NamedPath{"--chrome", request.chrome},
                 NamedPath{"--memory-viz", request.memory_viz}});
}

// Leaves nothing behind when it fails.
Status Export(const ExportFile& to,
              const std::function<void(std::ostream&)>& write) {
  // A pipe that nobody reads would hold an open() that blocks for ever.
  const int probe =
      ::open(to.path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (probe < 0 && errno == ENXIO) {
    return InvalidArgument(fmt::format(
        "the {} cannot be written to {}: nobody reads this pipe; start its "
        "reader first, or name a file",
        to.what, Quoted(to.path)));
  }
  errno = 0;
  std::ofstream file(to.path, std::ios::binary | std::ios::trunc);
  const bool opened = file.is_open();
  if (probe >= 0) ::close(probe);
  if (opened) write(file);
  file.close();
  if (file) return OkStatus();
  const int error = errno;
  std::error_code ignored;
  if (opened && std::filesystem::is_regular_file(to.path, ignored)) {
    std::filesystem::remove(to.path, ignored);
  }
  const std::string why = fmt::format(
      "the {} cannot be written to {}: {}; name a file in a folder that "
      "exists and has room, or export fewer steps with --steps",
      to.what, Quoted(to.path),
      error != 0 ? std::strerror(error) : "the write failed");
  const bool is_usage = error == ENOENT || error == ENOTDIR || error == EISDIR;
  return is_usage ? InvalidArgument(why) : IoError(why);
}

// Whether the user's locale writes UTF-8.
bool WritesUtf8() {
  const locale_t locale = newlocale(LC_CTYPE_MASK, "", nullptr);
  if (locale == nullptr) return false;
  const bool utf8 = std::strcmp(nl_langinfo_l(CODESET, locale), "UTF-8") == 0;
  freelocale(locale);
  return utf8;
}

class ReportCommand final : public Command {
 public:
  std::string_view name() const override { return "report"; }
  std::string_view summary() const override {
    return "where chunks were in a recorded run, and who waited for what";
  }

  void Declare(CLI::App& app) override {
    AddPositional(app, "FILE", &request_.file, "the record of a run");
    AddIntFlag(app, "--step", &step_, 1, INT32_MAX, "look at this step only");
    AddTextFlag(app, "--steps", &steps_,
                "look at these steps only, for example 2-30");
    AddTextFlag(app, "--html", &request_.html,
                "also write a page of pictures to this file");
    AddTextFlag(app, "--chrome", &request_.chrome,
                "also write a trace as Chrome JSON to this file");
    AddTextFlag(app, "--memory-viz", &request_.memory_viz,
                "also write a memory snapshot as of PyTorch to this file");
    AddSwitch(app, "--json", &json_, "print one JSON document");
    AddSwitch(app, "--plain", &plain_, "print tab-separated lines");
    SetHelpFooter(app, kFooter);
  }

  Status Run(const Console& console) override {
    CASTOR_ASSIGN_OR_RETURN(request_.form, FormOf(json_, plain_));
    if (step_ > 0 && !steps_.empty()) {
      return InvalidArgument("--step and --steps exclude each other");
    }
    if (step_ > 0) steps_ = std::to_string(step_);
    if (!steps_.empty()) {
      CASTOR_ASSIGN_OR_RETURN(request_.steps, ParseStepRange(steps_));
    }
    if (console.out_is_terminal && WritesUtf8()) {
      request_.ink = StripInk::kBlocks;
    }
    return RunReport(request_, console);
  }

 private:
  ReportRequest request_;
  int64_t step_ = 0;  // 0: not given
  std::string steps_;
  bool json_ = false;
  bool plain_ = false;
};

}  // namespace

Status RunReport(const ReportRequest& request, const Console& console) {
  CASTOR_RETURN_IF_ERROR(CheckExports(request));
  CASTOR_ASSIGN_OR_RETURN(const RunRecord record, ReadRun(request.file));
  CASTOR_RETURN_IF_ERROR(CheckSteps(record, request.steps));
  const RunStatistics run = ComputeRunStatistics(record, request.steps);
  const RunSetup setup = ReadSetup(record);
  const int32_t step = TypicalStep(run, request.steps);
  const Advice advice = AdviceFor(ModelOf(record, setup, run, step), run);
  Document document = ReportDocument(request.file, run, record.completeness,
                                     advice, request.ink);
  AddPictures(record, setup, step, &document);
  Print(document, request.form, console);
  CASTOR_RETURN_IF_ERROR(FlushOutput(console));
  if (record.dropped > 0) {
    console.Note(fmt::format(
        "{} of {} events were dropped while recording, so sums are too low; "
        "record to a faster disk",
        record.dropped,
        record.dropped + static_cast<int64_t>(record.events.size())));
  }
  const std::array<std::function<void(std::ostream&)>, 3> writers = {
      [&](std::ostream& out) { out << RunPage(ForPage(document.Json())); },
      [&](std::ostream& out) { WriteChromeTrace(record, request.steps, out); },
      [&](std::ostream& out) {
        WriteMemorySnapshot(record, request.steps, out);
      }};
  for (size_t i = 0; i < writers.size(); ++i) {
    const ExportFile file = ExportsOf(request)[i];
    if (file.path.empty()) continue;
    CASTOR_RETURN_IF_ERROR(Export(file, writers[i]));
    console.Note(
        fmt::format("wrote {}: open it in {}", file.path, file.viewer));
  }
  return record.completeness;
}

std::unique_ptr<Command> MakeReportCommand() {
  return std::make_unique<ReportCommand>();
}

}  // namespace castor
