// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What castor.h says of configs is what configs are, and its initializer leaves
// nothing unset.

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <variant>

#include "collectives/c_api/castor.h"
#include "collectives/zero_config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace castor {
namespace {

using testing::HasSubstr;

std::string Words(const OptionScalar& value) {
  if (const auto* is = std::get_if<bool>(&value)) return *is ? "true" : "false";
  if (const auto* text = std::get_if<std::string>(&value)) {
    return '"' + *text + '"';
  }
  if (const auto* whole = std::get_if<int64_t>(&value)) {
    return std::to_string(*whole);
  }
  // Numbers of the header are whole where they can be.
  return fmt::format("{:.10g}", std::get<double>(value));
}

TEST(HeaderTest, HasEveryKeyOfAConfigWithItsDefault) {
  std::ifstream file("collectives/c_api/castor.h");
  const std::string header(std::istreambuf_iterator<char>(file), {});
  const std::string words =
      std::regex_replace(header, std::regex(R"(\s*\n \*\s*)"), " ");
  ZeroOptions options;
  options.own_lease_ends = true;  // of every engine of the C ABI
  EngineFiles files;
  const OptionTable table = EngineOptions(&options, &files);
  for (const Option& row : table.rows()) {
    if (row.key.empty()) continue;
    std::string said = ' ' + row.key;
    if (row.get && row.get()) said += ' ' + Words(*row.get());
    EXPECT_THAT(words, HasSubstr(said));
  }
}

TEST(HeaderTest, TheInitializerSetsTheSizeAndNothingElse) {
  const castor_engine_stats stats = CASTOR_INIT(castor_engine_stats);
  EXPECT_EQ(stats.struct_size, sizeof(stats));
  EXPECT_EQ(stats.device_budget_bytes, 0);
  EXPECT_EQ(stats.chunk_bytes, 0);
}

}  // namespace
}  // namespace castor
