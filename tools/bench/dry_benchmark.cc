// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What a chunk and step cost a forecast, timed by a machine's links, with
// states in host memory (BM_Host) and on a drive (BM_Nvme).

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/param_spec.h"
#include "collectives/answers/foretell.h"
#include "collectives/sealing/layout_choice.h"
#include "collectives/sealing/seal_plan.h"
#include "collectives/zero_options.h"
#include "placement/tier_model.h"
#include "placement/trace/access_recorder.h"
#include "placement/trace/step_trace.h"

namespace castor {
namespace {

constexpr int kSteps = 6;

// A parameter to a chunk, states in host memory or on a drive, and slots for
// some chunks.
struct Subject {
  std::vector<ParamSpec> params;
  ZeroOptions options;
  TierModel machine;
};

Subject SubjectOf(int64_t chunks, bool nvme, Log* log) {
  Subject subject;
  for (int64_t c = 0; c < chunks; ++c) {
    subject.params.push_back(
        {"p" + std::to_string(c), {64, 1024}, DType::kBF16});
  }
  ZeroOptions& options = subject.options;
  options.log = log;
  options.chunk_size = KiB(128);
  options.device_budget = MiB(16);
  options.host_budget = nvme ? MiB(16) : GiB(64);
  if (nvme) options.nvme = {{"", GiB(64)}};
  options.clip_norm = 1;
  subject.machine.host_to_device = LinkModel{25'000'000'000, 5'000};
  subject.machine.device_to_host = LinkModel{25'000'000'000, 5'000};
  subject.machine.nvme_read = LinkModel{6'000'000'000, 80'000};
  subject.machine.nvme_write = LinkModel{4'000'000'000, 20'000};
  subject.machine.optimizer = RateModel{40'000'000'000};
  return subject;
}

// Each parameter by itself, forward and backward.
StepTrace StepOf(const ChunkLayout& layout, size_t params) {
  AccessRecorder recorder(&layout);
  recorder.BeginMicroBatch();
  for (size_t p = 0; p < params; ++p) {
    const ParamId id(static_cast<int32_t>(p));
    const int hold = recorder.Hold({&id, 1});
    recorder.Compute(10'000);
    recorder.Release(hold);
  }
  for (size_t p = params; p-- > 0;) {
    const ParamId id(static_cast<int32_t>(p));
    const int hold = recorder.Hold({&id, 1});
    recorder.OpenGrad(id);
    recorder.Compute(20'000);
    recorder.GradReady(id);
    recorder.Release(hold);
  }
  return recorder.Finish();
}

void SetCost(benchmark::State& state) {
  state.counters["us_per_chunk_and_step"] =
      benchmark::Counter(static_cast<double>(state.range(0) * kSteps) / 1e6,
                         benchmark::Counter::kIsIterationInvariantRate |
                             benchmark::Counter::kInvert);
}

void Forecast(benchmark::State& state, bool nvme) {
  Log log([](LogLevel, std::string_view) {});
  const Subject subject = SubjectOf(state.range(0), nvme, &log);
  const ChunkLayout layout =
      ChooseLayout(subject.params, subject.options,
                   ShardingOf(subject.options, 1, 0),
                   BudgetsOf(subject.options, Bytes(0)), {})
          .value();
  const StepTrace step = StepOf(layout, subject.params.size());
  ForetellRequest asked;
  asked.engine.params = subject.params;
  asked.engine.options = subject.options;
  asked.layout = &layout;
  asked.steps.assign(kSteps, &step);
  asked.machine = {.speeds = subject.machine};
  for (auto _ : state) {
    const Result<Foretold> told = Foretell(asked);
    CASTOR_CHECK(told.ok());
    CASTOR_CHECK(told->fits.ok());
    CASTOR_CHECK_EQ(told->run->steps.size(), size_t{kSteps});
  }
  SetCost(state);
}

void BM_Host(benchmark::State& state) { Forecast(state, false); }
void BM_Nvme(benchmark::State& state) { Forecast(state, true); }
BENCHMARK(BM_Host)->ArgName("chunks")->Arg(250)->Arg(1000)->Arg(4000)->Unit(
    benchmark::kMillisecond);
BENCHMARK(BM_Nvme)->ArgName("chunks")->Arg(250)->Arg(1000)->Unit(
    benchmark::kMillisecond);

}  // namespace
}  // namespace castor

BENCHMARK_MAIN();
