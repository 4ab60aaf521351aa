// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/files/castor_files.h"

#include <fstream>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/layout_file.h"
#include "chunk/param_spec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/tier_model.h"
#include "placement/trace/trace_file.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CastorFilesTest : public testing::Test {
 protected:
  std::string Put(const std::string& name, const std::string& text) const {
    std::ofstream(dir_.File(name)) << text;
    return dir_.File(name);
  }

  // Where nothing is and where the file is none of its kind, both are named.
  template <typename Read>
  void ExpectNamed(const Read& read, const std::string& bad,
                   const std::string& message) const {
    EXPECT_THAT(read(dir_.File("nowhere")),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr("nowhere")));
    EXPECT_THAT(read(Put("bad", bad)),
                StatusIs(ErrorCode::kMalformed,
                         AllOf(HasSubstr("/bad\": "), HasSubstr(message))));
  }

  const TempDir dir_;
};

TEST_F(CastorFilesTest, ReadsALayout) {
  const std::vector<ParamSpec> params = {{"w", {100}, DType::kF32, true}};
  const Elements size[] = {Elements(256)};
  const Result<std::string> text =
      WriteLayout(params, *PackChunks(params, size, PackOptions()));
  ASSERT_THAT(text, IsOk());
  const Result<LayoutFile> layout = ReadLayoutFile(Put("layout", *text));
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->params[0].name, "w");
  EXPECT_EQ(layout->layout.chunks()[0].size, Elements(256));
  ExpectNamed(ReadLayoutFile, R"({"wrold":2})",
              "unknown key \"wrold\"; did you mean world? (at byte ");
}

TEST_F(CastorFilesTest, ReadsAMachine) {
  TierModel want;
  want.nvme_read = LinkModel{7000000, 80};
  EXPECT_THAT(ReadMachineFile(Put("machine", R"({"schema":"castor.machine/1",
      "links":{"nvme_read":{"bytes_per_second":7000000,"latency_ns":80}}})")),
              IsOkAndHolds(want));
  ExpectNamed(ReadMachineFile,
              R"({"schema":"castor.machine/1","links":{"nvme_raed":{}}})",
              "did you mean nvme_read?");
}

TEST_F(CastorFilesTest, WritesAndReadsATrace) {
  TraceFile trace;
  trace.chunks = {{0, KiB(4), KiB(4), true}};
  trace.step.accesses = {{AccessKind::kUse, ChunkId(0)},
                         {AccessKind::kUseEnd, ChunkId(0)}};
  ASSERT_THAT(WriteTraceFile(dir_.File("step"), trace), IsOk());
  EXPECT_THAT(ReadTraceFile(dir_.File("step")), IsOkAndHolds(trace));
  EXPECT_THAT(WriteTraceFile(dir_.File("no/where"), trace),
              StatusIs(ErrorCode::kInvalidArgument));
  ExpectNamed(ReadTraceFile, R"({"rnak":2})", "did you mean rank? (at byte ");
}

}  // namespace
}  // namespace castor
