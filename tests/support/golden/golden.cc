// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/support/golden/golden.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include "gtest/gtest.h"

namespace castor {
namespace {

using Lines = std::vector<std::string>;

Lines LinesOf(std::istream& text) {
  Lines lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

std::string NameOf(const std::string& line) {
  return line.substr(0, line.find('\t'));
}

// Those of the file whose names are among these, in the order of these.
Lines Chosen(const Lines& file, const Lines& names) {
  std::map<std::string, std::string> by_name;
  for (const std::string& line : file) by_name[NameOf(line)] = line;
  Lines chosen;
  for (const std::string& line : names) {
    chosen.push_back(by_name[NameOf(line)]);
  }
  return chosen;
}

}  // namespace

void ExpectGolden(std::string_view path, const std::string& text,
                  GoldenLines which) {
  if (const char* folder = std::getenv("CASTOR_WRITE_GOLDEN")) {
    std::ofstream file(std::filesystem::path(folder) / path);
    file << text;
    ASSERT_TRUE(file.flush()) << "cannot write " << path << " in " << folder;
    return;
  }
  std::ifstream file{std::string(path)};
  ASSERT_TRUE(file) << "cannot read " << path;
  std::istringstream made(text);
  const Lines now = LinesOf(made);
  Lines before = LinesOf(file);
  if (which == GoldenLines::kSome) before = Chosen(before, now);
  constexpr size_t kShown = 5;
  size_t differ = 0;
  for (size_t i = 0; i < std::max(now.size(), before.size()); ++i) {
    const std::string is = i < now.size() ? now[i] : "(nothing)";
    const std::string was = i < before.size() ? before[i] : "(nothing)";
    if (is == was || ++differ > kShown) continue;
    ADD_FAILURE() << path << ", line " << i + 1 << "\nis  " << is << "\nwas "
                  << was;
  }
  EXPECT_EQ(differ, 0u)
      << "lines of " << path
      << " differ; tests/support/golden/golden.h says how it is "
         "written anew";
}

}  // namespace castor
