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

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/param_spec.h"
#include "collectives/memory_plan.h"
#include "collectives/simulated_engine_of.h"
#include "collectives/zero_options.h"
#include "offload/nvme/nvme_option.h"
#include "placement/plan.h"
#include "placement/simulated_engine.h"
#include "placement/simulation_result.h"
#include "placement/simulator.h"
#include "placement/tier_model.h"
#include "placement/trace_file.h"
#include "tools/bench/twin_training.h"
#include "tools/cli/console.h"
#include "tools/cli/flags.h"
#include "tools/cli/size_text.h"
#include "tools/cli/text_table.h"
#include "tools/examples/gpt/gpt_params.h"
#include "tools/measure/samples.h"
#include "tools/models/machine_reader.h"
#include "tools/models/trace_reader.h"

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

struct Config {
  gpt::GptConfig model;
  DType dtype = DType::kF32;
  Bytes device;
  Bytes host;
  int ranks = 1;
  int stage = 3;
  Bytes chunk;
  PlanPolicy policy = PlanPolicy::kAuto;
  bool nvme = false;
  int micro_batches = 1;
  SimTrainer trainer = SimTrainer::kStream;

  std::string Name() const {
    return fmt::format("{}x{} {}", model.layers, model.embd, DTypeName(dtype));
  }
};

std::vector<ParamSpec> SpecsOf(const Config& config) {
  std::vector<ParamSpec> specs;
  const gpt::GptParams params(config.model);
  for (const gpt::GptParam& param : params.all()) {
    specs.push_back({param.name, param.shape, config.dtype, true});
  }
  return specs;
}

// Three models by four rooms by two chunk sizes, on one rank and on two; what
// else there is changes from one to the next.
std::vector<Config> Configs() {
  const gpt::GptConfig models[] = {
      {.vocab = 256, .context = 256, .layers = 8, .heads = 8, .embd = 512},
      {.vocab = 256, .context = 256, .layers = 14, .heads = 8, .embd = 384},
      {.vocab = 256, .context = 256, .layers = 5, .heads = 8, .embd = 640}};
  std::vector<Config> configs;
  for (const gpt::GptConfig& model : models) {
    for (int room = 0; room < 4; ++room) {
      for (const Bytes chunk : {MiB(7), MiB(14)}) {
        for (int variant = 0; variant < 2; ++variant) {
          Config config;
          const auto n = static_cast<int>(configs.size());
          config.model = model;
          config.dtype = n % 3 == 2 ? DType::kBF16 : DType::kF32;
          config.chunk = chunk;
          config.ranks = variant + 1;
          config.stage = variant == 0 || room % 2 == 0 ? 3 : 2;
          config.policy =
              n / 2 % 2 == 0 ? PlanPolicy::kAuto : PlanPolicy::kPlanned;
          config.trainer =
              n / 4 % 2 == 0 ? SimTrainer::kStream : SimTrainer::kThread;
          config.micro_batches = n % 5 == 4 ? 2 : 1;
          config.nvme = room == 3;
          // Most, some and little of the model on the device.
          const Bytes rooms[] = {MiB(224), MiB(128), MiB(64), MiB(64)};
          config.device = rooms[room];
          if (config.chunk == MiB(14)) config.device += MiB(64);
          config.host = config.nvme ? MiB(256) : GiB(1);
          configs.push_back(config);
        }
      }
    }
  }
  return configs;
}

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

TwinTraining TrainingOf(const Config& config, const TierModel& machine,
                        const Flags& flags, Log* log) {
  TwinTraining training;
  training.params = SpecsOf(config);
  training.options.stage = config.stage;
  training.options.chunk_size = config.chunk;
  training.options.policy = config.policy;
  training.options.device_budget = config.device;
  training.options.host_budget = config.host;
  training.options.log = log;
  if (config.nvme) training.options.nvme = {{flags.nvme, GiB(2)}};
  training.machine = machine;
  // A device's is faster than that of the host, which stands for it here.
  training.device_memory =
      LinkModel{machine.memory->bytes_per_second / flags.slower, 0};
  training.clock = TwinClock::kMachine;
  training.world = config.ranks;
  training.steps = static_cast<int>(flags.steps);
  training.micro_batches = config.micro_batches;
  training.trainer = config.trainer;
  // Embeddings, layers, and the rest, each for three nanoseconds an element on
  // its way forward and six on its way back, and half a millisecond besides.
  const gpt::GptParams params(config.model);
  training.units.push_back(
      {params.token_embedding(), params.position_embedding()});
  for (int layer = 0; layer < config.model.layers; ++layer) {
    std::vector<ParamId>& unit = training.units.emplace_back();
    for (int p = 0; p < gpt::kBlockParams; ++p) {
      unit.push_back(params.block(layer, static_cast<gpt::BlockParam>(p)));
    }
  }
  training.units.push_back({params.final_ln_weight(), params.final_ln_bias()});
  std::vector<int64_t> forward_ns;
  for (const std::vector<ParamId>& unit : training.units) {
    forward_ns.push_back(500'000);
    for (const ParamId id : unit) {
      forward_ns.back() += 3 * params.param(id).elements();
    }
    // What a unit touches is declared: its parameters, and their gradients.
    training.seal.held.push_back({unit, unit});
  }
  training.compute_ns = [forward_ns](size_t unit, bool backward) {
    return forward_ns[unit] * (backward ? 2 : 1);
  };
  return training;
}

Result<SimulatedEngine> EngineOf(const TwinTraining& training,
                                 const ChunkLayout& layout) {
  MemoryPlanInput memory;
  memory.layout = &layout;
  memory.sharding = {.stage = training.options.stage, .world = training.world};
  memory.device_budget = training.options.device_budget;
  memory.host_budget = training.options.host_budget;
  if (!training.options.nvme.empty()) {
    memory.nvme_budget = NvmeLimit(training.options.nvme);
  }
  memory.prefetch_depth = training.options.prefetch_depth;
  memory.declared = training.seal;
  CASTOR_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanMemory(memory));
  return SimulatedEngineOf({&memory, &plan, training.options.policy,
                            static_cast<int64_t>(training.params.size())});
}

