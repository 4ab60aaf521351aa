// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_COLLECTIVES_ANSWERS_SEAL_FORECAST_FIXTURE_H_
#define CASTOR_TESTS_COLLECTIVES_ANSWERS_SEAL_FORECAST_FIXTURE_H_

// Trainings that tests of seal_forecast.h hold its forecasts to: a few steps of
// blocks on ranks that are threads, and what each rank saw of them.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/answers/seal_forecast.h"
#include "collectives/in_process_communicator.h"
#include "collectives/zero_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/derive/step_model.h"
#include "placement/run_event.h"
#include "placement/trace/trace_file.h"
#include "tests/support/status_matchers.h"
#include "tests/support/toys/block_trainer.h"
#include "tests/support/toys/toy_model.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {

// Three parameters to a layer, used one by one; the first parameter is used
// again at the end, as a tied embedding is, whose gradient from there is not
// looked at by the block at the beginning where it is written `in_place`.
inline std::vector<ModelBlock> MakeBlocks(const ToyModel& model,
                                          bool in_place) {
  const auto id = [](size_t p) { return ParamId(static_cast<int32_t>(p)); };
  std::vector<ModelBlock> blocks;
  for (size_t p = 0; p < model.params.size(); p += 3) {
    ModelBlock block;
    block.kind = BlockKind::kLayer;
    const size_t end = std::min(p + 3, model.params.size());
    for (size_t i = p; i < end; ++i) {
      block.forward.push_back({{id(i)}, {}});
      if (!model.params[end - 1 - (i - p)].trainable) continue;
      const ParamId back = id(end - 1 - (i - p));
      block.backward.push_back({{back}, {back}});
      if (in_place && back == id(0)) block.backward.back().hold.clear();
    }
    blocks.push_back(std::move(block));
  }
  ModelBlock head;
  head.kind = BlockKind::kHead;
  head.forward = {{{id(0)}, {}}};
  head.backward = {{{id(0)}, {id(0)}}};
  blocks.push_back(std::move(head));
  return blocks;
}

// One parameter to a chunk, each used once forward and once backward, and
// always from the first to the last: where a class has one slot, the copy that
// is in it is never the one that is wanted next.
struct OneByOne {
  explicit OneByOne(int params, DType dtype) {
    ModelBlock& block = blocks.emplace_back();
    block.kind = BlockKind::kLayer;
    for (int p = 0; p < params; ++p) {
      // 768 is a multiple of the quantum of 2 and of 3 ranks; of 4 it is 512.
      model.params.push_back({"p" + std::to_string(p), {1536}, dtype, true});
      block.forward.push_back({{ParamId(p)}, {}});
      block.backward.push_back({{ParamId(p)}, {ParamId(p)}});
    }
  }

  ToyModel model;
  std::vector<ModelBlock> blocks;
};

// Where initial values went, by rank, chunk and state.
class StartRecorder final : public RunRecorder {
 public:
  using Key = std::tuple<int32_t, int32_t, StateKind>;

  void AddRank(const RunRankInfo&) override {}
  void Record(const RunEvent& event) override {
    if (event.kind != RunEventKind::kTransfer ||
        event.cause != RunCause::kStart) {
      return;
    }
    const std::lock_guard lock(mutex_);
    homes_[{event.rank, event.chunk, event.state}] = event.to;
  }
  // What did not cross a link stayed in host memory.
  Tier HomeOf(const Key& key) const {
    const auto found = homes_.find(key);
    return found == homes_.end() ? Tier::kHost : found->second;
  }

 private:
  std::mutex mutex_;
  std::map<Key, Tier> homes_;
};

class SealForecastTest : public ZeroEngineTest {
 protected:
  static constexpr int kSteps = 4;

  struct Outcome {
    Status status;
    // After the last but one step, after the last, and after nothing more;
    // before each, a digest has waited for what goes on in the background.
    EngineStats steady[3];
    EngineStats closed;
    Trace trace;
  };

