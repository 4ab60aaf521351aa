// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/trace/access_recorder.h"

#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/param_spec.h"
#include "gtest/gtest.h"
#include "placement/trace/step_trace.h"
#include "tests/placement/step_text.h"

namespace castor {
namespace {

// Chunk 0 holds a and b, chunk 1 c and d; e has no elements.
ChunkLayout Layout() {
  std::vector<ParamSpec> params;
  for (const char* name : {"a", "b", "c", "d"}) {
    params.push_back({name, {64}, DType::kF32, true});
  }
  params.push_back({"e", {0}, DType::kF32, true});
  const Elements size[] = {Elements(128)};
  return PackChunks(params, size, PackOptions()).value();
}

constexpr ParamId kA(0), kB(1), kC(2), kD(3), kE(4);

std::string Text(const StepTrace& step) { return TextOf(step.accesses); }

class AccessRecorderTest : public testing::Test {
 protected:
  int Hold(std::vector<ParamId> params) { return recorder_.Hold(params); }

  ChunkLayout layout_ = Layout();
  AccessRecorder recorder_{&layout_};
};

TEST_F(AccessRecorderTest, AHoldUsesEachChunkOnceInOrderOfItsParameters) {
  recorder_.BeginMicroBatch();
  const int both = Hold({kC, kA, kD, kE, kB});
  const int inner = Hold({kB});
  const int nothing = Hold({kE});
  recorder_.Release(both);
  recorder_.Release(nothing);
  recorder_.Release(inner);
  EXPECT_EQ(Text(recorder_.Finish()), "u1 u0 u0 e1 e0 e0");
}

TEST_F(AccessRecorderTest, AGradientIsOpenUntilAllOfItsChunkAreReady) {
  recorder_.BeginMicroBatch();
  recorder_.OpenGrad(kB);
  recorder_.OpenGrad(kB);
  recorder_.GradReady(kB);
  recorder_.OpenGrad(kC);
  recorder_.OpenGrad(kE);
  recorder_.GradReady(kE);
  recorder_.OpenGrad(kA);
  recorder_.GradReady(kA);
  recorder_.OpenGrad(kD);
  recorder_.GradReady(kD);
  recorder_.GradReady(kC);
  EXPECT_EQ(Text(recorder_.Finish()), "o0 o1 c0 c1");
}

TEST_F(AccessRecorderTest, AMicroBatchEndsWhatItLeftOpenByChunk) {
  for (int i = 0; i < 2; ++i) {
    recorder_.BeginMicroBatch();
    recorder_.OpenGrad(kC);  // never ready
    recorder_.OpenGrad(kA);  // its chunk's other has none
    recorder_.GradReady(kA);
  }
  EXPECT_EQ(Text(recorder_.Finish()), "o1 o0 c0 c1 o1 o0 c0 c1");
}

TEST_F(AccessRecorderTest, WholeGradientsStayOpenToTheLastMicroBatch) {
  AccessRecorder recorder(&layout_, /*whole_grads=*/true);
  for (const bool last : {false, true}) {
    recorder.BeginMicroBatch(last);
    for (const ParamId param : {kA, kB}) {
      recorder.OpenGrad(param);
      recorder.GradReady(param);
    }
    // Of the other chunk in the first one only.
    if (last) continue;
    recorder.OpenGrad(kC);
    recorder.GradReady(kC);
  }
  EXPECT_EQ(Text(recorder.Finish()), "o0 o1 c0 c1");
}

TEST_F(AccessRecorderTest, AGradientInPlaceIsAUseOfTheChunk) {
  AccessRecorder recorder(&layout_, /*whole_grads=*/false, /*in_place=*/true);
  recorder.BeginMicroBatch();
  recorder.Release(recorder.Hold(std::vector<ParamId>{kB}));
  recorder.OpenGrad(kB);
  recorder.GradReady(kB);
  recorder.Release(recorder.Hold(std::vector<ParamId>{kA}));
  recorder.OpenGrad(kA);
  recorder.GradReady(kA);
  recorder.OpenGrad(kC);  // the other one of its chunk has none
  recorder.GradReady(kC);
  EXPECT_EQ(Text(recorder.Finish()), "u0 e0 u0 o0 u0 e0 e0 c0 u1 o1 e1 c1");
}

TEST_F(AccessRecorderTest, TheMostOnLeaseAndTheTimeBelongToTheirMoment) {
  recorder_.SetLeased(Bytes(2048));
  recorder_.Compute(3);
  recorder_.SetLeased(Bytes(512));
  recorder_.BeginMicroBatch();
  const int hold = Hold({kA});
  recorder_.Compute(5);
  recorder_.SetLeased(Bytes(1024));  // passing
  recorder_.SetLeased(Bytes(512));
  recorder_.Compute(6);
  recorder_.Release(hold);
  recorder_.Release(Hold({kC}));
  recorder_.SetLeased(Bytes(0));
  const StepTrace step = recorder_.Finish();
  EXPECT_EQ(Text(step), "u0 e0 u1 e1");
  // The last moment lasts to the first access.
  EXPECT_EQ(LeasedBytes(step), (std::vector<Bytes>{Bytes(1024), Bytes(512),
                                                   Bytes(512), Bytes(2048)}));
  EXPECT_EQ(step.compute_ns, (std::vector<int64_t>{11, 0, 0, 3}));
  EXPECT_TRUE(ValidateStep(step, 2).ok());
  // The next step begins with nothing of it.
  recorder_.Release(Hold({kA}));
  const StepTrace next = recorder_.Finish();
  EXPECT_TRUE(next.leases.empty());
  EXPECT_TRUE(next.compute_ns.empty());
}

TEST_F(AccessRecorderTest, AnEvaluationIsAPassOfItsOwn) {
  recorder_.BeginEvaluation();
  recorder_.EndEvaluation();  // used nothing
  recorder_.BeginMicroBatch();
  const int outer = Hold({kA});
  recorder_.Compute(4);
  recorder_.BeginEvaluation();
  const int hold = Hold({kC, kB});
  recorder_.Compute(7);
  recorder_.Release(outer);  // of the step, as the engine has it
  recorder_.Release(hold);
  recorder_.EndEvaluation();
  recorder_.OpenGrad(kD);
  const StepTrace step = recorder_.Finish();
  EXPECT_EQ(Text(step), "u0 e0 o1 c1");
  EXPECT_EQ(step.compute_ns, (std::vector<int64_t>{4, 0, 0, 0}));
  ASSERT_EQ(step.evaluations.size(), 1u);
  EXPECT_EQ(step.evaluations[0].moment, 1);
  EXPECT_EQ(TextOf(step.evaluations[0].accesses), "u1 u0 e1 e0");
  EXPECT_EQ(step.evaluations[0].compute_ns, (std::vector<int64_t>{0, 7, 0, 0}));
  EXPECT_TRUE(ValidateStep(step, 2).ok());
}

// Chunk 0 is complete first, but after chunk 1 in the order; b is missing, then
// chunk 1 is.
TEST_F(AccessRecorderTest, InTurnsWhatIsCompleteWaitsForWhatIsBefore) {
  recorder_.TakeTurns();
  recorder_.BeginMicroBatch();
  const auto give = [this](ParamId param) {
    recorder_.OpenGrad(param);
    recorder_.GradReady(param);
  };
  for (const ParamId param : {kA, kB, kC, kD}) give(param);
  const StepTrace first = recorder_.Finish();
  EXPECT_EQ(Text(first), "o0 o1 c1 c0");
  EXPECT_EQ(first.waiting, (std::vector<WaitingGrad>{{0, ChunkId(0)}}));
  // The next step has the order in which they were complete.
  recorder_.BeginMicroBatch();
  for (const ParamId param : {kA, kC, kD}) give(param);
  const StepTrace second = recorder_.Finish();
  EXPECT_EQ(Text(second), "o0 o1 c0 c1");
  EXPECT_EQ(second.waiting, (std::vector<WaitingGrad>{{1, ChunkId(1)}}));
  recorder_.BeginMicroBatch();
  for (const ParamId param : {kA, kB}) give(param);
  EXPECT_EQ(Text(recorder_.Finish()), "o0 o1 c1 c0");
}

}  // namespace
}  // namespace castor
