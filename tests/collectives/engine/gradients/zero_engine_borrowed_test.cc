// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Gradients that stay in the trainer's memory (ZeroOptions::borrow_grads).

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/in_process_communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/kernels/convert.h"
#include "offload/lane.h"
#include "placement/run_event.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

using testing::HasSubstr;

constexpr int kParams = 7;
// Odd sizes, so that padding lies behind parameters.
int64_t ElementsOf(int p) { return p == 5 ? 0 : 700 + 97 * p; }

auto NotNow(const std::string& why) {
  return StatusIs(ErrorCode::kFailedPrecondition, HasSubstr(why));
}

// A model of one rank, with gradients in memory of its own.
class Model {
 public:
  Model(const ZeroOptions& options, Communicator* communicator, DType dtype)
      : dtype_(dtype) {
    Result<std::unique_ptr<ZeroEngine>> made =
        ZeroEngine::Create(options, communicator);
    EXPECT_THAT(made, IsOk());
    engine = *std::move(made);
    SealOptions all;
    all.held.emplace_back();
    for (int p = 0; p < kParams; ++p) {
      const Result<ParamId> id = engine->Register(
          {"p" + std::to_string(p), {ElementsOf(p)}, dtype, p != 3},
          [p](int64_t begin, int64_t end, float* out) {
            for (int64_t i = begin; i < end; ++i) {
              out[i - begin] = 0.01f * static_cast<float>((i + p) % 23);
            }
          });
      EXPECT_THAT(id, IsOk());
      ids.push_back(*id);
      all.held[0].params.push_back(*id);
      if (p != 3) all.held[0].grads.push_back(*id);
      grads.emplace_back(BytesOf(Elements(ElementsOf(p)), dtype));
    }
    EXPECT_THAT(engine->Seal(all), IsOk());
  }

  // Other numbers for each step. `scale` may be infinite, in one parameter.
  void Draw(uint64_t seed, float scale = 1) {
    for (size_t p = 0; p < grads.size(); ++p) {
      std::mt19937 draw(static_cast<uint32_t>(seed * 31 + p));
      std::normal_distribution<float> normal;
      std::vector<float> values(
          static_cast<size_t>(ElementsOf(static_cast<int>(p))));
      for (float& value : values) value = normal(draw);
      if (p == 4) values[7] *= scale;
      ConvertFromFloat(values.data(), static_cast<int64_t>(values.size()),
                       dtype_, grads[p].data());
    }
  }
  void Backward(const std::vector<int>& params) {
    ASSERT_THAT(engine->BeginMicroBatch(true), IsOk());
    if (engine->borrows_grads()) {
      std::vector<ParamId> given;
      std::vector<std::byte*> where;
      for (const int p : params) {
        given.push_back(ids[static_cast<size_t>(p)]);
        where.push_back(grads[static_cast<size_t>(p)].data());
      }
      ASSERT_THAT(engine->BorrowGrads(given, where, lane), IsOk());
      return;
    }
    for (const int p : params) {
      const auto index = static_cast<size_t>(p);
      const Result<void*> place = engine->Grad(ids[index], lane);
      ASSERT_THAT(place, IsOk());
      if (*place != nullptr) {
        std::memcpy(*place, grads[index].data(),
                    static_cast<size_t>(grads[index].size().count()));
      }
      ASSERT_THAT(engine->GradReady(ids[index], lane), IsOk());
    }
  }
  uint64_t Digest() const { return *engine->WeightDigest(); }
  std::vector<float> Grad(int p) const {
    std::vector<float> values(static_cast<size_t>(ElementsOf(p)));
    EXPECT_THAT(engine->ReadGrad(ids[static_cast<size_t>(p)], values), IsOk());
    return values;
  }

  std::unique_ptr<ZeroEngine> engine;
  std::vector<ParamId> ids;
  std::vector<AlignedBytes> grads;
  ThreadLane lane{"compute"};

 private:
  const DType dtype_;
};

class QuietRecorder final : public RunRecorder {
 public:
  void AddRank(const RunRankInfo&) override {}
  void Record(const RunEvent&) override {}
};

class BorrowedGradsTest : public ZeroEngineTest {
 protected:
  ZeroOptions Borrowing() {
    ZeroOptions options = Roomy(3);
    options.borrow_grads = true;
    options.count_norm = true;
    return options;
  }
  std::unique_ptr<Model> Make(const ZeroOptions& options, DType dtype) {
    worlds_.push_back(MakeInProcessWorld({.executor = &pool_}));
    return std::make_unique<Model>(options, worlds_.back()[0].get(), dtype);
  }

  // Destroyed last.
  std::vector<std::vector<std::unique_ptr<Communicator>>> worlds_;
};

