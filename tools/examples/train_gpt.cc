// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Trains a GPT on a text file or folder, with its parameters, gradients and
// optimizer states spread over a device budget, pinned host memory and NVMe; or
// with --reference, in plain arrays and without Castor.

#include <fmt/format.h>

#include <atomic>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/log.h"
#include "chunk/base/quote.h"
#include "chunk/base/status.h"
#include "offload/nvme/file_system_facts.h"
#include "offload/nvme/nvme_option.h"
#include "offload/record/record_writer.h"
#include "tools/cli/atomic_file.h"
#include "tools/cli/console.h"
#include "tools/cli/flags.h"
#include "tools/cli/json_out.h"
#include "tools/cli/size_text.h"
#include "tools/cli/stop_signals.h"
#include "tools/examples/gpt/model_list.h"
#include "tools/examples/gpt/reference_trainer.h"
#include "tools/examples/gpt/run_summary.h"
#include "tools/examples/gpt/text_data.h"
#include "tools/examples/gpt/train_flags.h"
#include "tools/examples/gpt/trainer.h"
#include "tools/examples/gpt/training.h"
#include "tools/models/trace_reader.h"

namespace castor::gpt {
namespace {

constexpr char kName[] = "train_gpt";

// What the user should know before bytes go there.
Status DescribeNvme(const NvmeOption& nvme, const Console& console) {
  CASTOR_ASSIGN_OR_RETURN(const FileSystemFacts facts,
                          DescribeFileSystem(nvme.directory));
  console.Note(fmt::format("nvme folder {}: {}, {} free",
                           Quoted(nvme.directory.string()), facts.type,
                           FormatSize(facts.free)));
  if (facts.in_memory) {
    console.Note(
        fmt::format("{} is host memory, not a drive: what goes there counts "
                    "against no budget and saves no memory; give a folder on a "
                    "drive",
                    facts.type));
  }
  if (facts.overlay) {
    console.Note(
        "an overlay is slow and often small; give a folder on a drive");
  }
  return OkStatus();
}

// On a terminal one line that is written over, else every few lines.
class Progress {
 public:
  Progress(const TrainOptions& options, const Console& console)
      : options_(options), console_(console) {}
  ~Progress() {
    if (width_ > 0) console_.err << '\n';
  }

  void Show(const StepReport& report) {
    constexpr int64_t kEvery = 5;
    const std::string line = ProgressLine(options_, report);
    if (console_.err_is_terminal) {
      console_.err << fmt::format("\r{:<{}}", line, width_) << std::flush;
      width_ = line.size();
    } else if (report.step == 1 || report.step % kEvery == 0 ||
               report.step == options_.steps) {
      console_.err << line << std::endl;
    }
  }

 private:
  const TrainOptions& options_;
  const Console& console_;
  size_t width_ = 0;  // of the line that stands there
};

Result<TrainOutcome> TrainAs(const TrainFlags& flags,
                             const TrainOptions& options, const TextData& data,
                             const std::atomic<bool>& stop,
                             const Console& console) {
  Progress progress(options, console);
  const TrainHooks hooks = {
      .on_step = [&](const StepReport& report) { progress.Show(report); },
      .stop = &stop};
  return flags.reference ? TrainReference(options, data, hooks)
                         : Train(options, data, hooks);
}

// Writes the trace to `path`, unless that is empty, and notes it.
Status SaveTrace(const std::string& path, const Console& console,
                 TrainOutcome& outcome) {
  if (path.empty()) return OkStatus();
  if (outcome.trace.step.accesses.empty()) {
    console.Note(fmt::format("no step was made: nothing is written to {}",
                             QuotedPath(path)));
    return OkStatus();
  }
  CASTOR_RETURN_IF_ERROR(WriteTraceFile(path, outcome.trace));
  outcome.trace_file = path;
  return OkStatus();
}

Status Run(const TrainFlags& flags, const Console& console) {
  CASTOR_ASSIGN_OR_RETURN(TrainOptions options, OptionsOf(flags));
  if (flags.print_model) {
    console.out << ModelList(options.model, options.dtype);
    return FlushOutput(console);
  }
  CASTOR_ASSIGN_OR_RETURN(const TextData data,
                          TextData::Load(flags.text, flags.seq + 1));
  console.Note(fmt::format("text {}: {} in {} {}", Quoted(flags.text),
                           FormatSize(Bytes(data.size())), data.files(),
                           data.files() == 1 ? "file" : "files"));
  if (!flags.reference) {
    for (const NvmeOption& drive : options.nvme) {
      CASTOR_RETURN_IF_ERROR(DescribeNvme(drive, console));
    }
  }
  Log log([&console](LogLevel level, std::string_view line) {
    if (level != LogLevel::kInfo) console.Note(line);
  });
  options.log = &log;
  std::unique_ptr<FileRecorder> recorder;
  if (!flags.record.empty()) {
    if (flags.reference) {
      return InvalidArgument(
          "--reference has nothing to record: leave --record away");
    }
    CASTOR_ASSIGN_OR_RETURN(recorder,
                            FileRecorder::Create(flags.record, {.log = &log}));
    options.recorder = recorder.get();
  }
  if (!flags.trace.empty()) {
    if (flags.reference) {
      return InvalidArgument("--reference has no trace: leave --trace away");
    }
    CASTOR_RETURN_IF_ERROR(CheckFileTarget(flags.trace).WithContext("--trace"));
  }
  // The first one ends training after the step under way.
  const StopSignals signals;
  Result<TrainOutcome> outcome =
      TrainAs(flags, options, data, signals.flag(), console);
  // A run that failed is recorded up to there.
  const Status recorded = recorder == nullptr ? OkStatus() : recorder->Close();
  CASTOR_RETURN_IF_ERROR(outcome.status());
  const Status traced = SaveTrace(flags.trace, console, *outcome);
  if (flags.json) {
    WriteJson(SummaryJson(options, *outcome), console.out);
  } else {
    console.out << SummaryText(options, *outcome);
  }
  CASTOR_RETURN_IF_ERROR(FlushOutput(console));
  CASTOR_RETURN_IF_ERROR(recorded);
  CASTOR_RETURN_IF_ERROR(traced);
  if (outcome->stopped_early) {
    return Status(ErrorCode::kStoppedEarly,
                  fmt::format("stopped after step {} of {}; what is printed "
                              "and recorded is valid up to there",
                              outcome->steps.size(), options.steps));
  }
  return OkStatus();
}

Status Main(const std::vector<std::string>& args, const Console& console) {
  CommandLine line(
      kName, "Trains a GPT on text, its memory spread over budgets by Castor.");
  TrainFlags flags;
  DeclareTrainFlags(line.app(), flags);
  CASTOR_ASSIGN_OR_RETURN(const ParseOutcome parsed,
                          ParseFlags(line.app(), args));
  if (parsed == ParseOutcome::kHelpAsked) {
    console.out << line.Help();
    return FlushOutput(console);
  }
  return Run(flags, console);
}

int GuardedMain(const std::vector<std::string>& args) {
  const Console console = Console::Standard();
  try {
    return ReportStatus(Main(args, console), kName, console);
  } catch (const std::bad_alloc&) {
    return ReportStatus(
        Unavailable("this machine has too little memory for the run; use a "
                    "smaller model, --batch or --seq"),
        kName, console);
  } catch (const std::exception& error) {
    return ReportStatus(Internal(error.what()), kName, console);
  }
}

}  // namespace
}  // namespace castor::gpt

int main(int argc, char** argv) {
  return castor::gpt::GuardedMain({argv + 1, argv + argc});
}
