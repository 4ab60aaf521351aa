// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/policy/compute_spread.h"

#include <cstdint>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/plan.h"
#include "placement/trace.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Trace TwoUses() {
  return {
      {AccessKind::kUse, ChunkId(0)},       {AccessKind::kUseEnd, ChunkId(0)},
      {AccessKind::kUse, ChunkId(1)},       {AccessKind::kGradOpen, ChunkId(1)},
      {AccessKind::kGradClose, ChunkId(1)}, {AccessKind::kUseEnd, ChunkId(1)}};
}

TEST(ComputeSpreadTest, UsesAndGradientsComputeForAsLongAsTheirBytes) {
  const std::vector<Bytes> bytes = {Bytes(100), Bytes(50)};
  EXPECT_THAT(ComputeWeights(TwoUses(), bytes),
              ElementsAre(100, 0, 50, 50, 0, 0));
}

TEST(ComputeSpreadTest, TheWholeComesOut) {
  const std::vector<double> thirds = {1, 0, 1, 1};
  EXPECT_THAT(ShareOut(thirds, 100), ElementsAre(33, 0, 33, 34));
  EXPECT_THAT(ShareOut(thirds, 0), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(ShareOut(std::vector<double>{0, 0}, 100), IsEmpty());
}

TEST(ComputeSpreadTest, APlanCountsOnItsStepSharedOut) {
  PlanProblem problem;
  EXPECT_THAT(PlannedComputeNs(TwoUses(), problem), IsEmpty());
  problem.step_compute_ns = 400;
  problem.used_bytes = {Bytes(100), Bytes(50)};
  EXPECT_THAT(PlannedComputeNs(TwoUses(), problem),
              ElementsAre(200, 0, 100, 100, 0, 0));
  problem.step_compute_ns = 0;  // unknown
  EXPECT_THAT(PlannedComputeNs(TwoUses(), problem), IsEmpty());
}

}  // namespace
}  // namespace castor
