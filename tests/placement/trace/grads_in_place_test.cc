// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/trace/grads_in_place.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/param_spec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/derive/step_model.h"
#include "placement/trace/step_trace.h"
#include "tests/placement/random_step.h"
#include "tests/placement/step_text.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// As TextOf writes it.
StepTrace StepOf(const std::string& text) {
  StepTrace step;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const auto kind = std::string("ueoc").find(word[0]);
    step.accesses.push_back(
        {static_cast<AccessKind>(kind), ChunkId(std::stoi(word.substr(1)))});
  }
  return step;
}

std::string InPlace(const std::string& text) {
  const Result<StepTrace> step = WithGradsInPlace(StepOf(text));
  EXPECT_THAT(step, IsOk());
  return step.ok() ? TextOf(step->accesses) : "";
}

int64_t Sum(const std::vector<int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
}

TEST(GradsInPlaceTest, UsesEndBeforeTheirChunkIsWrittenOver) {
  EXPECT_EQ(InPlace("u0 e0 u1 o1 c1 e1 u0 o0 c0 e0"),
            "u0 e0 u1 e1 u1 o1 e1 c1 u0 e0 u0 o0 e0 c0");
  // Other parameters of the chunk are used while its gradient is open.
  EXPECT_EQ(InPlace("u0 u0 o0 e0 e0 u0 c0 e0"),
            "u0 u0 e0 e0 u0 o0 u0 e0 e0 c0");
  // Uses of other chunks stay as they are.
  EXPECT_EQ(InPlace("u1 u0 o0 c0 e1 e0"), "u1 u0 e0 u0 o0 e0 c0 e1");
}

TEST(GradsInPlaceTest, AStepThatIsSoIsLeftAsItIs) {
  const std::string step = "u0 e0 u0 o0 u0 e0 e0 c0";
  EXPECT_TRUE(GradsInPlace(StepOf(step).accesses));
  EXPECT_EQ(InPlace(step), step);
  EXPECT_FALSE(GradsInPlace(StepOf("u0 o0 c0 e0").accesses));
  EXPECT_FALSE(GradsInPlace(StepOf("o0 e0").accesses));
  EXPECT_TRUE(GradsInPlace(StepOf("u0 e0").accesses));
}

// What a trainer of such gradients does, found from what another one does.
TEST(GradsInPlaceTest, EqualsTheStepThatIsDerivedSo) {
  constexpr ParamId kTable(0), kFirst(1), kSecond(2);
  std::vector<ParamSpec> params;
  for (const char* name : {"table", "first", "second"}) {
    params.push_back({name, {128}, DType::kBF16, true});
  }
  const Elements size[] = {Elements(128)};
  const ChunkLayout layout = PackChunks(params, size, PackOptions()).value();
  const std::vector<ModelBlock> blocks = {
      {"embedding", BlockKind::kEmbedding, {{{kTable}, {}}}, {{{}, {kTable}}}},
      {"layer 0", BlockKind::kLayer, {{{kFirst}, {}}}, {{{kFirst}, {kFirst}}}},
      {"layer 1",
       BlockKind::kLayer,
       {{{kSecond}, {}}},
       {{{kSecond}, {kSecond}}}}};
  for (const bool recompute : {false, true}) {
    StepShape shape;
    shape.recompute = recompute;
    const Result<StepTrace> usual = DeriveStep(layout, blocks, shape);
    shape.grads_in_place = true;
    const Result<StepTrace> in_place = DeriveStep(layout, blocks, shape);
    ASSERT_THAT(usual, IsOk());
    ASSERT_THAT(in_place, IsOk());
    EXPECT_FALSE(GradsInPlace(usual->accesses));
    EXPECT_TRUE(GradsInPlace(in_place->accesses));
    EXPECT_EQ(InPlace(TextOf(usual->accesses)), TextOf(in_place->accesses));
  }
}

TEST(GradsInPlaceTest, KeepsTimesLeasesAndEvaluations) {
  StepTrace step = StepOf("u0 o0 c0 e0");
  step.compute_ns = {1, 10, 100, 1000};
  step.leases = {{1, KiB(1)}, {3, KiB(2)}};
  step.evaluations = {{1, StepOf("u1 e1").accesses, {}}};
  const Result<StepTrace> got = WithGradsInPlace(step);
  ASSERT_THAT(got, IsOk());
  EXPECT_EQ(TextOf(got->accesses), "u0 e0 u0 o0 e0 c0");
  // The end that came last is left out, and what it had is its neighbour's.
  EXPECT_THAT(got->compute_ns, ElementsAre(1, 0, 0, 10, 0, 1100));
  EXPECT_THAT(got->leases,
              ElementsAre(LeaseChange{3, KiB(1)}, LeaseChange{5, KiB(2)}));
  EXPECT_EQ(got->evaluations[0].moment, 1);
}

TEST(GradsInPlaceTest, RefusesWhatIsUsedAgain) {
  EXPECT_THAT(WithGradsInPlace(StepOf("u0 o0 c0 e0 u0 e0")),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("chunk 0 is used once its gradient is "
                                 "complete, at moment 4")));
  EXPECT_THAT(WithGradsInPlace(StepOf("o1 c1 o1 c1")),
              StatusIs(ErrorCode::kInvalidArgument,
                       AllOf(HasSubstr("chunk 1 has a gradient of a second "
                                       "micro-batch"),
                             HasSubstr("at moment 2"))));
  StepTrace step = StepOf("o0 c0");
  step.evaluations = {{1, StepOf("u0 e0").accesses, {}}};
  EXPECT_THAT(WithGradsInPlace(step),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("chunk 0 is evaluated behind its gradient")));
  step.evaluations[0].moment = 0;
  EXPECT_THAT(WithGradsInPlace(step), IsOk());
}

TEST(GradsInPlaceTest, RandomStepsStaySteps) {
  const uint64_t seed = TestSeed(20261122);
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  int made = 0;
  for (int i = 0; i < 400; ++i) {
    const TraceFile file = RandomTraceFile(random);
    const Result<StepTrace> step = WithGradsInPlace(file.step);
    if (!step.ok()) continue;
    ++made;
    EXPECT_THAT(ValidateStep(*step, file.chunks.size()), IsOk());
    EXPECT_TRUE(GradsInPlace(step->accesses));
    EXPECT_EQ(Sum(step->compute_ns), Sum(file.step.compute_ns));
    const std::vector<Bytes> before = LeasedBytes(file.step);
    const std::vector<Bytes> after = LeasedBytes(*step);
    if (before.empty()) continue;
    EXPECT_EQ(*std::max_element(before.begin(), before.end()),
              *std::max_element(after.begin(), after.end()));
  }
  EXPECT_GT(made, 20);
}

}  // namespace
}  // namespace castor
