// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Trains a GPT on a text file or folder, with its parameters, gradients and
// optimizer states spread over a device budget, pinned host memory and NVMe.
// Ranks are threads, or, where mpirun, torchrun or Slurm started several of it,
// processes; with --backend nccl, GPUs.

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/text/printable.h"
#include "chunk/text/quote.h"
#include "chunk/text/units_text.h"
#include "collectives/callbacks/last_words.h"
#include "collectives/world/launch.h"
#include "offload/lanes/start_thread.h"
#include "offload/nvme/file_system_facts.h"
#include "offload/nvme/nvme_option.h"
#include "offload/record/record_writer.h"
#include "tools/cli/atomic_file.h"
#include "tools/cli/console.h"
#include "tools/cli/flags.h"
#include "tools/cli/json_out.h"
#include "tools/cli/output_paths.h"
#include "tools/cli/process_limits.h"
#include "tools/cli/stop_signals.h"
#include "tools/examples/gpt/engine_params.h"
#include "tools/examples/gpt/ranks/nccl_ranks.h"
#include "tools/examples/gpt/ranks/rank_group.h"
#include "tools/examples/gpt/run_summary.h"
#include "tools/examples/gpt/text_data.h"
#include "tools/examples/gpt/train_flags.h"
#include "tools/examples/gpt/trainer.h"
#include "tools/models/files/castor_files.h"

