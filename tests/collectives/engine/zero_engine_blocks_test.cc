// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Moments in 8 bits: no bit depends on chunk, stage, ranks, home or the time of
// an update, small parameters keep fp32, and what is kept weighs as said.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/layout_file.h"
#include "chunk/param_spec.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/kernels/optimizer_options.h"
#include "placement/state_kind.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/toys/toy_trainer.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kLeast = 4096;  // elements, from which moments are of 8 bits

// Of parameters from a scalar to one of 20,000 elements, a third of them large.
ToyModel MixedModel(uint64_t seed, DType dtype) {
  ToyModel model = MakeToyModel(seed, 14, 3000, dtype);
  const std::vector<int64_t> large[] = {
      {4096}, {5003}, {129, 61}, {20, 1000}, {4095}};
  for (size_t i = 0; i < std::size(large); ++i) {
    model.params[2 + 2 * i].shape = large[i];
  }
  return model;
}

OptimizerOptions In8Bits(OptimizerKind kind = OptimizerKind::kAdamW) {
  OptimizerOptions optimizer = DefaultOptimizerOptions(kind);
  optimizer.weight_decay = 0.1;
  optimizer.moment_dtype = DType::kBlocks8;
  optimizer.seed = 11;
  return optimizer;
}

class ZeroEngineBlocksTest : public ZeroEngineTest {};

