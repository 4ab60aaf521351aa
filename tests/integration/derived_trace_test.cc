// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Traces derived without a step (placement/) are those that an engine records
// of trainers which really make it (collectives/, the example trainer).

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/param_spec.h"
#include "collectives/communicator.h"
#include "collectives/in_process_communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/lanes/executor.h"
#include "placement/derive/model_blocks.h"
#include "placement/derive/step_model.h"
#include "placement/trace/access_recorder.h"
#include "placement/trace/step_trace.h"
#include "placement/trace/trace_file.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"
#include "tools/examples/gpt/engine_params.h"
#include "tools/examples/gpt/model/gemm.h"
#include "tools/examples/gpt/model/gpt_params.h"
#include "tools/examples/gpt/model/model.h"

namespace castor {
namespace {

class DerivedTraceTest : public testing::Test {
 protected:
  DerivedTraceTest() {
    InProcessOptions in_process;
    in_process.executor = &pool_;
    world_ = MakeInProcessWorld(in_process);
  }

  std::unique_ptr<ZeroEngine> Engine(Bytes chunk, Bytes device) {
    ZeroOptions options;
    options.executor = &pool_;
    options.log = &log_;
    options.chunk_size = chunk;
    options.device_budget = device;
    options.host_budget = MiB(64);
    return *ZeroEngine::Create(options, world_[0].get());
  }

  // What the engine recorded, once it has been checked to be a trace at all.
  static TraceFile Recorded(const ZeroEngine& engine) {
    TraceFile trace = engine.RecordedTrace();
    EXPECT_THAT(ValidateStep(trace.step, trace.chunks.size()), IsOk());
    EXPECT_THAT(ParseTrace(WriteTrace(trace)), IsOkAndHolds(trace));
    EXPECT_EQ(trace.chunks, TraceChunks(engine.layout()));
    return trace;
  }
  // As one tells it that knows no names.
  static StepTrace Unnamed(StepTrace step) {
    for (MissingGrad& missing : step.missing_grads) missing.param.clear();
    return step;
  }

  Log log_{[](LogLevel, std::string_view) {}};
  ThreadPool pool_{2};
  std::vector<std::unique_ptr<Communicator>> world_;
  ThreadLane lane_{"compute"};
};

constexpr gpt::GptConfig kGpt = {
    .vocab = 50, .context = 6, .layers = 3, .heads = 2, .embd = 16};

// Parameters share chunks, have one each, and all lie in one; the device holds
// everything or little more than the step needs.
TEST_F(DerivedTraceTest, OfTheExampleGptIsWhatItsTrainerRecords) {
  ASSERT_TRUE(gpt::LoadBlas().ok());
  const std::vector<int> tokens(12, 7);
  const std::vector<int> targets(12, 9);
  for (const auto& [chunk, device] :
       {std::pair(KiB(1), MiB(64)), std::pair(KiB(4), KiB(48)),
        std::pair(KiB(8), MiB(64)), std::pair(MiB(1), MiB(64))}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int micro_batches : {1, 3}) {
        SCOPED_TRACE(testing::Message() << chunk << " " << DTypeName(dtype)
                                        << " x" << micro_batches);
        const std::unique_ptr<ZeroEngine> engine = Engine(chunk, device);
        ASSERT_THAT(gpt::RegisterAndSeal(kGpt, dtype, 1, *engine), IsOk());
        gpt::EngineParams params(kGpt, dtype, GradMode::kSeparate, engine.get(),
                                 &lane_);
        gpt::Gpt model(kGpt, 2);
        EXPECT_TRUE(Recorded(*engine).step.accesses.empty());
        for (int step = 0; step < 2; ++step) {
          for (int m = 0; m < micro_batches; ++m) {
            ASSERT_THAT(engine->BeginMicroBatch(m + 1 == micro_batches),
                        IsOk());
            ASSERT_THAT(model.Forward(params, tokens, targets), IsOk());
            ASSERT_THAT(model.Backward(params), IsOk());
          }
          ASSERT_THAT(engine->Step(1e-3), IsOk());
          const Result<StepTrace> derived = DeriveStep(
              engine->layout(), BlocksOf(gpt::StepOf(kGpt, /*in_place=*/false)),
              {.micro_batches = micro_batches});
          ASSERT_THAT(derived, IsOk());
          EXPECT_EQ(*derived, Recorded(*engine).step);
          EXPECT_GT(derived->accesses.size(), 80u);
        }
        EXPECT_EQ(engine->stats().divergences, 0);
        ASSERT_THAT(engine->Close(), IsOk());
      }
    }
  }
}