namespace castor::gpt {
namespace {

constexpr char kName[] = "train_gpt";

// "run.rec" as rank 2's own: "run.rec.2".
std::string FileOfRank(const std::string& path, const RankGroup* group) {
  if (path.empty() || group == nullptr) return path;
  return fmt::format("{}.{}", path, group->rank());
}

// What the user should know before bytes go there.
Status DescribeNvme(const NvmeOption& nvme, const Console& console) {
  CASTOR_ASSIGN_OR_RETURN(const FileSystemFacts facts,
                          DescribeFileSystem(nvme.directory));
  std::error_code error;
  if (!std::filesystem::is_directory(nvme.directory, error)) {
    return Unavailable(
        fmt::format("--nvme {} is no folder; give a folder on a "
                    "drive",
                    QuotedPath(nvme.directory.string())));
  }
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

Status DescribeRun(const TrainFlags& flags, const TrainOptions& options,
                   const TextData& data, const Console& console) {
  console.Note(fmt::format("text {}: {} in {} {}", Quoted(flags.text),
                           FormatSize(Bytes(data.size())), data.files(),
                           data.files() == 1 ? "file" : "files"));
  for (const NvmeOption& drive : options.engine.nvme) {
    CASTOR_RETURN_IF_ERROR(DescribeNvme(drive, console));
  }
  if (!options.resume.empty()) {
    console.Note(fmt::format("goes on from {}, after step {}",
                             QuotedPath(options.resume),
                             options.first_step - 1));
  }
  if (!options.resume_note.empty()) console.Note(options.resume_note);
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

// What a run that ended early has to say; OK where it did not.
Status EarlyEnd(const TrainOptions& options, const TrainOutcome& outcome) {
  if (options.stop_on_nan > 0 && outcome.steps_without_loss > 0) {
    std::string kept;
    if (!options.save.empty()) {
      const std::string& before =
          outcome.checkpoint.empty() ? options.resume : outcome.checkpoint;
      kept = before.empty()
                 ? ", and there is no checkpoint before them"
                 : fmt::format(", and {} is kept", QuotedPath(before));
    }
    return Status(
        ErrorCode::kStoppedEarly,
        fmt::format("the loss is not finite since step {}, and the run ended "
                    "after step {} of {}: these steps are not saved{}; take a "
                    "lower --lr, a --clip or, in f16, --loss-scale dynamic",
                    outcome.last_step - outcome.steps_without_loss + 1,
                    outcome.last_step, options.steps, kept));
  }
  if (!outcome.stopped_early) return OkStatus();
  return Status(ErrorCode::kStoppedEarly,
                fmt::format("stopped after step {} of {}; what is printed and "
                            "recorded is valid up to there",
                            outcome.last_step, options.steps));
}

Status Run(const TrainFlags& flags, const Console& console, RankGroup* group) {
  CASTOR_ASSIGN_OR_RETURN(TrainOptions options,
                          OptionsOf(flags, group != nullptr));
  if (flags.print_model) {
    console.out << ModelList(options.model, options.dtype,
                             options.engine.grad_mode);
    return FlushOutput(console);
  }
  CASTOR_RETURN_IF_ERROR(CheckOutputs(
      std::array{NamedPath{"--text", flags.text, &TextData::Takes},
                 NamedPath{"--plan", flags.plan},
                 NamedPath{"--config", flags.config},
                 NamedPath{"--layout", flags.files.layout},
                 NamedPath{"--machine", flags.files.machine},
                 NamedPath{"--resume", options.resume},
                 NamedPath{"--init", options.init}},
      std::array{NamedPath{"--record", flags.record},
                 NamedPath{"--record", FileOfRank(flags.record, group)},
                 NamedPath{"--trace", flags.trace},
                 NamedPath{"--id-file", flags.id_file}}));
  // Rank 0 tells the user what all of them do.
  const bool speaks = group == nullptr || group->rank() == 0;
  CASTOR_ASSIGN_OR_RETURN(
      const TextData data,
      TextData::Load(flags.text, options.model.context + 1));
  if (speaks) {
    CASTOR_RETURN_IF_ERROR(DescribeRun(flags, options, data, console));
  }
  // The ranks of a machine would say the same.
  const bool first_here = group == nullptr || group->local_rank() == 0;
  Log log([&console, first_here](LogLevel level, std::string_view line) {
    if (level != LogLevel::kInfo && first_here) console.Note(line);
  });
  options.engine.log = &log;
  std::unique_ptr<FileRecorder> recorder;
  if (!flags.record.empty()) {
    CASTOR_ASSIGN_OR_RETURN(
        recorder,
        FileRecorder::Create(FileOfRank(flags.record, group), {.log = &log}));
    options.engine.recorder = recorder.get();
  }
  if (!flags.trace.empty() && speaks) {
    CASTOR_RETURN_IF_ERROR(CheckFileTarget(flags.trace).WithContext("--trace"));
  }
  // The first one ends training after the step under way.
  const StopSignals signals(
      speaks ? "\ntrain_gpt: asked to stop: ends after the step under "
               "way; a second signal ends it at once\n"
             : nullptr);
  std::optional<LastWords> last_words;
  if (group != nullptr) last_words.emplace();
  Result<TrainOutcome> outcome = [&] {
    Progress progress(options, console);
    TrainHooks hooks;
    hooks.stop = &signals.flag();
    if (speaks) {
      hooks.on_step = [&](const StepReport& report) { progress.Show(report); };
    }
    return Train(options, data, hooks, group);
  }();
  // A run that failed is recorded up to there.
  const Status recorded = recorder == nullptr ? OkStatus() : recorder->Close();
  CASTOR_RETURN_IF_ERROR(outcome.status());
  if (recorder != nullptr) outcome->memory.record = recorder->ring_bytes();
  Status traced;
  if (speaks) {
    traced = SaveTrace(flags.trace, console, *outcome);
    if (flags.json) {
      WriteJson(SummaryJson(options, *outcome), console.out);
    } else {
      console.out << Printable(SummaryText(options, *outcome));
    }
  }
  CASTOR_RETURN_IF_ERROR(FlushOutput(console));
  CASTOR_RETURN_IF_ERROR(recorded);
  CASTOR_RETURN_IF_ERROR(traced);
  CASTOR_RETURN_IF_ERROR(outcome->save_failure.WithContext(
      "what is printed is valid, but the last step was not saved"));
  return EarlyEnd(options, *outcome);
}

// Which rank this process is, by what started it and by flags.
Result<Launch> LaunchOf(const TrainFlags& flags) {
  const EnvironmentReader environment = [](const char* name) {
    return std::getenv(name);
  };
  CASTOR_ASSIGN_OR_RETURN(const Launch launch, FindLaunch(environment, {}));
  // --ranks alone asks for threads, and so it does in a shell that srun
  // started, which hands its step's variables on to all that is typed there.
  const bool by_itself = launch.by == Launcher::kNone ||
                         (launch.by == Launcher::kSlurm && launch.world == 1);
  if (by_itself && !flags.rank) return launch;
  return FindLaunch(environment, {.rank = flags.rank, .world = flags.ranks});
}

// Ranks with a GPU each, of which this process is one.
Result<std::unique_ptr<RankGroup>> MeetByNccl(
    const std::vector<std::string>& args, const Launch& launch,
    const TrainFlags& flags) {
  if (launch.world == 1 && flags.ranks.value_or(1) > 1) {
    return Status(InvalidArgument(fmt::format(
        "--backend nccl has a rank in each process, and this is one: start {} "
        "by mpirun, torchrun or srun, or give each --rank and all one "
        "--id-file",
        *flags.ranks)));
  }
  const Result<NcclMachine> machine = FindNcclMachine();
  if (!machine.ok()) return machine.status().WithContext("--backend nccl");
  const NcclRanksOptions options = {
      .launch = launch,
      .id_file = flags.id_file,
      .reduce = flags.reduce == "native" ? NcclOptions::Reduce::kNative
                                         : NcclOptions::Reduce::kExact,
      .timeout_ns = flags.train.rank_timeout_ns()};
  std::unique_ptr<RankGroup> beside;
  if (launch.by == Launcher::kOpenMpi && launch.world > 1) {
    CASTOR_ASSIGN_OR_RETURN(beside,
                            JoinRanks(launch, args, options.timeout_ns));
  }
  return JoinNcclRanks(options, *machine, std::move(beside));
}

// Where this process was started as one of several, it meets them. `flags`
// then has their number. Null: the ranks are threads.
Result<std::unique_ptr<RankGroup>> MeetOthers(
    const std::vector<std::string>& args, TrainFlags* flags) {
  CASTOR_RETURN_IF_ERROR(CheckRankFlags(*flags));
  CASTOR_ASSIGN_OR_RETURN(const Launch launch, LaunchOf(*flags));
  if (flags->print_model) return std::unique_ptr<RankGroup>();
  const bool by_nccl = flags->backend == "nccl";
  if (launch.world == 1 && !by_nccl) return std::unique_ptr<RankGroup>();
  Result<std::unique_ptr<RankGroup>> group =
      by_nccl ? MeetByNccl(args, launch, *flags)
              : JoinRanks(launch, args, flags->train.rank_timeout_ns());
  flags->ranks = launch.world;
  return group;
}

Status Main(const std::vector<std::string>& args, const Console& console,
            std::unique_ptr<RankGroup>* group) {
  CASTOR_RETURN_IF_ERROR(PrepareForLimits(kName));
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
  CASTOR_RETURN_IF_ERROR(TakeConfigFile(&flags));
  CASTOR_ASSIGN_OR_RETURN(*group, MeetOthers(args, &flags));
  return Run(flags, console, group->get());
}

int ReportedMain(const std::vector<std::string>& args) {
  const Console console = Console::Standard();
  std::unique_ptr<RankGroup> group;
  const Status status = [&] {
    try {
      return OrThreadLimit([&] { return Main(args, console, &group); });
    } catch (const std::exception& error) {
      return Internal(error.what());
    }
  }();
  if (group == nullptr) return ReportStatus(status, kName, console);
  const std::string name =
      fmt::format("{}: rank {} of {}", kName, group->rank(), group->world());
  // Said before the others are waited for, which may be in vain; and all of
  // them stop early alike.
  const bool failed = !status.ok() && status.code() != ErrorCode::kStoppedEarly;
  if (failed) {
    group->Abort(status.WithContext(fmt::format("rank {}", group->rank())));
  }
  const int code = ReportStatus(
      failed || group->rank() == 0 ? status : OkStatus(), name, console);
  const Status closed = group->Close();
  if (failed) return code;
  if (!closed.ok()) return ReportStatus(closed, name, console);
  return ExitCode(status.code());
}

}  // namespace
}  // namespace castor::gpt

int main(int argc, char** argv) {
  return castor::gpt::ReportedMain({argv + 1, argv + argc});
}