TEST_F(ZeroEngineBlocksTest, EveryStageWorldChunkAndHomeGivesTheSameBits) {
  int combination = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const ToyModel model = MixedModel(61, dtype);
    ToyRun run;
    run.micro_batches = 2;
    run.steps = 4;
    for (const int world : {1, 2, 3}) {
      const ToyResult want =
          TrainToyReference(model, run, world, 0.02, In8Bits());
      for (const int stage : {0, 1, 2, 3}) {
        for (const Bytes chunk : {KiB(6), KiB(8), KiB(100)}) {
          for (const bool tight : {false, true}) {
            if (combination++ % (2 * TestStride()) != 0) continue;
            SCOPED_TRACE(testing::Message()
                         << DTypeName(dtype) << " world " << world << " stage "
                         << stage << " chunk " << chunk << " tight " << tight);
            ZeroOptions options =
                tight ? Tight(stage, KiB(400), KiB(300)) : Roomy(stage);
            options.chunk_size = chunk;
            options.clip_norm = 0.02;
            options.optimizer = In8Bits();
            const ToyResult got = TrainToy(model, run, world, options);
            ExpectEqual(got, want);
            ExpectWithinBudgets(got);
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST_F(ZeroEngineBlocksTest, EveryOptimizerAndRoundingGivesThePlainBits) {
  const ToyModel model = MixedModel(62, DType::kBF16);
  for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kAdamW,
                                   OptimizerKind::kSgd, OptimizerKind::kLion}) {
    for (const bool by_chance : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << OptimizerName(kind) << " by chance " << by_chance);
      ZeroOptions options = Tight(2, KiB(300), KiB(300));
      options.optimizer = In8Bits(kind);
      options.optimizer.momentum = kind == OptimizerKind::kSgd ? 0.9 : 0;
      options.optimizer.stochastic_rounding = by_chance;
      const ToyResult got = TrainToy(model, ToyRun(), 2, options);
      ExpectEqual(got,
                  TrainToyReference(model, ToyRun(), 2, 0, options.optimizer));
    }
  }
}

// Updates within the backward, guesses that a step takes or drops, gradients
// that ranks do not have: all write blocks, some beside those that are kept.
TEST_F(ZeroEngineBlocksTest, EveryTimeOfAnUpdateGivesThePlainBits) {
  const ToyModel model = MixedModel(63, DType::kBF16);
  for (const bool tight : {false, true}) {
    for (const int way : {0, 1, 2}) {
      SCOPED_TRACE(testing::Message() << "tight " << tight << " way " << way);
      ToyRun run;
      run.steps = 6;
      ZeroOptions options = tight ? Tight(3, KiB(400), KiB(700)) : Roomy(3);
      options.optimizer = In8Bits();
      if (way == 0) {
        run.updates_early = true;
      } else if (way == 1) {
        run.guesses = true;
        options.clip_norm = 1e6;
        options.guess_updates = true;
        if (!tight) options.device_budget = KiB(200);
      } else {
        run.missing = 0.3;
        run.seed = 5;
        run.acquires_all = true;  // what is gathered together
      }
      const ToyResult got = TrainToy(model, run, 2, options);
      ExpectEqual(got, TrainToyReference(model, run, 2, options));
      EXPECT_EQ(got.stats.guesses > 0, way == 1);
    }
  }
}

TEST_F(ZeroEngineBlocksTest, MomentsWeighAQuarterOfFp32) {
  const ToyModel model = MixedModel(64, DType::kBF16);
  ToyRun run;
  run.steps = 1;
  ZeroOptions options = Roomy(3);
  options.optimizer = In8Bits();
  const ToyResult got = TrainToy(model, run, 2, options);
  ASSERT_THAT(got.status, IsOk());
  // A rank's share of each chunk, where slots take whole sectors of a drive.
  Bytes large;
  Bytes small;
  for (const ChunkInfo& chunk : got.layout.chunks()) {
    const GroupInfo& group =
        got.layout.groups()[static_cast<size_t>(chunk.group)];
    if (!group.trainable) continue;
    const int64_t share = (chunk.size / 2).count();
    const int64_t bytes = group.moments8 ? share / 128 * 132 : share * 4;
    (group.moments8 ? large : small) += RoundUp(Bytes(bytes), Bytes(512));
  }
  EXPECT_GT(large, Bytes(0));
  EXPECT_GT(small, Bytes(0));
  for (const StateKind kind : {OptimizerState(0), OptimizerState(1)}) {
    Bytes kept;
    for (const Bytes on_tier :
         got.stats.state_bytes[static_cast<size_t>(kind)]) {
      kept += on_tier;
    }
    EXPECT_EQ(kept, large + small);
  }
  for (size_t p = 0; p < model.params.size(); ++p) {
    const ParamPlace& place = got.layout.places()[p];
    if (!model.params[p].trainable || !place.chunk.valid()) continue;
    const auto group = static_cast<size_t>(got.layout.chunk(place.chunk).group);
    EXPECT_EQ(got.layout.groups()[group].moments8,
              place.size >= Elements(kLeast))
        << model.params[p].name;
  }
}

// A layout from a file is taken where it was made for moments of 8 bits.
TEST_F(ZeroEngineBlocksTest, TakesALayoutThatWasMadeForThem) {
  ToyModel model = MixedModel(65, DType::kF32);
  ZeroOptions options = Roomy(3);
  options.optimizer = In8Bits();
  const ToyResult want =
      TrainToyReference(model, ToyRun(), 2, 0, options.optimizer);
  const ToyResult found = TrainToy(model, ToyRun(), 2, options);
  ASSERT_THAT(found.status, IsOk());
  const auto with = [&](const ChunkLayout& layout) {
    const Result<std::string> text = WriteLayout(model.params, layout);
    EXPECT_THAT(text, IsOk());
    Result<LayoutFile> read = ParseLayout(*text);
    EXPECT_THAT(read, IsOk());
    ZeroOptions given = options;
    given.chunk_size.reset();
    given.layout = std::make_shared<const LayoutFile>(*std::move(read));
    return TrainToy(model, ToyRun(), 2, given);
  };
  ExpectEqual(with(found.layout), want);
  // Without such chunks, and with all of a type in them.
  for (const bool marked : {false, true}) {
    for (ParamSpec& param : model.params) {
      param.moments8 = marked && param.trainable;
    }
    const std::vector<Elements> sizes(GroupParams(model.params).size(),
                                      Elements(2048));
    const Result<ChunkLayout> other =
        PackChunks(model.params, sizes, {.world = 2, .align = kScaleBlock});
    ASSERT_THAT(other, IsOk());
    EXPECT_THAT(
        with(*other).status,
        StatusIs(ErrorCode::kInvalidArgument,
                 AllOf(HasSubstr(marked ? "among parameters with moments of 8"
                                        : "among parameters without moments"),
                       HasSubstr("take the layout of a run that has such "
                                 "moments, or none"))));
  }
}

// What is written is read again, and what is read goes on as the same training.
TEST_F(ZeroEngineBlocksTest, StatesThatAreReadGoOnAsTheSameTraining) {
  const ToyModel model = MixedModel(66, DType::kBF16);
  struct Kept {
    std::vector<float> values, first, second;
    int64_t count = 0;
  };
  std::map<size_t, Kept> kept;
  ToyRun run;
  run.steps = 4;
  ZeroOptions options = Tight(3, KiB(400), KiB(300));
  options.optimizer = In8Bits();
  options.values_piece = Bytes(1000);  // cuts parameters into many pieces
  run.between_steps = [&](ZeroEngine& engine, int step) -> Status {
    if (step != 1) return OkStatus();
    for (size_t p = 0; p < model.params.size(); ++p) {
      if (!model.params[p].trainable) continue;
      const auto size = static_cast<size_t>(toy::SizeOf(model.params[p]));
      if (size == 0) continue;
      const ParamId id(static_cast<int32_t>(p));
      Kept read{std::vector<float>(size), std::vector<float>(size),
                std::vector<float>(size)};
      CASTOR_RETURN_IF_ERROR(engine.ReadParam(id, read.values));
      CASTOR_RETURN_IF_ERROR(
          engine.ReadState(id, OptimizerState(0), read.first));
      CASTOR_RETURN_IF_ERROR(
          engine.ReadState(id, OptimizerState(1), read.second));
      CASTOR_ASSIGN_OR_RETURN(read.count, engine.UpdateCount(id));
      if (engine.rank() == 0) kept[p] = std::move(read);
    }
    return OkStatus();
  };
  const ToyResult whole = TrainToy(model, run, 2, options);
  ASSERT_THAT(whole.status, IsOk());
  ASSERT_FALSE(kept.empty());
  ToyRun rest = run;
  rest.first_step = 2;
  rest.between_steps = nullptr;
  rest.after_seal = [&](ZeroEngine& engine) -> Status {
    for (const auto& [p, state] : kept) {
      const ParamId id(static_cast<int32_t>(p));
      CASTOR_RETURN_IF_ERROR(engine.WriteParam(id, state.values));
      CASTOR_RETURN_IF_ERROR(
          engine.WriteState(id, OptimizerState(0), state.first));
      CASTOR_RETURN_IF_ERROR(
          engine.WriteState(id, OptimizerState(1), state.second));
      CASTOR_RETURN_IF_ERROR(engine.SetUpdateCount(id, state.count));
      std::vector<float> again(state.first.size());
      CASTOR_RETURN_IF_ERROR(engine.ReadState(id, OptimizerState(1), again));
      EXPECT_EQ(again, state.second);
    }
    return OkStatus();
  };
  ZeroOptions elsewhere = Roomy(1);
  elsewhere.optimizer = In8Bits();
  const ToyResult got = TrainToy(model, rest, 2, elsewhere);
  ASSERT_THAT(got.status, IsOk());
  EXPECT_EQ(got.weights, whole.weights);
}

}  // namespace
}  // namespace castor
