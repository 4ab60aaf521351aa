// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <memory>

#include "offload/cuda/cuda_runtime_calls.h"
#include "tools/cli/flags.h"
#include "tools/cli/stop_signals.h"
#include "tools/cli/text/document.h"
#include "tools/commands/probe/probe_run.h"
#include "tools/commands/registry.h"

namespace castor {
namespace {

constexpr char kFooter[] =
    R"(Castor measures through its own code:
  device  copies between host and device, each way alone and both at once
  drives  reads, writes, and half of each, with the queue kept full
  host    memory (STREAM's triad), and AdamW on all cores
  ranks   all-gather and reduce-scatter among two ranks of this process
Every link has a latency and a bandwidth, fitted to the medians of three or four sizes. The
device is a GPU in a build with CUDA that finds one. Else the device is simulated, and the page
says so.

The file lacks what was not measured. On a drive the command makes and removes a file of 1.5
times --size. Ctrl-C ends with the measurements so far, and exit code 6. Exit code 5 means that a
drive is missing or full, or that a named GPU is not there.

Examples:
  castor probe -o machine.json
  castor probe --quick --nvme /mnt/nvme0 --nvme /mnt/nvme1
  castor probe --nvme /mnt/nvme0 --size 2GiB --json
  castor search MODEL --machine machine.json
)";

class ProbeCommand final : public Command {
 public:
  std::string_view name() const override { return "probe"; }
  std::string_view summary() const override {
    return "how fast this machine is, as a file for every other command";
  }

  void Declare(CLI::App& app) override {
    AddTextListFlag(app, "--nvme", &request_.nvme,
                    "DIR[:SIZE]: also measure this drive; once per drive, "
                    "they are measured together");
    AddSwitch(app, "--quick", &request_.quick,
              "in a few seconds, less precisely");
    AddSizeFlag(app, "--size", &request_.size,
                "of the buffers, larger than the caches (256MiB, quick 64MiB)");
    AddIntFlag(app, "--gpu", &request_.gpu, 0, 1023,
               "measure copies of this GPU, as CUDA counts (default: the first "
               "there is)");
    AddSwitch(app, "--no-gpu", &request_.no_gpu,
              "measure a simulated device, whatever there is");
    AddTextFlag(app, "-o,--output", &request_.output,
                "write the machine file here", "FILE");
    AddSwitch(app, "--json", &json_, "print one JSON document");
    SetHelpFooter(app, kFooter);
  }

  Status Run(const Console& console) override {
    const StopSignals signals;
    CASTOR_ASSIGN_OR_RETURN(
        const ProbeReport report,
        RunProbe(
            request_, CudaRuntimeCalls(),
            [&signals] { return signals.asked(); }, console));
    Print(ProbeDocument(report), json_ ? Form::kJson : Form::kPage, console);
    return ProbeStatus(report);
  }

 private:
  ProbeRequest request_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeProbeCommand() {
  return std::make_unique<ProbeCommand>();
}

}  // namespace castor
