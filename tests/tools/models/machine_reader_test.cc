// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fstream>
#include <string>

#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/tier_model.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tools/models/castor_files.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(MachineReaderTest, ReadsAFileAndNamesItWhereItIsNone) {
  TempDir dir;
  std::ofstream(dir.File("machine.json")) << R"({"schema":"castor.machine/1",
      "links":{"nvme_read":{"bytes_per_second":7000,"latency_ns":80}}})";
  std::ofstream(dir.File("bad")) << R"({"schema":"castor.machine/1",
      "links":{"nvme_raed":{}}})";
  TierModel want;
  want.nvme_read = LinkModel{7000, 80};
  EXPECT_THAT(ReadMachineFile(dir.File("machine.json")), IsOkAndHolds(want));
  EXPECT_THAT(ReadMachineFile(dir.File("bad")),
              StatusIs(ErrorCode::kMalformed,
                       AllOf(HasSubstr("/bad\": "),
                             HasSubstr("did you mean nvme_read?"))));
  EXPECT_THAT(ReadMachineFile(dir.File("nowhere")),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("nowhere")));
}

}  // namespace
}  // namespace castor
