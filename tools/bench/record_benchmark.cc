// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What recording a run costs: one Record call, on one and on several threads,
// in bursts that fit the ring, as a step's are; one that is dropped; and what
// the flush thread spends per event.

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "offload/record/record_format.h"
#include "offload/record/record_writer.h"
#include "placement/run_event.h"

namespace castor {
namespace {

using std::chrono::steady_clock;

constexpr int kBurst = 4096;

RunEvent SomeEvent() {
  RunEvent event;
  event.kind = RunEventKind::kTransfer;
  event.begin_ns = 1'000'000;
  event.end_ns = 2'000'000;
  event.bytes = 1 << 20;
  event.chunk = 7;
  return event;
}

std::string RecordPath() {
  return (std::filesystem::temp_directory_path() /
          ("castor-record-benchmark-" + std::to_string(::getpid())))
      .string();
}

// One iteration is a burst of kBurst calls; only they are timed, and between
// bursts the flush thread gets to empty the ring. `per_call` is per event.
void BM_RecordBurst(benchmark::State& state) {
  static std::unique_ptr<FileRecorder> recorder;
  if (state.thread_index() == 0) {
    FileRecorderOptions options;
    options.interval = std::chrono::milliseconds(1);
    auto created = FileRecorder::Create(RecordPath(), options);
    if (!created.ok()) {
      state.SkipWithError(created.status().ToString().c_str());
      return;
    }
    recorder = std::move(created).value();
  }
  const RunEvent event = SomeEvent();
  double seconds = 0;
  for (auto _ : state) {
    const auto begin = steady_clock::now();
    for (int i = 0; i < kBurst; ++i) recorder->Record(event);
    const std::chrono::duration<double> took = steady_clock::now() - begin;
    state.SetIterationTime(took.count());
    seconds += took.count();
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  const auto calls = static_cast<double>(state.iterations() * kBurst);
  state.counters["per_call"] =
      benchmark::Counter(seconds / calls, benchmark::Counter::kAvgThreads);
  if (state.thread_index() == 0) {
    if (!recorder->Close().ok()) state.SkipWithError("the record failed");
    state.counters["dropped"] = static_cast<double>(recorder->totals().dropped);
    recorder.reset();
    std::filesystem::remove(RecordPath());
  }
}
BENCHMARK(BM_RecordBurst)->UseManualTime()->Iterations(300)->Threads(1);
BENCHMARK(BM_RecordBurst)->UseManualTime()->Iterations(300)->Threads(2);
BENCHMARK(BM_RecordBurst)->UseManualTime()->Iterations(300)->Threads(4);

void BM_RecordIntoAFullRing(benchmark::State& state) {
  FileRecorderOptions options;
  options.interval = std::chrono::hours(1);
  options.ring_events = 2;
  auto recorder = FileRecorder::Create(RecordPath(), options);
  if (!recorder.ok()) {
    state.SkipWithError(recorder.status().ToString().c_str());
    return;
  }
  const RunEvent event = SomeEvent();
  for (auto _ : state) (*recorder)->Record(event);
  recorder->reset();
  std::filesystem::remove(RecordPath());
}
BENCHMARK(BM_RecordIntoAFullRing);

// Encoding and checksum, per event; the write itself is the system's.
void BM_EncodeEvents(benchmark::State& state) {
  const std::vector<RunEvent> events(1024, SomeEvent());
  std::string bytes;
  for (auto _ : state) {
    bytes.clear();
    AppendEventsFrame(events, 0, &bytes);
    benchmark::DoNotOptimize(bytes.data());
  }
  state.SetItemsProcessed(state.iterations() * 1024);
}
BENCHMARK(BM_EncodeEvents);

}  // namespace
}  // namespace castor

BENCHMARK_MAIN();
