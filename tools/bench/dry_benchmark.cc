// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What a chunk and step cost a forecast: of the engine in a world without bytes
// (BM_DryEngine), and of the simulated rank (BM_SimulatedRank).

#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/log.h"
#include "chunk/base/units.h"
#include "collectives/answers/foretell.h"
#include "placement/tier_model.h"
#include "placement/trace/step_trace.h"
#include "tools/bench/support/twin_training.h"

namespace castor {
namespace {

constexpr int kSteps = 6;

// A parameter to a chunk, states in host memory, and slots for some chunks.
TwinTraining TrainingOf(int64_t chunks, Log* log) {
  TwinTraining training;
  for (int64_t c = 0; c < chunks; ++c) {
    training.params.push_back(
        {"p" + std::to_string(c), {64, 1024}, DType::kBF16});
  }
  ZeroOptions& options = training.options;
  options.log = log;
  options.chunk_size = KiB(128);
  options.device_budget = MiB(16);
  options.host_budget = GiB(64);
  options.clip_norm = 1;
  training.clock = TwinClock::kDry;
  training.steps = kSteps;
  training.machine.host_to_device = LinkModel{25'000'000'000, 5'000};
  training.machine.device_to_host = LinkModel{25'000'000'000, 5'000};
  training.machine.optimizer = RateModel{40'000'000'000};
  training.compute_ns = [](size_t, bool backward) {
    return backward ? 20'000 : 10'000;
  };
  return training;
}

void SetCost(benchmark::State& state) {
  state.counters["us_per_chunk_and_step"] =
      benchmark::Counter(static_cast<double>(state.range(0) * kSteps) / 1e6,
                         benchmark::Counter::kIsIterationInvariantRate |
                             benchmark::Counter::kInvert);
}

void BM_DryEngine(benchmark::State& state) {
  Log log([](LogLevel, std::string_view) {});
  const TwinTraining training = TrainingOf(state.range(0), &log);
  for (auto _ : state) {
    const TwinOutcome outcome = TrainOnTwins(training);
    CASTOR_CHECK(outcome.status.ok());
  }
  SetCost(state);
}
BENCHMARK(BM_DryEngine)
    ->ArgName("chunks")
    ->Arg(250)
    ->Arg(1000)
    ->Arg(4000)
    ->Unit(benchmark::kMillisecond);

void BM_SimulatedRank(benchmark::State& state) {
  Log log([](LogLevel, std::string_view) {});
  const TwinTraining training = TrainingOf(state.range(0), &log);
  const TwinOutcome outcome = TrainOnTwins(training);
  CASTOR_CHECK(outcome.status.ok());
  ForetellRequest asked;
  asked.engine.params = training.params;
  asked.engine.options = training.options;
  asked.engine.declared = training.seal;
  asked.layout = &outcome.layout;
  asked.steps.assign(kSteps, &outcome.traces.back());
  asked.machine = {.speeds = training.machine, .trainer = training.trainer};
  for (auto _ : state) {
    const Result<Foretold> told = Foretell(asked);
    CASTOR_CHECK(told.ok() && told->fits.ok());
    CASTOR_CHECK_EQ(told->run->steps[1].end_ns, outcome.step_end_ns[1]);
  }
  SetCost(state);
}
BENCHMARK(BM_SimulatedRank)
    ->ArgName("chunks")
    ->Arg(250)
    ->Arg(1000)
    ->Arg(4000)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace castor

BENCHMARK_MAIN();
