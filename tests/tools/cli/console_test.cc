// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/console.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "chunk/base/status.h"

namespace castor {
namespace {

TEST(ConsoleTest, KeepsNotesAndFailuresOffTheResult) {
  std::ostringstream out, err;
  const Console console{.out = out, .err = err};
  console.Note("a note");
  EXPECT_EQ(ReportStatus(Malformed("line 3 is bad"), "castor search", console),
            4);
  EXPECT_EQ(ReportStatus(OkStatus(), "castor search", console), 0);
  EXPECT_EQ(out.str(), "");
  EXPECT_EQ(err.str(), "castor: note: a note\ncastor search: line 3 is bad\n");
}

TEST(ConsoleTest, ReportsAResultThatCouldNotBeWritten) {
  std::ofstream full("/dev/full");
  if (!full) GTEST_SKIP() << "this machine has no /dev/full";
  std::ostringstream err;
  const Console console{.out = full, .err = err};
  console.out << "half an answer";
  const Status status = FlushOutput(console);
  EXPECT_EQ(status.code(), ErrorCode::kIoError);
  EXPECT_NE(status.message().find("No space left"), std::string::npos)
      << status;
}

TEST(ConsoleTest, AcceptsAResultThatWasWritten) {
  std::ostringstream out, err;
  EXPECT_TRUE(FlushOutput({.out = out, .err = err}).ok());
}

}  // namespace
}  // namespace castor
