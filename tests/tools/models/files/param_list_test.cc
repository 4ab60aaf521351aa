// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/files/param_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/param_spec.h"
#include "placement/derive/step_model.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

// The same two parameters in both forms.
void ExpectSample(const Result<std::vector<ParamSpec>>& params) {
  ASSERT_TRUE(params.ok()) << params.status();
  ASSERT_EQ(params->size(), 3u);
  EXPECT_EQ((*params)[0].name, "wte weight");
  EXPECT_THAT((*params)[0].shape, ElementsAre(50257, 768));
  EXPECT_EQ((*params)[0].dtype, DType::kBF16);
  EXPECT_TRUE((*params)[0].trainable);
  EXPECT_THAT((*params)[1].shape, IsEmpty());
  EXPECT_EQ((*params)[1].dtype, DType::kF32);
  EXPECT_THAT((*params)[2].shape, ElementsAre(0));
}

Result<std::vector<ParamSpec>> ParamsOf(std::string_view text) {
  CASTOR_ASSIGN_OR_RETURN(ParamList list, ParseTsvList(text));
  EXPECT_EQ(list.step, DeclaredStep());
  return std::move(list.params);
}

TEST(ParamListTest, ReadsTsv) {
  ExpectSample(
      ParamsOf("wte weight\t50257,768\tBF16\nscale\t\tfloat32\n"
               "none\t0\tF32\n"));
  ExpectSample(
      ParamsOf("\nwte weight\t50257,768\tBF16\r\n\r\nscale\t\tF32\r\n"
               "none\t0\tF32"));
  EXPECT_THAT(*ParamsOf(""), IsEmpty());
}

TEST(ParamListTest, ReadsJson) {
  ExpectSample(ParseJsonList(
      R"([{"name":"wte weight","shape":[50257,768],"dtype":"BF16"},
          {"dtype":"float32","shape":[],"name":"scale"},
          {"name":"none","shape":[0],"dtype":"F32"}])"));
  EXPECT_THAT(*ParseJsonList("[]"), IsEmpty());
}

std::vector<ParamId> Ids(std::vector<int32_t> numbers) {
  std::vector<ParamId> ids;
  for (const int32_t number : numbers) ids.emplace_back(number);
  return ids;
}

TEST(ParamListTest, TellsWhatAStepDoesWithThem) {
  const std::string text =
      "a\t2\tF32\nb\t\tBF16\n\tstep\tseparate\n\thold\ta\tb\n\thold\tb\n"
      "\tgrads\tb\ta\n\thold\n\tgrads\ta\n\thold\ta\n";
  const Result<ParamList> list = ParseTsvList(text);
  ASSERT_THAT(list, IsOk());
  EXPECT_EQ(list->params.size(), 2u);
  EXPECT_EQ(list->step, (DeclaredStep{{{Ids({0, 1}), {}},
                                       {Ids({1}), Ids({1, 0})},
                                       {{}, Ids({0})},
                                       {Ids({0}), {}}},
                                      false}));
  EXPECT_EQ(WriteTsvList(list->params, list->step), text);
  const Result<ParamList> over = ParseTsvList("a\t2\tF32\n\tstep\treuse\n");
  ASSERT_THAT(over, IsOk());
  EXPECT_EQ(over->step, (DeclaredStep{{}, true}));
}

TEST(ParamListTest, TellsWhatOptimizersDoWithThem) {
  const std::string text =
      "a\t2,3\tF32\twhole,states=1\nb\t2\tF32\twhole\nc\t2\tF32\tstates=0\n"
      "d\t2\tF32\n\tstep\tseparate\n";
  const Result<ParamList> list = ParseTsvList(text);
  ASSERT_THAT(list, IsOk());
  std::vector<std::pair<bool, int>> found;
  for (const ParamSpec& spec : list->params) {
    found.emplace_back(spec.whole, spec.states);
  }
  EXPECT_THAT(found, ElementsAre(Pair(true, 1), Pair(true, -1), Pair(false, 0),
                                 Pair(false, -1)));
  EXPECT_EQ(WriteTsvList(list->params, list->step), text);
}

struct Hostile {
  std::string text;
  std::string message;
};

class HostileTsvTest : public testing::TestWithParam<Hostile> {};