  static Result<EngineStats> Settled(ZeroEngine& engine) {
    CASTOR_RETURN_IF_ERROR(engine.WeightDigest().status());
    return engine.stats();
  }
  // Of the last step alone, without the digest behind it.
  static Bytes OfAStep(const Bytes (&after)[3]) {
    return after[1] - after[0] - (after[2] - after[1]);
  }

  // What one rank saw of the training.
  Outcome TrainRank(const ToyModel& model,
                    const std::vector<ModelBlock>& blocks,
                    const StepShape& shape, const SealOptions& declared,
                    const ZeroOptions& options, Communicator* communicator) {
    Outcome outcome;
    const auto train = [&]() -> Status {
      CASTOR_ASSIGN_OR_RETURN(const std::unique_ptr<ZeroEngine> engine,
                              ZeroEngine::Create(options, communicator));
      for (const ParamSpec& spec : model.params) {
        CASTOR_RETURN_IF_ERROR(engine->Register(spec, {}).status());
      }
      CASTOR_RETURN_IF_ERROR(engine->Seal(declared));
      BlockTrainer trainer(blocks, shape, engine.get());
      for (int step = 0; step < kSteps; ++step) {
        CASTOR_RETURN_IF_ERROR(trainer.Step());
        if (step == kSteps - 2) {
          CASTOR_ASSIGN_OR_RETURN(outcome.steady[0], Settled(*engine));
        }
      }
      CASTOR_ASSIGN_OR_RETURN(outcome.steady[1], Settled(*engine));
      CASTOR_ASSIGN_OR_RETURN(outcome.steady[2], Settled(*engine));
      outcome.trace = engine->RecordedTrace().step.accesses;
      CASTOR_RETURN_IF_ERROR(engine->Close());
      outcome.closed = engine->stats();
      return OkStatus();
    };
    outcome.status = train();
    if (!outcome.status.ok()) communicator->Abort(outcome.status);
    return outcome;
  }

  std::vector<Outcome> Train(const ToyModel& model,
                             const std::vector<ModelBlock>& blocks,
                             const StepShape& shape,
                             const SealOptions& declared,
                             const ZeroOptions& options, int world) {
    InProcessOptions in_process;
    in_process.world = world;
    in_process.executor = &pool_;
    std::vector<std::unique_ptr<Communicator>> ranks =
        MakeInProcessWorld(in_process);
    std::vector<Outcome> outcomes(static_cast<size_t>(world));
    std::vector<std::thread> threads;
    for (size_t r = 0; r < outcomes.size(); ++r) {
      threads.emplace_back([&, r] {
        outcomes[r] =
            TrainRank(model, blocks, shape, declared, options, ranks[r].get());
      });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }

  // Sets a budget of `request` to the least multiple of `unit` that serves,
  // which is less than `most`: each step halves what is left, as more is never
  // refused where less serves.
  static void FindLeast(const EngineRequest& request, Bytes* budget, Bytes unit,
                        Bytes most) {
    int64_t refused = -1;
    int64_t served = most / unit;
    while (served - refused > 1) {
      const int64_t middle = (refused + served) / 2;
      *budget = unit * middle;
      (ForecastSeal(request).ok() ? served : refused) = middle;
    }
    *budget = unit * served;
    ASSERT_LT(*budget, most);
  }

  // What the first rank of a training peaks at, by tier.
  using Peaks = std::array<Bytes, 3>;
  Peaks PeaksOf(const EngineRequest& request, const OneByOne& made) {
    const std::vector<Outcome> outcomes =
        Train(made.model, made.blocks, StepShape(), request.declared,
              request.options, request.world);
    EXPECT_THAT(outcomes[0].status, IsOk());
    EXPECT_EQ(outcomes[0].closed.engine_copies, Bytes(0));
    Peaks peaks;
    for (size_t tier = 0; tier < peaks.size(); ++tier) {
      peaks[tier] = outcomes[0].closed.tiers[tier].peak;
    }
    return peaks;
  }
};

}  // namespace castor

#endif  // CASTOR_TESTS_COLLECTIVES_ANSWERS_SEAL_FORECAST_FIXTURE_H_
