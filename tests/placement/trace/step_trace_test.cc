// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/trace/step_trace.h"

#include <string>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/trace.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Access Do(AccessKind kind, int chunk) { return {kind, ChunkId(chunk)}; }

StepTrace Nested() {
  StepTrace step;
  step.accesses = {Do(AccessKind::kUse, 0),      Do(AccessKind::kUse, 0),
                   Do(AccessKind::kGradOpen, 1), Do(AccessKind::kUseEnd, 0),
                   Do(AccessKind::kUseEnd, 0),   Do(AccessKind::kGradClose, 1)};
  return step;
}

TEST(StepTraceTest, LeasesHoldFromTheirMomentToTheNextChange) {
  StepTrace step = Nested();
  EXPECT_THAT(LeasedBytes(step), ElementsAre(Bytes(0), Bytes(0), Bytes(0),
                                             Bytes(0), Bytes(0), Bytes(0)));
  step.leases = {{1, Bytes(512)}, {3, Bytes(1024)}, {5, Bytes(0)}};
  EXPECT_THAT(LeasedBytes(step),
              ElementsAre(Bytes(0), Bytes(512), Bytes(512), Bytes(1024),
                          Bytes(1024), Bytes(0)));
  EXPECT_THAT(ValidateStep(step, 2), IsOk());
}

struct Mistake {
  std::string what;
  void (*make)(StepTrace&);
};

// A pass of one use before `moment`.
EvaluationPass Pass(int32_t moment) {
  return {moment, {Do(AccessKind::kUse, 1), Do(AccessKind::kUseEnd, 1)}, {}};
}

TEST(StepTraceTest, EvaluationsStandBetweenMoments) {
  StepTrace step = Nested();
  step.evaluations = {Pass(0), Pass(3), Pass(3), Pass(6)};
  step.evaluations[1].compute_ns = {1, 2};
  EXPECT_THAT(ValidateStep(step, 2), IsOk());
}

TEST(StepTraceTest, NamesParametersWithoutAGradientAndLeasesThatEndElsewhere) {
  StepTrace step = Nested();
  step.missing_grads = {{ChunkId(1), "b"}, {ChunkId(1), ""}};
  step.lease_ends = {{0, 6}, {1, 2}};
  EXPECT_THAT(ValidateStep(step, 3), IsOk());
  EXPECT_THAT(ChunksMissingGrads(step, 3), ElementsAre(false, true, false));
}

TEST(StepTraceTest, RefusesWhatIsNoStepAndNamesTheMoment) {
  const std::vector<Mistake> mistakes = {
      {"moment 1 (use of chunk 2): there are 2 chunks",
       [](StepTrace& s) { s.accesses[1].chunk = ChunkId(2); }},
      {"moment 0 (use of chunk -1)",
       [](StepTrace& s) { s.accesses[0].chunk = ChunkId(); }},
      {"moment 5 (end of use of chunk 0): no use of it has begun",
       [](StepTrace& s) { s.accesses[5] = Do(AccessKind::kUseEnd, 0); }},
      {"moment 0 (use of chunk 0): the step ends before it does",
       [](StepTrace& s) { s.accesses[4] = Do(AccessKind::kUse, 0); }},
      {"moment 3 (gradient open of chunk 1): its gradient is open already",
       [](StepTrace& s) { s.accesses[3] = s.accesses[2]; }},
      {"moment 0 (gradient close of chunk 1): its gradient is not open",
       [](StepTrace& s) { s.accesses[0] = s.accesses[5]; }},
      {"moment 2 (gradient open of chunk 1): the step ends before it is closed",
       [](StepTrace& s) { s.accesses.pop_back(); }},
      {"moment 6 is said to change",
       [](StepTrace& s) {
         s.leases = {{6, Bytes(1)}};
       }},
      {"moment 2 is said to change",
       [](StepTrace& s) {
         s.leases = {{2, Bytes(1)}, {2, Bytes(2)}};
       }},
      {"moment 3 is said to change",
       [](StepTrace& s) {
         s.leases = {{2, Bytes(1)}, {3, Bytes(1)}};
       }},
      {"moment 0 is said to change",
       [](StepTrace& s) {
         s.leases = {{0, Bytes(-1)}};
       }},
      {"times of 2 moments, and 6 accesses",
       [](StepTrace& s) {
         s.compute_ns = {1, 2};
       }},
      {"moment 4 computes for -1 ns",
       [](StepTrace& s) { s.compute_ns = {0, 0, 0, 0, -1, 0}; }},
      {"moment 1 computes for 1000000000000000 ns",
       [](StepTrace& s) { s.compute_ns = {1, kMaxStepNs, 0, 0, 0, 0}; }},
      {"evaluation 0 is said to come before moment 7: there are 6 moments",
       [](StepTrace& s) { s.evaluations = {Pass(7)}; }},
      {"evaluation 1 is said to come before moment 2",
       [](StepTrace& s) {
         s.evaluations = {Pass(3), Pass(2)};
       }},
      {"evaluation 1: it uses nothing",
       [](StepTrace& s) {
         s.evaluations = {Pass(0), {}};
       }},
      {"evaluation 0: moment 0 (use of chunk 1): the step ends before it does",
       [](StepTrace& s) {
         s.evaluations = {Pass(0)};
         s.evaluations[0].accesses.pop_back();
       }},
      {"evaluation 0: moment 0 (gradient open of chunk 1): an evaluation has",
       [](StepTrace& s) {
         s.evaluations = {Pass(0)};
         s.evaluations[0].accesses = {Do(AccessKind::kGradOpen, 1),
                                      Do(AccessKind::kGradClose, 1)};
       }},
      {"evaluation 0: compute times of 1 moments, and 2 accesses",
       [](StepTrace& s) {
         s.evaluations = {Pass(0)};
         s.evaluations[0].compute_ns = {1};
       }},
      {"chunk 0 is said to lack the gradient of a parameter",
       [](StepTrace& s) {
         s.missing_grads = {{ChunkId(0), "a"}};
       }},
      {"chunk 2 is said to lack the gradient of a parameter",
       [](StepTrace& s) {
         s.missing_grads = {{ChunkId(1), "a"}, {ChunkId(2), "b"}};
       }},
      {"the lease of moment 2 is said to end before moment 4: a lease begins "
       "at "
       "a use",
       [](StepTrace& s) {
         s.lease_ends = {{2, 4}};
       }},
      {"the lease of moment 1 is said to end before moment 1",
       [](StepTrace& s) {
         s.lease_ends = {{0, 6}, {1, 1}};
       }},
      {"the lease of moment 0 is said to end before moment 7",
       [](StepTrace& s) {
         s.lease_ends = {{0, 7}};
       }},
      {"the lease of moment 0 is said to end before moment 3",
       [](StepTrace& s) {
         s.lease_ends = {{1, 6}, {0, 3}};
       }},
  };
  EXPECT_THAT(ValidateStep(Nested(), 2), IsOk());
  for (const Mistake& mistake : mistakes) {
    StepTrace step = Nested();
    mistake.make(step);
    EXPECT_THAT(ValidateStep(step, 2),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr(mistake.what)));
  }
}

}  // namespace
}  // namespace castor
