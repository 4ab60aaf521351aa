// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Trains a GPT on a text file or folder, with its parameters, gradients and
// optimizer states spread over a device budget, pinned host memory and NVMe; or
// with --reference, in plain arrays and without Castor.

#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/log.h"
#include "chunk/base/quote.h"
#include "chunk/base/status.h"
#include "chunk/layout_file.h"
#include "offload/nvme/file_system_facts.h"
#include "offload/nvme/nvme_option.h"
#include "offload/record/record_writer.h"
#include "tools/cli/console.h"
#include "tools/cli/flags.h"
#include "tools/cli/json_out.h"
#include "tools/cli/nvme_flag.h"
#include "tools/cli/size_text.h"
#include "tools/examples/gpt/model_list.h"
#include "tools/examples/gpt/reference_trainer.h"
#include "tools/examples/gpt/run_summary.h"
#include "tools/examples/gpt/text_data.h"
#include "tools/examples/gpt/trainer.h"
#include "tools/examples/gpt/training.h"
#include "tools/models/layout_reader.h"
#include "tools/models/machine_reader.h"

namespace castor::gpt {
namespace {

constexpr char kName[] = "train_gpt";
// What Debian's base-files installs.
constexpr char kDefaultText[] = "/usr/share/common-licenses";

std::atomic<bool> stop_asked = false;

void AskToStop(int) { stop_asked = true; }

// The first SIGINT or SIGTERM ends training after the step under way; the
// second one ends the process as if nobody had handled it.
void HandleStopSignals() {
  struct sigaction action = {};
  action.sa_handler = AskToStop;
  action.sa_flags = SA_RESETHAND;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

struct Flags {
  int64_t layers = 9;
  int64_t heads = 8;
  int64_t embd = 512;
  int64_t seq = 256;
  int64_t batch = 2;
  int64_t accumulate = 1;
  int64_t ranks = 1;
  int64_t stage = 3;
  int64_t prefetch = -1;  // not given
  int64_t seed = 1;
  int64_t digest_at = 0;
  std::string text = kDefaultText;
  std::string dtype = "f32";
  std::vector<std::string> nvme;
  std::string record;
  std::string layout;
  std::string machine;
  bool no_prefetch = false;
  bool reference = false;
  bool json = false;
  bool print_model = false;
  TrainOptions train;  // what the parser fills in directly
};

void Declare(CLI::App& app, Flags& flags) {
  TrainOptions& train = flags.train;
  AddTextFlag(app, "--text", &flags.text,
              fmt::format("file or folder to train on, byte by byte (default "
                          "{})",
                          kDefaultText));
  AddIntFlag(app, "--layers", &flags.layers, 1, 4096, "blocks (default 9)");
  AddIntFlag(app, "--heads", &flags.heads, 1, 4096,
             "attention heads (default 8)");
  AddIntFlag(app, "--embd", &flags.embd, 1, 65536,
             "columns of the residual stream (default 512)");
  AddIntFlag(app, "--seq", &flags.seq, 1, 65536,
             "tokens of a sequence (default 256)");
  AddIntFlag(app, "--batch", &flags.batch, 1, 65536,
             "sequences of a rank's micro-batch (default 2)");
  AddIntFlag(app, "--accumulate", &flags.accumulate, 1, 65536,
             "micro-batches of a step (default 1)");
  AddIntFlag(app, "--steps", &train.steps, 1, 1'000'000'000,
             "steps (default 30)");
  AddIntFlag(app, "--seed", &flags.seed, 0, INT64_MAX,
             "of initial values and data (default 1)");
  AddChoiceFlag(app, "--dtype", &flags.dtype, {"f32", "bf16"},
                "of parameters and gradients (default f32)");
  AddRealFlag(app, "--lr", &train.lr, 0, 1e3, "learning rate (default 3e-4)");
  AddRealFlag(app, "--weight-decay", &train.weight_decay, 0, 1e3,
              "of AdamW (default 0.1)");
  AddRealFlag(app, "--clip", &train.clip_norm, 0, 1e30,
              "largest global norm of the gradient; 0: none (default 1)");
  AddIntFlag(app, "--ranks", &flags.ranks, 1, 1024,
             "ranks, threads of this process (default 1)");
  AddIntFlag(app, "--stage", &flags.stage, 0, 3, "of ZeRO (default 3)");
  AddSizeFlag(app, "--device-budget", &train.device_budget,
              "device bytes per rank (default: room for everything)");
  AddSizeFlag(app, "--host-budget", &train.host_budget,
              "pinned host bytes per rank (default 0)");
  AddTextListFlag(app, "--nvme", &flags.nvme, kNvmeFlagHelp);
  AddSizeFlag(app, "--chunk", &train.chunk_size,
              "chunk size (default: searched between 1 MiB and an eighth of "
              "the device budget)");
  AddTextFlag(app, "--layout", &flags.layout,
              "file of castor search -o that says where every parameter lies, "
              "instead of --chunk");
  AddIntFlag(app, "--prefetch", &flags.prefetch, 0, 1024,
             "gathers kept under way ahead of use (default 3)");
  AddSwitch(app, "--no-prefetch", &flags.no_prefetch,
            "gather on demand only, as --prefetch 0");
  AddTextFlag(app, "--machine", &flags.machine,
              "file of a machine's speeds (castor.machine/1): what moves "
              "between device, host and nvme takes at least its time; a link "
              "that it does not name is not slowed");
  AddTextFlag(app, "--record", &flags.record,
              "file for the run's events, for castor report");
  AddIntFlag(app, "--digest-at", &flags.digest_at, 1, 1'000'000'000,
             "print the weights' digest after this step too");
  AddSwitch(app, "--reference", &flags.reference,
            "train in plain arrays on one rank, without Castor and its flags");
  AddSwitch(app, "--json", &flags.json, "the summary as one JSON document");
  AddSwitch(app, "--print-model", &flags.print_model,
            "print the parameters, a list for castor search - --order file, "
            "and train nothing");
}

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

Result<TrainOptions> OptionsOf(const Flags& flags) {
  TrainOptions options = flags.train;
  options.model = {.vocab = 256,
                   .context = static_cast<int>(flags.seq),
                   .layers = static_cast<int>(flags.layers),
                   .heads = static_cast<int>(flags.heads),
                   .embd = static_cast<int>(flags.embd)};
  options.dtype = flags.dtype == "bf16" ? DType::kBF16 : DType::kF32;
  options.batch = static_cast<int>(flags.batch);
  options.accumulate = static_cast<int>(flags.accumulate);
  options.ranks = static_cast<int>(flags.ranks);
  options.stage = static_cast<int>(flags.stage);
  options.seed = static_cast<uint64_t>(flags.seed);
  if (flags.no_prefetch && flags.prefetch >= 0) {
    return InvalidArgument(
        "--prefetch and --no-prefetch contradict each other; give one");
  }
  if (flags.no_prefetch) options.prefetch_depth = 0;
  if (flags.prefetch >= 0) {
    options.prefetch_depth = static_cast<int>(flags.prefetch);
  }
  if (flags.digest_at > 0) options.digest_step = flags.digest_at;
  CASTOR_ASSIGN_OR_RETURN(options.nvme, ParseNvmeFlag(flags.nvme));
  if (!flags.layout.empty() && !flags.reference) {
    if (options.chunk_size.has_value()) {
      return InvalidArgument(
          "--layout and --chunk exclude each other: a layout has its own "
          "chunks; leave one away");
    }
    CASTOR_ASSIGN_OR_RETURN(LayoutFile layout, ReadLayoutFile(flags.layout));
    options.layout = std::make_shared<const LayoutFile>(std::move(layout));
  }
  if (!flags.machine.empty() && !flags.reference) {
    CASTOR_ASSIGN_OR_RETURN(options.machine, ReadMachineFile(flags.machine));
  }
  CASTOR_RETURN_IF_ERROR(Validate(options));
  return options;
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

Result<TrainOutcome> TrainAs(const Flags& flags, const TrainOptions& options,
                             const TextData& data, const Console& console) {
  Progress progress(options, console);
  const TrainHooks hooks = {
      .on_step = [&](const StepReport& report) { progress.Show(report); },
      .stop = &stop_asked};
  return flags.reference ? TrainReference(options, data, hooks)
                         : Train(options, data, hooks);
}

Status Run(const Flags& flags, const Console& console) {
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
  HandleStopSignals();
  const Result<TrainOutcome> outcome = TrainAs(flags, options, data, console);
  // A run that failed is recorded up to there.
  const Status recorded = recorder == nullptr ? OkStatus() : recorder->Close();
  CASTOR_RETURN_IF_ERROR(outcome.status());
  if (flags.json) {
    WriteJson(SummaryJson(options, *outcome), console.out);
  } else {
    console.out << SummaryText(options, *outcome);
  }
  CASTOR_RETURN_IF_ERROR(FlushOutput(console));
  CASTOR_RETURN_IF_ERROR(recorded);
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
  Flags flags;
  Declare(line.app(), flags);
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
