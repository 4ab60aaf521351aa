// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_plain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/tools/commands/search/made_report.h"

namespace castor {
namespace {

TEST(SearchPlainTest, WritesALineForEachCandidate) {
  const SearchReport report = MadeReport(Irregular());
  const auto& candidates = report.result.groups[0].candidates;
  const std::vector<std::string> lines = Lines(SearchPlain(report));
  ASSERT_EQ(lines.size(), candidates.size() + 1);
  const auto columns = std::count(lines[0].begin(), lines[0].end(), '\t');
  EXPECT_EQ(columns, 11);
  EXPECT_EQ(lines[0][0], '#');
  for (size_t i = 0; i < candidates.size(); ++i) {
    const std::string& line = lines[i + 1];
    EXPECT_EQ(std::count(line.begin(), line.end(), '\t'), columns);
    EXPECT_EQ(
        line.rfind("F32\tuniform\t" +
                       std::to_string(candidates[i].chunk_size.count()) + "\t",
                   0),
        0u);
  }
}

TEST(SearchPlainTest, NamesTheColumnsOfAnEmptyModel) {
  EXPECT_EQ(Lines(SearchPlain(MadeReport({}))).size(), 1u);
}

}  // namespace
}  // namespace castor
