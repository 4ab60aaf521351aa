// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Random graphs of work over many lanes against a model that runs them one
// operation after the other. What each operation writes is plain memory that
// only the lanes' own order protects, so that ThreadSanitizer sees any hole in
// it. Waits name only what was queued before, so every graph can finish.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "chunk/base/status.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/lanes/executor.h"
#include "tests/support/fakes/manual_executor.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

// Each says on which lane it is queued.
struct DoWork {
  size_t lane;
  bool async;
  bool fails;
};
struct DoRecord {
  size_t lane;
};
struct DoWait {
  size_t lane;
  size_t record;  // how many records were queued before the one waited for
};
using Instruction = std::variant<DoWork, DoRecord, DoWait>;

struct Outcome {
  std::vector<int> ran;              // per work: did it run
  std::vector<std::string> records;  // per record: how it ended
  std::vector<std::string> lanes;    // per lane: how it ended
};

std::string FailureOf(size_t work) { return "work " + std::to_string(work); }

std::vector<Instruction> RandomGraph(std::mt19937_64& random, size_t lanes,
                                     size_t length, uint64_t failures_in_1000) {
  std::vector<Instruction> graph;
  size_t records = 0;
  while (graph.size() < length) {
    const size_t lane = random() % lanes;
    const uint64_t kind = random() % 10;
    if (kind < 5) {
      graph.push_back(
          DoWork{lane, random() % 3 == 0, random() % 1000 < failures_in_1000});
    } else if (kind < 7 || records == 0) {
      graph.push_back(DoRecord{lane});
      ++records;
    } else {
      // Mostly recent ones, which are the ones still in flight.
      const size_t back = random() % std::min<size_t>(records, 40);
      graph.push_back(DoWait{lane, records - 1 - back});
    }
  }
  return graph;
}

Outcome RunModel(const std::vector<Instruction>& graph, size_t lanes) {
  Outcome outcome;
  outcome.lanes.resize(lanes);
  for (const Instruction& instruction : graph) {
    if (const auto* work = std::get_if<DoWork>(&instruction)) {
      std::string& lane = outcome.lanes[work->lane];
      outcome.ran.push_back(lane.empty() ? 1 : 0);
      if (lane.empty() && work->fails) lane = FailureOf(outcome.ran.size() - 1);
    } else if (const auto* record = std::get_if<DoRecord>(&instruction)) {
      outcome.records.push_back(outcome.lanes[record->lane]);
    } else {
      const auto& wait = std::get<DoWait>(instruction);
      std::string& lane = outcome.lanes[wait.lane];
      if (lane.empty()) lane = outcome.records[wait.record];
    }
  }
  return outcome;
}

// Queues `graph` on lanes of `executor`. Between instructions `crank` lets a
// manual executor go on; `finish` ends the run.
template <typename Crank, typename Finish>
Outcome RunOnLanes(const std::vector<Instruction>& graph, size_t lane_count,
                   Executor& executor, Crank crank, Finish finish) {
  Outcome outcome;
  size_t works = 0;
  for (const Instruction& instruction : graph) {
    works += std::holds_alternative<DoWork>(instruction);
  }
  outcome.ran.resize(works);

  std::vector<std::unique_ptr<WorkerLane>> lanes;
  for (size_t i = 0; i < lane_count; ++i) {
    lanes.push_back(std::make_unique<WorkerLane>("lane", &executor));
  }
  // What a lane knows to be over: everything before its last wait, directly or
  // by way of others. Each work checks all of it that may have run.
  std::vector<std::vector<size_t>> known(lane_count);
  std::vector<std::vector<size_t>> known_at_record;
  std::vector<Event> records;
  const Outcome model = RunModel(graph, lane_count);

  size_t next = 0;
  for (const Instruction& instruction : graph) {
    if (const auto* work = std::get_if<DoWork>(&instruction)) {
      const size_t id = next++;
      std::vector<size_t>& before = known[work->lane];
      // The most recent suffice; the full history would be quadratic.
      if (before.size() > 32) before.erase(before.begin(), before.end() - 32);
      auto run = [&outcome, &model, before, id] {
        for (const size_t other : before) {
          EXPECT_EQ(outcome.ran[other], model.ran[other]);
        }
        outcome.ran[id] += 1;
      };
      before.push_back(id);
      const Status status = work->fails ? IoError(FailureOf(id)) : OkStatus();
      if (work->async) {
        lanes[work->lane]->RunAsync(
            [&executor, run = std::move(run), status](EventSource source) {
              executor.Post([run, status, source] {
                run();
                source.Complete(status);
              });
            });
      } else {
        lanes[work->lane]->Run([run = std::move(run), status] {
          run();
          return status;
        });
      }
    } else if (const auto* record = std::get_if<DoRecord>(&instruction)) {
      records.push_back(lanes[record->lane]->Record());
      known_at_record.push_back(known[record->lane]);
    } else {
      const auto& wait = std::get<DoWait>(instruction);
      lanes[wait.lane]->Wait(records[wait.record]);
      const auto& more = known_at_record[wait.record];
      known[wait.lane].insert(known[wait.lane].end(), more.begin(), more.end());
    }
    crank();
  }
  finish();
  for (const auto& lane : lanes) {
    outcome.lanes.emplace_back(lane->Drain().message());
  }
  for (const Event& record : records) {
    outcome.records.emplace_back(record.Wait().message());
  }
  return outcome;
}

class LaneStressTest : public testing::Test {
 protected:
  // Runs graphs of growing trouble through `run`.
  template <typename Run>
  void ForRandomGraphs(uint64_t seed, int rounds, size_t length, Run run) {
    std::mt19937_64 random(TestSeed(seed));
    for (int round = 0; round < rounds; ++round) {
      const size_t lanes = 1 + random() % 64;
      const uint64_t failures_in_1000 = round % 2 == 0 ? 0 : 2;
      const auto graph = RandomGraph(random, lanes, length, failures_in_1000);
      const Outcome outcome = run(graph, lanes, random);
      const Outcome model = RunModel(graph, lanes);
      ASSERT_EQ(outcome.ran, model.ran) << "round " << round;
      ASSERT_EQ(outcome.records, model.records) << "round " << round;
      ASSERT_EQ(outcome.lanes, model.lanes) << "round " << round;
    }
  }
};

TEST_F(LaneStressTest, AnyOrderOfTurnsAgreesWithTheModel) {
  ForRandomGraphs(1, 40, 600,
                  [](const auto& graph, size_t lanes, std::mt19937_64& random) {
                    ManualExecutor executor;
                    const auto turn = [&] {
                      const size_t pending = executor.pending();
                      return pending > 0 && executor.RunOne(random() % pending);
                    };
                    return RunOnLanes(
                        graph, lanes, executor,
                        [&] {
                          for (uint64_t i = random() % 3; i > 0; --i) turn();
                        },
                        [&] {
                          while (turn()) {
                          }
                        });
                  });
}

TEST_F(LaneStressTest, ThreadsAgreeWithTheModel) {
  ForRandomGraphs(2, 20, 3000,
                  [](const auto& graph, size_t lanes, std::mt19937_64& random) {
                    ThreadPool pool(1 + static_cast<int>(random() % 4));
                    return RunOnLanes(
                        graph, lanes, pool, [] {}, [] {});
                  });
}

}  // namespace
}  // namespace castor
