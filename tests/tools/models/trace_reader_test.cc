// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fstream>
#include <string>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/trace_file.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tools/models/castor_files.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(TraceReaderTest, ReadsWhatItWroteAndNamesWhatItCannotRead) {
  const TempDir dir;
  TraceFile trace;
  trace.chunks = {{0, KiB(4), KiB(4), true}};
  trace.step.accesses = {{AccessKind::kUse, ChunkId(0)},
                         {AccessKind::kUseEnd, ChunkId(0)}};
  ASSERT_THAT(WriteTraceFile(dir.File("step"), trace), IsOk());
  EXPECT_THAT(ReadTraceFile(dir.File("step")), IsOkAndHolds(trace));

  std::ofstream(dir.File("bad")) << R"({"rnak":2})";
  EXPECT_THAT(ReadTraceFile(dir.File("bad")),
              StatusIs(ErrorCode::kMalformed,
                       AllOf(HasSubstr("/bad\": the document holds the unknown "
                                       "key \"rnak\"; did you mean rank?"),
                             HasSubstr("(at byte "))));
  EXPECT_THAT(ReadTraceFile(dir.File("nowhere")),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("nowhere")));
  EXPECT_THAT(WriteTraceFile(dir.File("no/where"), trace),
              StatusIs(ErrorCode::kInvalidArgument));
}

}  // namespace
}  // namespace castor