TEST_P(HostileTsvTest, IsMalformedAndNamesTheLine) {
  const auto params = ParseTsvList("good\t1\tF32\n" + GetParam().text);
  ASSERT_FALSE(params.ok());
  EXPECT_EQ(ExitCode(params.status().code()), 4);
  EXPECT_THAT(
      std::string(params.status().message()),
      testing::AllOf(HasSubstr("line 2: "), HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    All, HostileTsvTest,
    testing::Values(
        Hostile{"w 1 F32", "is not three fields with tabs"},
        Hostile{"w\t1", "is not three fields"},
        Hostile{"w\t1\tF32\textra",
                "parameter \"w\": its fourth field is \"extra\" where whole"},
        Hostile{"w\t1\tF32\t", "its fourth field is \"\""},
        Hostile{"w\t1\tF32\twhole,", "its fourth field is \"whole,\""},
        Hostile{"w\t1\tF32\tstates=1,states=0", "its fourth field is"},
        Hostile{"w\t1\tF32\tstates=10", "\"states=10\" where whole, states="},
        Hostile{"w\t1\tF32\twhole\twhole", "is \"whole\\twhole\""},
        Hostile{"\t1\tF32", "the name is empty"},
        Hostile{std::string("a\0b\t1\tF32", 9),
                "\"a\\x00b\" holds a zero byte"},
        Hostile{"w\t-1\tF32", "parameter \"w\": its dimension \"-1\""},
        Hostile{"w\t-0\tF32", "its dimension \"-0\""},
        Hostile{"w\t1.0\tF32", "its dimension \"1.0\""},
        Hostile{"w\t1, 2\tF32", "its dimension \" 2\""},
        Hostile{"w\t1,\tF32", "its dimension \"\""},
        Hostile{"w\t,1\tF32", "its dimension \"\""},
        Hostile{"w\t0x10\tF32", "its dimension \"0x10\""},
        Hostile{"w\t9223372036854775808\tF32", "\"9223372036854775808\""},
        Hostile{"w\t99999999999999999999999\tF32", "is no whole number"},
        Hostile{"w\t4294967296,4294967296\tF32", "parameter \"w\": shape"},
        Hostile{"w\t1\t", "parameter \"w\": dtype \"\" is unknown"},
        Hostile{"w\t1\tF33", "dtype \"F33\" is unknown; did you mean F32?"},
        Hostile{"w\t3\tF4", "do not end on a byte"},
        Hostile{"\thold\tgood", "the first of these is a tab, step"},
        Hostile{"\tstep\tfp32", "separate or reuse"},
        Hostile{"good\t2\tF32", "\"good\" was listed in line 1 already"},
        Hostile{"\x1b[2J", "\"\\x1b[2J\""}));

class HostileStepTest : public testing::TestWithParam<Hostile> {};

TEST_P(HostileStepTest, IsMalformedAndNamesTheLine) {
  const auto list =
      ParseTsvList("good\t1\tF32\n\tstep\tseparate\n" + GetParam().text);
  ASSERT_FALSE(list.ok());
  EXPECT_EQ(ExitCode(list.status().code()), 4);
  EXPECT_THAT(std::string(list.status().message()),
              HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, HostileStepTest,
    testing::Values(
        Hostile{"\tgrads\tgood", "line 3: grads follows the hold"},
        Hostile{"\thold\n\tgrads\tgood\n\tgrads\tgood",
                "line 5: grads follows the hold of its operation, once"},
        Hostile{"\thold\n\tgrads", "line 4: grads names none"},
        Hostile{"\thold\tbad", "line 3: the step uses \"bad\", which is not"},
        Hostile{"\thold\tgood\t\tgood", "line 3: the step uses \"\""},
        Hostile{"\tholds\tgood", "line 3: \"holds\" where hold or grads"},
        Hostile{"\tstep\tseparate", "line 3: \"step\" where hold or grads"},
        Hostile{"late\t1\tF32", "line 3: parameters stand before"}));

class HostileJsonListTest : public testing::TestWithParam<Hostile> {};

TEST_P(HostileJsonListTest, IsMalformedAndNamesTheElement) {
  const auto params = ParseJsonList(GetParam().text);
  ASSERT_FALSE(params.ok());
  EXPECT_EQ(ExitCode(params.status().code()), 4);
  EXPECT_THAT(std::string(params.status().message()),
              HasSubstr(GetParam().message));
}

const std::string kGood = R"({"name":"a","shape":[1],"dtype":"F32"})";

INSTANTIATE_TEST_SUITE_P(
    All, HostileJsonListTest,
    testing::Values(
        Hostile{"[", "not JSON"}, Hostile{"{}", "the document is an object"},
        Hostile{"3", "the document is 3 where an array belongs"},
        Hostile{"[3]", "[0] is 3 where an object belongs"},
        Hostile{"[[]]", "[0] is an array where an object belongs"},
        Hostile{"[" + kGood + R"(,{"shape":[1],"dtype":"F32"}])",
                "element 1 has no name"},
        Hostile{R"([{"name":"a","dtype":"F32"}])", "element 0 has no shape"},
        Hostile{R"([{"name":"a","shape":[]}])", "element 0 has no dtype"},
        Hostile{R"([{"name":"a\u0000b"}])", "element 0: the name \"a\\x00b\""},
        Hostile{R"([{"name":"","shape":[],"dtype":"F32"}])",
                "element 0: the name is empty"},
        Hostile{R"([{"name":7}])", R"([0]."name" is 7 where a string)"},
        Hostile{R"([{"name":"a","shape":5}])",
                R"([0]."shape" is 5 where an array)"},
        Hostile{R"([{"name":"a","shape":[[5]]}])",
                R"([0]."shape"[0] is an array where a dimension)"},
        Hostile{R"([{"name":"a","shape":[-5]}])",
                R"(parameter "a": its shape holds -5)"},
        Hostile{R"([{"name":"a","shape":[1.5]}])", "its shape holds 1.5"},
        Hostile{R"([{"shape":[null]}])", "element 0: its shape holds null"},
        Hostile{R"([{"name":"a","dtype":"F33"}])",
                R"(parameter "a": dtype "F33" is unknown)"},
        Hostile{R"([{"name":"a","dtypes":"F32"}])",
                R"(parameter "a": unknown key "dtypes"; did you mean dtype?)"},
        Hostile{R"([{"name":"a","name":"b"}])", R"([0] holds the key "name")"},
        Hostile{"[" + kGood + "," + kGood + "]",
                R"(parameter "a" is listed twice)"},
        Hostile{R"([{"name":"a","shape":[4294967296,4294967296],)"
                R"("dtype":"F32"}])",
                R"(parameter "a": shape [4294967296, 4294967296])"},
        Hostile{R"([{"name":"a","shape":[3],"dtype":"F4"}])",
                "do not end on a byte"}));

}  // namespace
}  // namespace castor
