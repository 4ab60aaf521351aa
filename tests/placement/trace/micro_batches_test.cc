// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/trace/micro_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "chunk/base/ids.h"
#include "placement/trace.h"

namespace castor {
namespace {

using testing::ElementsAre;

// A sweep forward over two chunks, and one backward, which opens and ends the
// gradients of those that `opens` and `ends` name.
void AddSweeps(Trace* trace, const std::vector<int>& opens,
               const std::vector<int>& ends) {
  const auto add = [trace](AccessKind kind, int chunk) {
    trace->push_back({kind, ChunkId(chunk)});
  };
  for (const int c : {0, 1}) {
    add(AccessKind::kUse, c);
    add(AccessKind::kUseEnd, c);
  }
  for (const int c : {1, 0}) {
    add(AccessKind::kUse, c);
    for (const int open : opens) {
      if (open == c) add(AccessKind::kGradOpen, c);
    }
    for (const int end : ends) {
      if (end == c) add(AccessKind::kGradClose, c);
    }
    add(AccessKind::kUseEnd, c);
  }
}

constexpr size_t kSweeps = 12;  // accesses, with all gradients

TEST(MicroBatchBeginsTest, OneWhoseGradientsOpenOnceIsOne) {
  Trace trace;
  AddSweeps(&trace, {1, 0}, {1, 0});
  EXPECT_THAT(MicroBatchBegins(trace, {false, false}), ElementsAre(0));
  EXPECT_THAT(MicroBatchBegins({}, {}), ElementsAre(0));
}

TEST(MicroBatchBeginsTest, ASweepForwardBelongsToTheGradientsBehindIt) {
  Trace trace;
  for (int m = 0; m < 3; ++m) AddSweeps(&trace, {1, 0}, {1, 0});
  EXPECT_THAT(MicroBatchBegins(trace, {false, false}),
              ElementsAre(0, kSweeps, 2 * kSweeps));
}

TEST(MicroBatchBeginsTest, SumsOverMicroBatchesAreOpenOnce) {
  Trace trace;
  AddSweeps(&trace, {1, 0}, {});
  AddSweeps(&trace, {}, {1, 0});
  EXPECT_THAT(MicroBatchBegins(trace, {false, false}), ElementsAre(0));
}

// What lacks a gradient ends where a micro-batch does: the next one begins
// there, unless the step ends.
TEST(MicroBatchBeginsTest, WhatLacksAGradientEndsWithItsMicroBatch) {
  const ChunkId lacking(1);
  Trace trace;
  AddSweeps(&trace, {1, 0}, {0});
  const size_t first_end = trace.size();
  trace.push_back({AccessKind::kGradClose, lacking});
  AddSweeps(&trace, {1, 0}, {0});
  trace.push_back({AccessKind::kGradClose, lacking});
  EXPECT_THAT(MicroBatchBegins(trace, {false, true}),
              ElementsAre(0, first_end));
}

}  // namespace
}  // namespace castor
