// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fstream>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_packer.h"
#include "chunk/layout_file.h"
#include "chunk/param_spec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tools/models/castor_files.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class LayoutReaderTest : public testing::Test {
 protected:
  std::string Put(const std::string& name, const std::string& text) const {
    std::ofstream(dir_.File(name)) << text;
    return dir_.File(name);
  }

  TempDir dir_;
};

TEST_F(LayoutReaderTest, ReadsWhatWasWritten) {
  const std::vector<ParamSpec> params = {{"w", {100}, DType::kF32, true}};
  const Elements size[] = {Elements(256)};
  const Result<std::string> text =
      WriteLayout(params, *PackChunks(params, size, PackOptions()));
  ASSERT_THAT(text, IsOk());
  const Result<LayoutFile> layout = ReadLayoutFile(Put("layout", *text));
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->params[0].name, "w");
  EXPECT_EQ(layout->layout.chunks()[0].size, Elements(256));
}

TEST_F(LayoutReaderTest, NamesTheFileAndThePlaceOfAMistake) {
  EXPECT_THAT(ReadLayoutFile(Put("bad", R"({"wrold":2})")),
              StatusIs(ErrorCode::kMalformed,
                       AllOf(HasSubstr("/bad\": the document holds the unknown "
                                       "key \"wrold\"; did you mean world?"),
                             HasSubstr("(at byte "))));
  EXPECT_THAT(ReadLayoutFile(Put("empty", "")),
              StatusIs(ErrorCode::kMalformed, HasSubstr("/empty\"")));
}

TEST_F(LayoutReaderTest, SaysWhereNothingIs) {
  EXPECT_THAT(ReadLayoutFile(dir_.File("nowhere")),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("nowhere")));
}

}  // namespace
}  // namespace castor
