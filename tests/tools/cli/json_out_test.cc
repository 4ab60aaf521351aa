// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/json_out.h"

#include <gtest/gtest.h>

#include <sstream>

#include "chunk/text/json_value.h"

namespace castor {
namespace {

TEST(JsonOutTest, KeepsTheOrderOfKeysAndEndsWithANewline) {
  JsonValue document;
  document["zebra"] = 1;
  document["ant_bytes"] = int64_t{9223372036854775807};
  std::ostringstream out;
  WriteJson(document, out);
  EXPECT_EQ(out.str(),
            "{\n  \"zebra\": 1,\n  \"ant_bytes\": 9223372036854775807\n}\n");
}

TEST(JsonOutTest, ReplacesBytesThatAreNotUtf8) {
  JsonValue document;
  document["name"] = "a\xff";
  std::ostringstream out;
  WriteJson(document, out);
  EXPECT_EQ(ParseJson(out.str()).value()["name"], "a\xef\xbf\xbd");
}

}  // namespace
}  // namespace castor
