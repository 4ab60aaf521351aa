// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/trace/micro_batches.h"

#include <cstdint>
#include <vector>

#include "chunk/base/ids.h"
#include "gtest/gtest.h"
#include "placement/trace.h"

namespace castor {
namespace {

Access Open(int32_t chunk) { return {AccessKind::kGradOpen, ChunkId(chunk)}; }
Access Close(int32_t chunk) { return {AccessKind::kGradClose, ChunkId(chunk)}; }
Access Use(int32_t chunk) { return {AccessKind::kUse, ChunkId(chunk)}; }

TEST(InLastMicroBatchTest, AllLiesThereWhereThereIsOne) {
  EXPECT_EQ(InLastMicroBatch({}, 1), std::vector<bool>());
  EXPECT_EQ(InLastMicroBatch({Use(0), Open(1), Open(0), Close(0)}, 2),
            std::vector<bool>(4, true));
}

TEST(InLastMicroBatchTest, BeginsWhereAGradientOpensAgain) {
  const Trace trace = {Open(1), Close(1), Open(0),  Close(0),
                       Use(0),  Open(1),  Close(1), Use(0)};
  EXPECT_EQ(
      InLastMicroBatch(trace, 2),
      std::vector<bool>({false, false, false, false, false, true, true, true}));
}

}  // namespace
}  // namespace castor
