// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Ranks that lack gradients which others have: a branch that was not taken, an
// expert without tokens. What is missing counts as zeros.

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

struct Case {
  int world = 2;
  int stage = 0;
  DType dtype = DType::kF32;
  GradMode mode = GradMode::kSeparate;
  AccumulationOrder order = AccumulationOrder::kEach;
  int micro_batches = 1;
  bool tight = false;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "world " << c.world << ", stage " << c.stage << ", "
             << DTypeName(c.dtype) << ", gradients " << static_cast<int>(c.mode)
             << " added " << static_cast<int>(c.order) << ", micro-batches "
             << c.micro_batches << ", tight " << c.tight;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (int world = 2; world <= 4; ++world) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const GradMode mode :
           {GradMode::kSeparate, GradMode::kFp32, GradMode::kReuse}) {
        for (const AccumulationOrder order :
             {AccumulationOrder::kEach, AccumulationOrder::kLast}) {
          for (const int micro_batches : {1, 3}) {
            if (mode == GradMode::kReuse &&
                (micro_batches > 1 || order == AccumulationOrder::kLast)) {
              continue;
            }
            const DType dtype = (world + stage + micro_batches) % 2 == 0 &&
                                        mode != GradMode::kReuse
                                    ? DType::kF32
                                    : DType::kBF16;
            for (const bool tight : {false, true}) {
              cases.push_back(
                  {world, stage, dtype, mode, order, micro_batches, tight});
            }
          }
        }
      }
    }
  }
  return cases;
}

class ZeroEngineMissingTest : public ZeroEngineTest {};

TEST_F(ZeroEngineMissingTest, AnySetOfGradientsByRankEqualsPlainArrays) {
  uint64_t seed = TestSeed(18);
  int64_t combination = 0;
  for (const Case& c : Cases()) {
    if (combination++ % TestStride() != 0) continue;
    SCOPED_TRACE(testing::Message() << "seed " << ++seed << ": " << c);
    const ToyModel model = MakeToyModel(seed, 14, 2500, c.dtype);
    ToyRun run;
    run.steps = 4;
    run.micro_batches = c.micro_batches;
    run.seed = seed;
    run.missing = 0.3;
    // Steps that differ from the recorded one, on all ranks alike.
    if (seed % 3 == 0) {
      run.skipped = 0.2;
      if (c.stage == 3) run.missing = 0;
    }
    run.unused = {5};
    // Parameters that are gathered together are acquired together.
    run.acquires_all = c.stage == 3;
    ZeroOptions options =
        c.tight ? Tight(c.stage, KiB(1), KiB(400)) : Roomy(c.stage);
    options.grad_mode = c.mode;
    options.accumulation = c.order;
    options.clip_norm = seed % 2 == 0 ? 0.05 : 0;
    ToyResult got = TrainToy(model, run, c.world, options);
    if (c.tight && RaiseAsAsked(got.status, options)) {
      got = TrainToy(model, run, c.world, options);
    }
    ExpectEqual(got, TrainToyReference(model, run, c.world, options));
    ExpectWithinBudgets(got);
    if (HasFatalFailure()) return;
  }
}

// What was not declared is refused where ranks have no plan to follow.
TEST_F(ZeroEngineMissingTest, SaysWhatToDeclareWhereRanksLackGradients) {
  const ToyModel model = MakeToyModel(3, 14, 2500, DType::kF32);
  ToyRun run;
  run.steps = 2;
  run.unused_by_rank = {{}, {9}};
  run.acquires_all = true;
  run.declares = false;
  const ZeroOptions options = Roomy(3);
  const ToyResult got = TrainToy(model, run, 2, options);
  EXPECT_THAT(got.status,
              StatusIs(ErrorCode::kFailedPrecondition,
                       Says("If a rank lacks a gradient that others have",
                            "declare at Seal")));
  run.declares = true;
  ExpectEqual(TrainToy(model, run, 2, options),
              TrainToyReference(model, run, 2, options));
}

}  // namespace
}  // namespace castor
