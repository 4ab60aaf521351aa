// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/support/temp_dir.h"

#include <cstdlib>
#include <system_error>

#include "chunk/base/check.h"
#include "gtest/gtest.h"

namespace castor {

TempDir::TempDir() {
  std::string pattern =
      (std::filesystem::path(testing::TempDir()) / "castor-XXXXXX").string();
  CASTOR_CHECK(mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;  // a folder left behind fails no test
  std::filesystem::remove_all(path_, ignored);
}

std::string TempDir::File(std::string_view name) const {
  return (path_ / name).string();
}

}  // namespace castor