// Nobody described this one: its blocks are found by the names of its
// parameters, and its trainer acquires block by block.
TEST_F(DerivedTraceTest, OfATrainerByBlocksFollowsFromNames) {
  const gpt::GptParams gpt(kGpt);
  std::vector<ParamSpec> specs;
  for (const gpt::GptParam& param : gpt.all()) {
    specs.push_back({param.name, param.shape, DType::kF32, true});
  }
  // By the parameters' own order, not by names: the embedding, a layer each,
  // and the final norm with the table once more.
  std::vector<std::vector<ParamId>> blocks = {{ParamId(0), ParamId(1)}};
  for (int layer = 0; layer < kGpt.layers; ++layer) {
    blocks.emplace_back();
    for (int p = 0; p < gpt::kBlockParams; ++p) {
      blocks.back().push_back(gpt.block(layer, p));
    }
  }
  blocks.push_back({gpt.final_ln_weight(), gpt.final_ln_bias(), ParamId(0)});

  for (const Bytes chunk : {KiB(1), KiB(8), KiB(16)}) {
    SCOPED_TRACE(testing::Message() << chunk);
    const std::unique_ptr<ZeroEngine> engine = Engine(chunk, MiB(64));
    for (const ParamSpec& spec : specs) {
      ASSERT_THAT(engine->Register(spec, {}), IsOk());
    }
    SealOptions seal;
    for (const std::vector<ParamId>& block : blocks) {
      seal.held.push_back({block, block});
    }
    ASSERT_THAT(engine->Seal(seal), IsOk());
    ASSERT_THAT(engine->BeginMicroBatch(true), IsOk());
    for (const std::vector<ParamId>& block : blocks) {
      ASSERT_THAT(engine->Acquire(block, lane_), IsOk());
    }
    for (size_t b = blocks.size(); b-- > 0;) {
      ParamLease held;
      if (b > 0) {
        Result<ParamLease> lease = engine->Acquire(blocks[b], lane_);
        ASSERT_THAT(lease, IsOk());
        held = *std::move(lease);
      }
      for (const ParamId id : blocks[b]) {
        ASSERT_THAT(engine->Grad(id, lane_), IsOk());
      }
      for (size_t i = blocks[b].size(); i-- > 0;) {
        const ParamId id = blocks[b][i];
        if (id == ParamId(0) && b > 0) continue;  // more to come
        ASSERT_THAT(engine->GradReady(id, lane_), IsOk());
      }
    }
    ASSERT_THAT(engine->Step(1e-3), IsOk());
    const std::vector<ModelBlock> found = FindModelBlocks(
        specs, std::vector<TiedParam>{{"lm_head.weight", ParamId(0)}},
        HoldUnit::kBlock);
    ASSERT_EQ(found.size(), blocks.size());
    const Result<StepTrace> derived =
        DeriveStep(engine->layout(), found, StepShape());
    ASSERT_THAT(derived, IsOk());
    EXPECT_EQ(*derived, Recorded(*engine).step);
    ASSERT_THAT(engine->Close(), IsOk());
  }
}

// Steps of a random trainer, made call by call on an engine and a recorder:
// holds that overlap, gradients that are opened often, or never handed back, or
// not there at all, frozen and empty parameters, leases in between.
class RandomSteps {
 public:
  RandomSteps(ZeroEngine* engine, Lane* lane,
              const std::vector<ParamSpec>& specs, std::mt19937_64* random)
      : engine_(engine),
        lane_(lane),
        specs_(specs),
        random_(random),
        recorder_(&engine->layout()) {}

