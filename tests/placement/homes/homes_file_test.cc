// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/homes/homes_file.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::HasSubstr;

std::vector<HomesOfChunk> TwoChunks() {
  std::vector<HomesOfChunk> chunks(2);
  chunks[0][0] = {Tier::kHost, Bytes(4096), "by a rule"};
  chunks[0][3] = {Tier::kNvme, Bytes(8192), "by the budgets"};
  chunks[1][0] = {Tier::kDevice, Bytes(0), "by the budgets"};
  return chunks;
}

TEST(HomesFileTest, IsReadBackAsItWas) {
  const std::string text = WriteHomes(TwoChunks(), StateNames());
  const auto read = ParseHomes(text, StateNames());
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(*read, TwoChunks());
  // A reason stands there once.
  EXPECT_EQ(text.find("by the budgets"), text.rfind("by the budgets"));
  EXPECT_EQ(*ParseHomes(WriteHomes({}, StateNames()), StateNames()),
            std::vector<HomesOfChunk>());
}

TEST(HomesFileTest, StatesHaveTheOptimizersNames) {
  const StateNames names({"momentum_buffer"});
  const std::string text = WriteHomes(TwoChunks(), names);
  EXPECT_THAT(text, HasSubstr("\"momentum_buffer\""));
  EXPECT_EQ(*ParseHomes(text, names), TwoChunks());
  EXPECT_THAT(ParseHomes(text, StateNames()), StatusIs(ErrorCode::kMalformed));
}

TEST(HomesFileTest, WhatIsNoneIsRefused) {
  const std::string text = WriteHomes(TwoChunks(), StateNames());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return ParseHomes(changed.replace(at, from.size(), to), StateNames());
  };
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{
           {"\"host\"", "\"attic\""},
           {"4096", "-4096"},
           {"4096,0", "4096,7"},
           {"4096,0", "4096"},
           {"\"exp_avg\"", "\"exp_avg_3\""},
           {"[\"host\",4096,0]", "7"}}) {
    EXPECT_THAT(with(from, to),
                StatusIs(ErrorCode::kMalformed, HasSubstr("chunk 0")))
        << to;
  }
  EXPECT_THAT(with("castor.homes/1", "castor.homes/9"),
              StatusIs(ErrorCode::kMalformed));
  EXPECT_THAT(with("\"by a rule\"", "3"), StatusIs(ErrorCode::kMalformed));
  for (const char* text : {"", "[]", "{}", "{\"schema\":\"castor.homes/1\"}"}) {
    EXPECT_THAT(ParseHomes(text, StateNames()), StatusIs(ErrorCode::kMalformed))
        << text;
  }
}

}  // namespace
}  // namespace castor
