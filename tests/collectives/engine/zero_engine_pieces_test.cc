// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// A parameter whose shard is larger than a staging slot, as a vocabulary's is:
// its states pass through staging piece by piece, to the same bits.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/checkpoint/checkpoint_options.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_rounds.h"
#include "tests/support/toys/toy_model.h"
#include "tests/support/toys/toy_trainer.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

// Elements of the large parameter: each rank's shard is a little more than a
// piece of 4 Mi elements.
constexpr int64_t LargeOn(int world) { return world * 4'500'000 + 1; }

ToyModel WithALargeParameter(DType dtype, int world) {
  ToyModel model = MakeToyModel(37, 5, 2000, dtype);
  model.params.insert(model.params.begin() + 2,
                      {"large", {LargeOn(world)}, dtype});
  return model;
}

class ZeroEnginePiecesTest : public ZeroEngineTest {
 protected:
  // The host has room for little more than staging by pieces.
  ZeroOptions Pieces(int stage, DType dtype, int world) {
    const Bytes whole = BytesOf(Elements(LargeOn(world)), dtype);
    ZeroOptions options = Tight(stage, whole * (stage < 3 ? 3 : 2) + MiB(2),
                                MiB(16) * 5 + MiB(1));
    options.home_rules = {{.glob = "large", .tier = Tier::kNvme}};
    return options;
  }
  static Bytes FromNvme(const ToyResult& result) {
    return result.stats.moved[TierIndex(Tier::kNvme)][TierIndex(Tier::kHost)];
  }
};

TEST_F(ZeroEnginePiecesTest, HaveTheBitsOfTheWhole) {
  struct Case {
    int stage;
    int world;
    DType dtype;
    int micro_batches;
    double clip_norm;
  };
  // Sanitizers make the first.
  const Case cases[] = {{3, 1, DType::kBF16, 2, 0.05},
                        {3, 1, DType::kF32, 1, 0},
                        {3, 2, DType::kF32, 2, 0.05},
                        {1, 2, DType::kF32, 1, 0.05},
                        {2, 2, DType::kBF16, 2, 0}};
  for (const Case& each :
       std::span(cases).first(static_cast<size_t>(TestRounds(5)))) {
    SCOPED_TRACE(testing::Message()
                 << "stage " << each.stage << ", " << each.world << " ranks, "
                 << DTypeName(each.dtype));
    const ToyModel model = WithALargeParameter(each.dtype, each.world);
    ToyRun run;
    run.steps = 2;
    run.micro_batches = each.micro_batches;
    ZeroOptions roomy = Roomy(each.stage);
    roomy.device_budget =
        Pieces(each.stage, each.dtype, each.world).device_budget;
    roomy.host_budget = MiB(256);
    roomy.clip_norm = each.clip_norm;
    const ToyResult want = TrainToy(model, run, each.world, roomy);
    ASSERT_THAT(want.status, IsOk());
    ZeroOptions pieces = Pieces(each.stage, each.dtype, each.world);
    pieces.clip_norm = each.clip_norm;
    const ToyResult got = TrainToy(model, run, each.world, pieces);
    ExpectEqual(got, want);
    EXPECT_GT(FromNvme(got), Bytes(0));
    EXPECT_LE(got.stats.tiers[TierIndex(Tier::kHost)].peak, pieces.host_budget);
  }
}

// In the backward, where the gradient does not go to the drive.
TEST_F(ZeroEnginePiecesTest, AreUpdatedEarlyToTheSameBits) {
  const std::pair<DType, int> cases[] = {{DType::kF32, 1}, {DType::kBF16, 2}};
  for (const auto& [dtype, world] :
       std::span(cases).first(static_cast<size_t>(TestRounds(2)))) {
    SCOPED_TRACE(testing::Message() << world << " ranks, " << DTypeName(dtype));
    const ToyModel model = WithALargeParameter(dtype, world);
    ToyRun run;
    run.steps = 2;
    const ZeroOptions pieces = Pieces(3, dtype, world);
    const ToyResult late = TrainToy(model, run, world, pieces);
    run.updates_early = true;
    const ToyResult early = TrainToy(model, run, world, pieces);
    ExpectEqual(early, late);
    EXPECT_GT(early.stats.early_updates, 0);
    EXPECT_LT(FromNvme(early), FromNvme(late));
  }
}

// Saved with and without waiting, loaded, parked and resumed on the way.
TEST_F(ZeroEnginePiecesTest, AreSavedLoadedAndParkedToTheSameBits) {
  const ToyModel model = WithALargeParameter(DType::kF32, 1);
  ToyRun run;
  run.steps = 2;
  ZeroOptions roomy = Roomy(3);
  roomy.device_budget = Pieces(3, DType::kF32, 1).device_budget;
  roomy.host_budget = MiB(256);
  const ToyResult want = TrainToy(model, run, 1, roomy);
  ASSERT_THAT(want.status, IsOk());
  const TempDir saved;
  run.between_steps = [&](ZeroEngine& engine, int step) -> Status {
    SaveOptions save;
    save.directory = saved.path();
    save.wait = step > 0;
    CASTOR_ASSIGN_OR_RETURN(const SaveResult made, engine.Save(save));
    if (!save.wait) CASTOR_RETURN_IF_ERROR(engine.FinishSave().status());
    CASTOR_RETURN_IF_ERROR(engine.Park(Tier::kNvme).status());
    CASTOR_RETURN_IF_ERROR(engine.Resume());
    LoadOptions load;
    load.directory = saved.path();
    return engine.Load(load).status();
  };
  const ToyResult got = TrainToy(model, run, 1, Pieces(3, DType::kF32, 1));
  ExpectEqual(got, want);
  EXPECT_GT(FromNvme(got), Bytes(0));
}

}  // namespace
}  // namespace castor