TEST_F(BorrowedGradsTest, HaveTheBitsOfGradientsInChunks) {
  const uint64_t seed = TestSeed(3);
  for (const OptimizerKind kind :
       {OptimizerKind::kAdamW, OptimizerKind::kSgd, OptimizerKind::kLion}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const double clip : {0.0, 3.0}) {
        ZeroOptions options = Borrowing();
        options.optimizer.kind = kind;
        options.clip_norm = clip;
        const auto borrows = Make(options, dtype);
        options.borrow_grads = false;
        const auto copies = Make(options, dtype);
        ASSERT_TRUE(borrows->engine->borrows_grads());
        ASSERT_FALSE(copies->engine->borrows_grads());
        // Some lack a gradient now and then.
        for (const std::vector<int>& params :
             {std::vector<int>{6, 5, 4, 2, 1, 0}, {6, 2}, {0, 1, 4}}) {
          for (Model* const model : {borrows.get(), copies.get()}) {
            model->Draw(seed + params.size());
            model->Backward(params);
            ASSERT_THAT(model->engine->FinishGradients(), IsOk());
          }
          for (const int p : {0, 2, 6}) {
            EXPECT_EQ(borrows->Grad(p), copies->Grad(p));
          }
          const Result<StepResult> mine = borrows->engine->Step(0.01);
          const Result<StepResult> theirs = copies->engine->Step(0.01);
          ASSERT_THAT(mine, IsOk());
          ASSERT_THAT(theirs, IsOk());
          EXPECT_EQ(mine->grad_norm, theirs->grad_norm);
          EXPECT_TRUE(mine->applied);
          ASSERT_EQ(borrows->Digest(), copies->Digest())
              << DTypeName(dtype) << ", optimizer " << OptimizerName(kind);
        }
        EXPECT_EQ(borrows->engine->stats().engine_copies, Bytes(0));
      }
    }
  }
}

TEST_F(BorrowedGradsTest, TakeNoPlaceButCountInTheBudget) {
  ZeroOptions options = Borrowing();
  const auto roomy = Make(options, DType::kBF16);
  const EngineStats stats = roomy->engine->stats();
  for (const Tier tier : kAllTiers) {
    EXPECT_EQ(stats.state_bytes[static_cast<size_t>(StateKind::kGrad)]
                               [TierIndex(tier)],
              Bytes(0));
  }
  Bytes grads;
  for (int p = 0; p < kParams; ++p) {
    if (p != 3) grads += BytesOf(Elements(ElementsOf(p)), DType::kBF16);
  }
  // The least budget has room for all other states and each gradient.
  const Bytes taken = stats.tiers[TierIndex(Tier::kDevice)].peak;
  options.device_budget = taken + grads;
  EXPECT_TRUE(Make(options, DType::kBF16)->engine->borrows_grads());
  options.device_budget = taken + grads - Bytes(1);
  const auto tight = Make(options, DType::kBF16);
  EXPECT_FALSE(tight->engine->borrows_grads());
  tight->Draw(1);
  tight->Backward({0, 1});
  EXPECT_THAT(tight->engine->Step(0.01), IsOk());
}

TEST_F(BorrowedGradsTest, AreReadWrittenAndDropped) {
  const auto model = Make(Borrowing(), DType::kF32);
  const auto plain = [&] {
    ZeroOptions options = Borrowing();
    options.borrow_grads = false;
    return Make(options, DType::kF32);
  }();
  for (Model* const one : {model.get(), plain.get()}) {
    one->Draw(3);
    one->Backward({0, 1, 2, 4});
    ASSERT_THAT(one->engine->FinishGradients(), IsOk());
    std::vector<float> halved = one->Grad(1);
    for (float& value : halved) value /= 2;
    ASSERT_THAT(one->engine->WriteGrad(one->ids[1], halved), IsOk());
    EXPECT_EQ(one->Grad(1), halved);
    ASSERT_THAT(one->engine->DropGradient(one->ids[4]), IsOk());
  }
  const Result<double> norm = model->engine->ClipGradients(0.5);
  ASSERT_THAT(norm, IsOk());
  EXPECT_EQ(*norm, *plain->engine->ClipGradients(0.5));
  ASSERT_THAT(model->engine->Step(0.1), IsOk());
  ASSERT_THAT(plain->engine->Step(0.1), IsOk());
  EXPECT_EQ(model->Digest(), plain->Digest());
}

TEST_F(BorrowedGradsTest, AStepThatIsNotFiniteChangesNothing) {
  const auto model = Make(Borrowing(), DType::kBF16);
  const uint64_t before = model->Digest();
  model->Draw(5, std::numeric_limits<float>::infinity());
  model->Backward({0, 2, 4, 6});
  const Result<StepResult> step = model->engine->Step(0.1);
  ASSERT_THAT(step, IsOk());
  EXPECT_FALSE(step->applied);
  EXPECT_EQ(step->not_finite, model->ids[4]);
  EXPECT_EQ(model->Digest(), before);
}