struct Comparison {
  double simulated_ms = 0;
  double measured_ms = 0;  // the median of the steady steps
  double spread = 0;       // of their middle half
  double error() const { return simulated_ms / measured_ms - 1; }
};

Result<Comparison> Compare(const Config& config, const TierModel& machine,
                           const Flags& flags, Log* log) {
  const TwinTraining training = TrainingOf(config, machine, flags, log);
  const TwinOutcome run = TrainOnTwins(training);
  CASTOR_RETURN_IF_ERROR(run.status);
  if (!flags.trace.empty()) {
    TraceFile trace;
    trace.world = config.ranks;
    trace.chunks = TraceChunks(run.layout);
    trace.step = run.trace;
    CASTOR_RETURN_IF_ERROR(WriteTraceFile(flags.trace, trace));
  }
  CASTOR_ASSIGN_OR_RETURN(const SimulatedEngine engine,
                          EngineOf(training, run.layout));
  TierModel share = ShareOfMachine(machine, config.ranks);
  share.nvme_read = machine.nvme_read;  // each rank's twin has its own
  share.nvme_write = machine.nvme_write;
  CASTOR_ASSIGN_OR_RETURN(const SimulationResult simulated,
                          Simulate(run.trace, engine, share,
                                   {.steps = training.steps,
                                    .trainer = training.trainer,
                                    .device_memory = training.device_memory}));
  for (size_t s = 1; s < run.after_step.size(); ++s) {
    for (size_t from = 0; from < 3; ++from) {
      for (size_t to = 0; to < 3; ++to) {
        if (run.after_step[s].moved[from][to] -
                run.after_step[s - 1].moved[from][to] !=
            simulated.steps[s].moved[from][to]) {
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
  using Align = TextTable::Align;
  TextTable table({{"model", Align::kLeft},
                   {"device"},
                   {"host"},
                   {"ranks"},
                   {"stage"},
                   {"chunk"},
                   {"policy", Align::kLeft},
                   {"trainer", Align::kLeft},
                   {"simulated"},
                   {"measured"},
                   {"spread"},
                   {"error"}});
  std::vector<double> errors;
  std::vector<double> spreads;
  std::vector<Config> configs = Configs();
  if (static_cast<int64_t>(configs.size()) > flags.most) {
    configs.resize(static_cast<size_t>(flags.most));
  }
  for (const Config& config : configs) {
    const Result<Comparison> done = Compare(config, machine, flags, &log);
    if (!done.ok()) return done.status().WithContext(config.Name());
    errors.push_back(std::abs(done->error()));
    spreads.push_back(done->spread);
    table.AddRow(
        {config.Name(), FormatSizeExact(config.device),
         config.nvme ? fmt::format("{} + nvme", FormatSizeExact(config.host))
                     : FormatSizeExact(config.host),
         fmt::format("{}", config.ranks), fmt::format("{}", config.stage),
         FormatSizeExact(config.chunk),
         std::string(PlanPolicyName(config.policy)),
         config.trainer == SimTrainer::kStream ? "stream" : "thread",
         fmt::format("{:.1f} ms", done->simulated_ms),
         fmt::format("{:.1f} ms", done->measured_ms),
         fmt::format("{:.1f} %", 100 * done->spread),
         fmt::format("{:+.1f} %", 100 * done->error())});
    console.err << fmt::format("{} of {}\r", errors.size(), configs.size())
                << std::flush;
  }
  console.out << table.Render(Emphasis::kNone);
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
