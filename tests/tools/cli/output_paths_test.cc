// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/output_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class OutputPathsTest : public testing::Test {
 protected:
  // Makes the file, and folders on its way.
  std::string File(const std::string& name) {
    const fs::path path = dir_.path() / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "there";
    return path.string();
  }
  std::string New(const std::string& name) {
    return (dir_.path() / name).string();
  }
  static Status Check(const std::string& input, const std::string& output,
                      bool (*reads)(const fs::path&) = nullptr) {
    return CheckOutputs(std::array{NamedPath{"--in", input, reads}},
                        std::array{NamedPath{"-o", output}});
  }

  const TempDir dir_;
};

auto Refused() {
  return StatusIs(
      ErrorCode::kInvalidArgument,
      AllOf(HasSubstr("-o "), HasSubstr("would overwrite what --in names")));
}

TEST_F(OutputPathsTest, AFileIsKnownUnderAllItsNames) {
  const std::string input = File("a/model.tsv");
  fs::create_symlink(input, New("link"));
  fs::create_hard_link(input, New("hard"));
  fs::create_directory_symlink(dir_.path() / "a", New("folder"));
  for (const std::string& name :
       {input, New("link"), New("hard"), New("a/../a/./model.tsv"),
        New("folder/model.tsv"), fs::relative(input).string()}) {
    EXPECT_THAT(Check(input, name), Refused()) << name;
    EXPECT_THAT(Check(name, input), Refused()) << name;
  }
  EXPECT_THAT(Check(input, New("a/other")), IsOk());
  EXPECT_THAT(Check(input, File("b/model.tsv")), IsOk());
  EXPECT_THAT(Check(input, ""), IsOk());
  EXPECT_THAT(Check("", input), IsOk());
  EXPECT_THAT(Check("-", "-"), IsOk());
}

TEST_F(OutputPathsTest, ARecordOfRanksIsTheirFiles) {
  const std::string record = New("run.rec");
  EXPECT_THAT(Check(record, File("run.rec.0")), Refused());
  EXPECT_THAT(Check(record, File("run.rec.12")), Refused());
  EXPECT_THAT(Check(record, File("run.rec.html")), IsOk());
  EXPECT_THAT(Check(record, File("other.rec.0")), IsOk());
}

TEST_F(OutputPathsTest, AFolderIsWhatIsReadInside) {
  const std::string weights = File("model/model-00001-of-00002.safetensors");
  const std::string index = File("model/model.safetensors.index.json");
  const std::string config = File("model/config.json");
  const std::string page = File("model/page.html");
  File("run/step-00000002/castor.json");
  const std::string states = File("run/step-00000002/states.bin");
  const std::string record = File("run/run.rec");
  for (const std::string& file : {weights, index, config}) {
    EXPECT_THAT(Check(New("model"), file), Refused()) << file;
  }
  EXPECT_THAT(Check(index, weights), Refused());
  EXPECT_THAT(Check(New("run"), states), Refused());
  EXPECT_THAT(Check(New("model"), page), IsOk());
  EXPECT_THAT(Check(New("model"), New("model/new.safetensors")), IsOk());
  EXPECT_THAT(Check(New("run"), record), IsOk());
  const auto reads_pages = [](const fs::path& file) {
    return file.extension() == ".html";
  };
  EXPECT_THAT(Check(New("model"), page, reads_pages), Refused());
  EXPECT_THAT(Check(New("model"), weights, reads_pages), IsOk());
  fs::create_hard_link(weights, New("elsewhere"));
  EXPECT_THAT(Check(New("model"), New("elsewhere")), Refused());
}

TEST_F(OutputPathsTest, TwoOutputsAreTwoFiles) {
  const auto both = [](const std::string& a, const std::string& b) {
    return CheckOutputs(
        {}, std::array{NamedPath{"--html", a}, NamedPath{"--chrome", b}});
  };
  EXPECT_THAT(
      both(New("page"), New("./page")),
      StatusIs(ErrorCode::kInvalidArgument,
               HasSubstr("--html and --chrome would both be written to")));
  EXPECT_THAT(both(New("page"), New("trace")), IsOk());
  EXPECT_THAT(both(New("run.rec"), New("run.rec.1")),
              StatusIs(ErrorCode::kInvalidArgument));
  EXPECT_THAT(both(New("run.rec.1"), New("run.rec")),
              StatusIs(ErrorCode::kInvalidArgument));
  EXPECT_THAT(both(New("run.rec"), New("run.rec.svg")), IsOk());
  EXPECT_THAT(both("/dev/null", "/dev/null"), IsOk());
  ASSERT_EQ(mkfifo(New("pipe").c_str(), 0600), 0);
  EXPECT_THAT(both(New("pipe"), New("pipe")), IsOk());
  EXPECT_THAT(both("", ""), IsOk());
  EXPECT_THAT(both("-", "./-"), StatusIs(ErrorCode::kInvalidArgument));
}

}  // namespace
}  // namespace castor
