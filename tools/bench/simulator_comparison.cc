// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Step times that the simulator tells next to those that engines take on the
// machine's clock: models, budgets, ranks, stages, chunk sizes and policies, on
// devices and drives throttled to a part of what the machine does, with compute
// declared and slept. The engine's own work is the machine's: the optimizer's
// passes and the ranks' exchange take what they take, and the simulator is told
// what castor probe measured of them.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/text/units_text.h"
#include "collectives/answers/foretell.h"
#include "collectives/dry/simulation_result.h"
#include "placement/tier_model.h"
#include "placement/trace/trace_file.h"
#include "tools/bench/support/compared_runs.h"
#include "tools/bench/support/twin_training.h"
#include "tools/cli/console.h"
#include "tools/cli/flags.h"
#include "tools/cli/text/document.h"
#include "tools/measure/samples.h"
#include "tools/models/files/castor_files.h"

namespace castor {
namespace {

struct Flags {
  std::string machine;
  std::string nvme;
  std::string trace;
  int64_t slower = 4;
  int64_t steps = 7;
  int64_t most = 1000;
};

TierModel Slower(TierModel machine, int64_t times) {
  const auto slow = [times](auto& link) {
    if (link) link->bytes_per_second /= times;
  };
  slow(machine.host_to_device);
  slow(machine.device_to_host);
  slow(machine.nvme_read);
  slow(machine.nvme_write);
  // What the twins do not have.
  machine.host_to_device_duplex.reset();
  machine.device_to_host_duplex.reset();
  machine.nvme_mixed.reset();
  return machine;
}

struct Comparison {
  double simulated_ms = 0;
  double measured_ms = 0;  // the median of the steady steps
  double spread = 0;       // of their middle half
  double error() const { return simulated_ms / measured_ms - 1; }
};

Result<Comparison> Compare(const ComparedRun& config, const TierModel& machine,
                           const Flags& flags, Log* log) {
  const TwinTraining training = TrainingOf(
      config, machine,
      {flags.nvme, flags.slower, static_cast<int>(flags.steps), log});
  const TwinOutcome run = TrainOnTwins(training);
  CASTOR_RETURN_IF_ERROR(run.status);
  if (!flags.trace.empty()) {
    TraceFile trace;
    trace.world = config.ranks;
    trace.chunks = TraceChunks(run.layout);
    trace.step = run.traces.back();
    CASTOR_RETURN_IF_ERROR(WriteTraceFile(flags.trace, trace));
  }
  TierModel share = ShareOfMachine(machine, config.ranks);
  share.nvme_read = machine.nvme_read;  // each rank's twin has its own
  share.nvme_write = machine.nvme_write;
  ForetellRequest asked;
  asked.engine.params = training.params;
  asked.engine.options = training.options;
  asked.engine.world = training.world;
  asked.engine.declared = training.seal;
  asked.layout = &run.layout;
  asked.steps.assign(static_cast<size_t>(training.steps), &run.traces.back());
  asked.machine = {.speeds = share,
                   .trainer = training.trainer,
                   .device_memory = training.device_memory};
  CASTOR_ASSIGN_OR_RETURN(const Foretold told, Foretell(asked));
  CASTOR_RETURN_IF_ERROR(told.fits);
  const SimulationResult& simulated = *told.run;
  for (size_t s = 1; s < run.after_step.size(); ++s) {
    for (size_t from = 0; from < 3; ++from) {
      for (size_t to = 0; to < 3; ++to) {
        if (run.after_step[s].moved[from][to] -
                run.after_step[s - 1].moved[from][to] !=
            simulated.steps[s].traffic.moved[from][to].bytes) {
          return Internal(fmt::format(
              "step {}: other bytes from tier {} to {} than simulated", s, from,
              to));
        }
      }
    }
  }
  std::vector<double> steps_ms;
  for (size_t s = 2; s < run.step_end_ns.size(); ++s) {
    steps_ms.push_back(
        static_cast<double>(run.step_end_ns[s] - run.step_end_ns[s - 1]) *
        1e-6);
  }
  return Comparison{static_cast<double>(simulated.steady().ns()) * 1e-6,
                    MedianOf(steps_ms), SpreadOf(steps_ms)};
}

Status Run(const Flags& flags, const Console& console) {
  if (flags.machine.empty() || flags.nvme.empty()) {
    return InvalidArgument(
        "--machine FILE, of castor probe, and --nvme DIR are missing");
  }
  CASTOR_ASSIGN_OR_RETURN(const TierModel measured,
                          ReadMachineFile(flags.machine));
  if (!measured.memory) {
    return InvalidArgument("the machine's file knows no speed of memory");
  }
  const TierModel machine = Slower(measured, flags.slower);
  Log log([](LogLevel, std::string_view) {});
  Table table({}, {{"", "model"},
                   {"", "device", Table::Align::kRight},
                   {"", "host", Table::Align::kRight},
                   {"", "ranks"},
                   {"", "stage"},
                   {"", "chunk", Table::Align::kRight},
                   {"", "policy"},
                   {"", "trainer"},
                   {"", "simulated", Table::Align::kRight},
                   {"", "measured", Table::Align::kRight},
                   {"", "spread", Table::Align::kRight},
                   {"", "error", Table::Align::kRight}});
  std::vector<double> errors;
  std::vector<double> spreads;
  std::vector<ComparedRun> configs = ComparedRuns();
  if (static_cast<int64_t>(configs.size()) > flags.most) {
    configs.resize(static_cast<size_t>(flags.most));
  }
  for (const ComparedRun& config : configs) {
    const Result<Comparison> done = Compare(config, machine, flags, &log);
    if (!done.ok()) return done.status().WithContext(config.Name());
    errors.push_back(std::abs(done->error()));
    spreads.push_back(done->spread);
    table.Add({config.Name(), FormatSizeExact(config.device),
               config.nvme
                   ? fmt::format("{} + nvme", FormatSizeExact(config.host))
                   : FormatSizeExact(config.host),
               config.ranks, config.stage, FormatSizeExact(config.chunk),
               PlanPolicyName(config.policy),
               config.trainer == SimTrainer::kStream ? "stream" : "thread",
               fmt::format("{:.1f} ms", done->simulated_ms),
               fmt::format("{:.1f} ms", done->measured_ms),
               fmt::format("{:.1f} %", 100 * done->spread),
               fmt::format("{:+.1f} %", 100 * done->error())});
    console.err << fmt::format("{} of {}\r", errors.size(), configs.size())
                << std::flush;
  }
  console.out << table.Page(Emphasis::kNone);
  console.out << fmt::format(
      "{} configurations: error {:.1f} % in the median, {:.1f} % at worst; "
      "steps of one run are {:.1f} % apart in the median\n",
      errors.size(), 100 * MedianOf(errors),
      100 * *std::max_element(errors.begin(), errors.end()),
      100 * MedianOf(spreads));
  return FlushOutput(console);
}

Status Main(const std::vector<std::string>& args, const Console& console) {
  CommandLine line("simulator_comparison",
                   "Simulated step times next to measured ones.");
  Flags flags;
  AddTextFlag(line.app(), "--machine", &flags.machine,
              "what castor probe measured", "FILE");
  AddTextFlag(line.app(), "--nvme", &flags.nvme, "folder for the drives' files",
              "DIR");
  AddTextFlag(line.app(), "--trace", &flags.trace,
              "write the trace of the last configuration's step", "FILE");
  AddIntFlag(line.app(), "--slower", &flags.slower, 1, 1000,
             "links are throttled to this part of what they do (4)");
  AddIntFlag(line.app(), "--steps", &flags.steps, 4, 1000,
             "steps of a run; the first two do not count (7)");
  AddIntFlag(line.app(), "--most", &flags.most, 1, 1000,
             "configurations at most (all)");
  CASTOR_ASSIGN_OR_RETURN(const ParseOutcome parsed,
                          ParseFlags(line.app(), args));
  if (parsed == ParseOutcome::kHelpAsked) {
    console.out << line.Help();
    return FlushOutput(console);
  }
  return Run(flags, console);
}

}  // namespace
}  // namespace castor

int main(int argc, char** argv) {
  const castor::Console console = castor::Console::Standard();
  return castor::ReportStatus(castor::Main({argv + 1, argv + argc}, console),
                              "simulator_comparison", console);
}