TEST_F(BorrowedGradsTest, AnAbandonedStepGivesThemBack) {
  const auto model = Make(Borrowing(), DType::kF32);
  const auto once = Make(Borrowing(), DType::kF32);
  model->Draw(7);
  model->Backward({0, 1, 2});
  ASSERT_THAT(model->engine->Abandon(), IsOk());
  for (Model* const one : {model.get(), once.get()}) {
    one->Draw(8);
    one->Backward({0, 6});
    ASSERT_THAT(one->engine->Step(0.1), IsOk());
  }
  EXPECT_EQ(model->Digest(), once->Digest());
}

TEST_F(BorrowedGradsTest, OtherBudgetsDecideAnew) {
  ZeroOptions options = Borrowing();
  const auto model = Make(options, DType::kBF16);
  options.borrow_grads = false;
  const auto copies = Make(options, DType::kBF16);
  SealOptions all;
  all.held.emplace_back();
  all.held[0].params = model->ids;
  for (const bool roomy : {true, false, true}) {
    ResealOptions budgets;
    budgets.device_budget = roomy ? MiB(8) : KiB(64);
    budgets.declared = all;
    for (Model* const one : {model.get(), copies.get()}) {
      ASSERT_THAT(one->engine->Reseal(budgets), IsOk());
      one->Draw(roomy ? 10 : 11);
      one->Backward({0, 1, 2, 4, 5, 6});
      ASSERT_THAT(one->engine->Step(0.1), IsOk());
    }
    EXPECT_EQ(model->engine->borrows_grads(), roomy);
    EXPECT_EQ(model->Digest(), copies->Digest());
  }
}

// A trace has each gradient, which a replay needs.
TEST_F(BorrowedGradsTest, ARecordedRunCopies) {
  QuietRecorder recorder;
  ZeroOptions options = Borrowing();
  options.recorder = &recorder;
  EXPECT_FALSE(Make(options, DType::kF32)->engine->borrows_grads());
}

TEST_F(BorrowedGradsTest, ALeaseThatOutlivesTheStepShowsTheNewValues) {
  ZeroOptions options = Borrowing();
  options.own_lease_ends = true;
  const auto model = Make(options, DType::kF32);
  Result<ParamLease> lease = model->engine->Acquire(model->ids, model->lane);
  ASSERT_THAT(lease, IsOk());
  const auto* const values = static_cast<const float*>(lease->data(6));
  const std::vector<float> before(values, values + ElementsOf(6));
  model->Draw(9);
  model->Backward({0, 6});
  const Result<StepResult> step = model->engine->Step(0.1);
  ASSERT_THAT(step, IsOk());
  ASSERT_THAT(step->written.Wait(), IsOk());
  const std::vector<float> shown(values, values + ElementsOf(6));
  std::vector<float> after(before.size());
  ASSERT_THAT(model->engine->ReadParam(model->ids[6], after), IsOk());
  EXPECT_NE(after, before);
  EXPECT_EQ(shown, after);
}

TEST_F(BorrowedGradsTest, RefusesWhatCannotBeOne) {
  const auto model = Make(Borrowing(), DType::kF32);
  ZeroEngine& engine = *model->engine;
  const auto borrow = [&](int p, std::ptrdiff_t at = 0) {
    std::byte* const grad = model->grads[static_cast<size_t>(p)].data() + at;
    return engine.BorrowGrads({{model->ids[static_cast<size_t>(p)]}}, {{grad}},
                              model->lane);
  };
  EXPECT_THAT(borrow(0), NotNow("outside a micro-batch"));
  ASSERT_THAT(engine.BeginMicroBatch(true), IsOk());
  EXPECT_THAT(engine.Grad(model->ids[0], model->lane),
              NotNow("stays where the trainer has it"));
  EXPECT_THAT(borrow(3), NotNow("is frozen"));
  EXPECT_THAT(borrow(0, 4), StatusIs(ErrorCode::kInvalidArgument,
                                     HasSubstr("a multiple of 64 bytes")));
  std::byte* const none = nullptr;
  EXPECT_THAT(engine.BorrowGrads({{model->ids[0]}}, {{none}}, model->lane),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("p0 is at 0x0")));
  EXPECT_THAT(borrow(0), IsOk());
  EXPECT_THAT(borrow(0), NotNow("p0"));
  ASSERT_THAT(engine.BeginMicroBatch(true), IsOk());
  EXPECT_THAT(borrow(0), NotNow("is borrowed already"));
  EXPECT_THAT(borrow(1), IsOk()) << "another parameter's";
  EXPECT_THAT(engine.Step(0.1), IsOk());

  ZeroOptions options = Borrowing();
  options.borrow_grads = false;
  const auto copies = Make(options, DType::kF32);
  ASSERT_THAT(copies->engine->BeginMicroBatch(true), IsOk());
  std::byte* const grad = copies->grads[0].data();
  EXPECT_THAT(
      copies->engine->BorrowGrads({{copies->ids[0]}}, {{grad}}, copies->lane),
      NotNow("has places of its own"));
}

}  // namespace
}  // namespace castor
