// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "chunk/base/units.h"
#include "collectives/checkpoint/files/data_file.h"
#include "tests/support/fakes/forgetful_files.h"
#include "tests/support/file_text.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tools/cli/console.h"
#include "tools/commands/ckpt/ckpt.h"

namespace castor {
namespace {

namespace fs = std::filesystem;

TEST(CkptConvertTest, WhatWasConvertedSurvivesAPowerCut) {
  const TempDir from;
  const std::string head =
      R"({"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("w":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})";
  std::string length(8, '\0');
  length[0] = static_cast<char>(head.size());
  std::ofstream(from.File("model.safetensors"), std::ios::binary)
      << length << head << "sixteen bytes...";

  const TempDir dir;
  const TempDir after;
  ForgetfulFiles files(dir.path());
  const ScopedDataFileCalls calls(files.Calls());
  CkptRequest request;
  request.directory = from.File("model.safetensors");
  request.out = dir.File("out");
  request.max_file = Bytes(8);  // two files and an index
  std::ostringstream out;
  std::ostringstream err;
  ASSERT_THAT(RunCkptConvert(request, Console{.out = out, .err = err}), IsOk());
  files.Recover(after.File("left"));
  int same = 0;
  for (const fs::directory_entry& made : fs::directory_iterator(request.out)) {
    const std::string name = made.path().filename().string();
    const fs::path left = after.path() / "left" / "out" / name;
    ASSERT_TRUE(fs::exists(left)) << name;
    EXPECT_EQ(FileText(left.string()), FileText(made.path().string())) << name;
    ++same;
  }
  EXPECT_EQ(same, 3);
}

}  // namespace
}  // namespace castor
