// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_TEMP_DIR_H_
#define CASTOR_TESTS_SUPPORT_TEMP_DIR_H_

// A fresh folder below the test's own temporary folder, removed with all it
// holds at the end of the scope. Owner thread only.

#include <filesystem>
#include <string>
#include <string_view>

namespace castor {

class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // The path of `name` in the folder; nothing is made.
  std::string File(std::string_view name) const;

 private:
  std::filesystem::path path_;
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_TEMP_DIR_H_