  StepTrace Make() {
    for (int64_t m = 1 + Pick(2); m > 0; --m) {
      EXPECT_THAT(engine_->BeginMicroBatch(m == 1), IsOk());
      recorder_.BeginMicroBatch();
      ready_.assign(specs_.size(), false);
      open_.assign(specs_.size(), false);
      for (int i = 0; i < 60; ++i) Act();
    }
    while (!leases_.empty()) Release();
    EXPECT_THAT(engine_->Step(1e-3), IsOk());
    return recorder_.Finish();
  }

 private:
  int64_t Pick(int64_t n) {
    return static_cast<int64_t>((*random_)() % static_cast<uint64_t>(n));
  }
  ParamId AnyParam() {
    return ParamId(
        static_cast<int32_t>(Pick(static_cast<int64_t>(specs_.size()))));
  }

  void Act() {
    switch (Pick(6)) {
      case 0:
        if (leases_.size() < 3) Hold();
        return;
      case 1:
        if (!leases_.empty()) Release();
        return;
      case 2:
        Lease();
        return;
      default:
        Gradient(AnyParam());
    }
  }

  void Hold() {
    std::vector<ParamId> params;
    for (int64_t n = 1 + Pick(4); n > 0; --n) params.push_back(AnyParam());
    Result<ParamLease> lease = engine_->Acquire(params, *lane_);
    ASSERT_THAT(lease, IsOk());
    leases_.push_back({*std::move(lease), recorder_.Hold(params)});
  }

  void Release() {
    const auto at =
        leases_.begin() + Pick(static_cast<int64_t>(leases_.size()));
    at->first.Release();
    recorder_.Release(at->second);
    leases_.erase(at);
  }

  void Lease() {
    if (memory_.data() != nullptr) {
      memory_.Release();
      recorder_.SetLeased(Bytes(0));
      return;
    }
    const Bytes size = Bytes(512) * (1 + Pick(4));
    Result<MemoryLease> lease = engine_->Borrow(size, *lane_);
    ASSERT_THAT(lease, IsOk());
    memory_ = *std::move(lease);
    recorder_.SetLeased(size);
  }

  void Gradient(ParamId param) {
    const size_t p = param.index();
    if (!specs_[p].trainable || ready_[p]) return;
    if (open_[p] && Pick(2) == 0) {
      ASSERT_THAT(engine_->GradReady(param, *lane_), IsOk());
      recorder_.GradReady(param);
      ready_[p] = true;
      return;
    }
    ASSERT_THAT(engine_->Grad(param, *lane_), IsOk());
    recorder_.OpenGrad(param);
    open_[p] = true;
  }

  ZeroEngine* engine_;
  Lane* lane_;
  const std::vector<ParamSpec>& specs_;
  std::mt19937_64* random_;
  AccessRecorder recorder_;
  std::vector<std::pair<ParamLease, int>> leases_;
  MemoryLease memory_;
  std::vector<bool> open_;
  std::vector<bool> ready_;
};

TEST_F(DerivedTraceTest, TheRecorderFollowsTheEnginesRulesInEveryOrder) {
  std::mt19937_64 random(TestSeed(20261123));
  for (int round = 0; round < 12; ++round) {
    SCOPED_TRACE(round);
    std::vector<ParamSpec> specs;
    for (int p = 0; p < 14; ++p) {
      const auto size = static_cast<int64_t>(random() % 300);
      specs.push_back({"p" + std::to_string(p),
                       {p == 5 ? 0 : size},
                       DType::kF32,
                       random() % 5 != 0});
    }
    const std::unique_ptr<ZeroEngine> engine = Engine(KiB(2), MiB(64));
    for (const ParamSpec& spec : specs) {
      ASSERT_THAT(engine->Register(spec, {}), IsOk());
    }
    SealOptions seal;
    seal.largest_lease = KiB(2);
    ASSERT_THAT(engine->Seal(seal), IsOk());
    RandomSteps steps(engine.get(), &lane_, specs, &random);
    for (int step = 0; step < 3; ++step) {
      const StepTrace want = steps.Make();
      ASSERT_FALSE(HasFailure());
      EXPECT_EQ(Unnamed(Recorded(*engine).step), want) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace castor
