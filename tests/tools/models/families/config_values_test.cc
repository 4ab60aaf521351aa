// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/families/config_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ConfigValues Parsed(const std::string& json) {
  Result<ConfigValues> config = ConfigValues::Parse(json);
  CASTOR_CHECK(config.ok());
  return *std::move(config);
}

TEST(ConfigValuesTest, ReadsKeysAndFallsBackWhereTheyAreMissing) {
  const ConfigValues config = Parsed(
      R"({"model_type":"llama","architectures":["A","B"],"n":7,"old":9,
          "yes":true,"rope":{"n":8},"list":[1,"x"]})");
  EXPECT_EQ(*config.model_type(), "llama");
  EXPECT_EQ(*config.architecture(), "A");
  EXPECT_EQ(*config.Int("n", 1), 7);
  EXPECT_EQ(*config.Int("m", 1), 1);
  EXPECT_EQ(*config.IntAlias("m", "old", 1), 9);
  EXPECT_EQ(*config.IntAlias("n", "m", 1), 7);
  // Two names that say different numbers.
  EXPECT_EQ(config.IntAlias("n", "old", 1).status().code(),
            ErrorCode::kMalformed);
  EXPECT_TRUE(*config.Bool("yes", false));
  EXPECT_TRUE(*config.Bool("other", true));
  EXPECT_FALSE(config.quantized());
  EXPECT_EQ(*config.dtype(), DType::kF32);
}

TEST(ConfigValuesTest, DoesWithoutFamilyOrArchitecture) {
  EXPECT_EQ(*Parsed("{}").model_type(), "");
  EXPECT_EQ(*Parsed(R"({"architectures":[]})").architecture(), "");
  EXPECT_EQ(*Parsed(R"({"architectures":null})").architecture(), "");
}

TEST(ConfigValuesTest, TellsNullFromMissing) {
  const ConfigValues config = Parsed(R"({"n":null})");
  EXPECT_EQ(*config.IntOrNull("n", 8, 32), 32);
  EXPECT_EQ(*config.IntOrNull("m", 8, 32), 8);
  EXPECT_FALSE(config.Int("n", 8).ok());
}

TEST(ConfigValuesTest, TakesNullForNo) {
  const ConfigValues config = Parsed(R"({"n":null,"y":true,"i":1})");
  EXPECT_FALSE(*config.BoolOrNull("n", true));
  EXPECT_TRUE(*config.BoolOrNull("y", false));
  EXPECT_TRUE(*config.BoolOrNull("m", true));
  EXPECT_FALSE(config.BoolOrNull("i", true).ok());
}

TEST(ConfigValuesTest, ReadsInfinityAsNull) {
  ASSERT_OK_AND_ASSIGN(
      const ConfigValues config,
      ConfigValues::Parse(R"({"a":Infinity,"b":[0.0, -Infinity],"c":7,)"
                          R"("d":"say \"Infinity"})"));
  EXPECT_TRUE(config.IsNull("a"));
  EXPECT_TRUE(config.IsList("b"));
  EXPECT_THAT(config.Int("c", 0), IsOkAndHolds(7));
  EXPECT_THAT(config.String("d", ""), IsOkAndHolds("say \"Infinity"));
  EXPECT_THAT(ConfigValues::Parse(R"({"a":Infinite})"),
              StatusIs(ErrorCode::kMalformed, HasSubstr("(at byte ")));
}

TEST(ConfigValuesTest, ReadsStrings) {
  const ConfigValues config = Parsed(R"({"s":"relu","i":1})");
  EXPECT_EQ(*config.String("s", "gelu"), "relu");
  EXPECT_EQ(*config.String("m", "gelu"), "gelu");
  EXPECT_FALSE(config.String("i", "gelu").ok());
}

TEST(ConfigValuesTest, ReadsListsOfNumbers) {
  const ConfigValues config = Parsed(
      R"({"a":[3,1,2147483647],"none":[],"null":null,"n":7,"s":"x","o":{},
          "mixed":[1,"x"],"deep":[[1]],"less":[-1],"more":[2147483648],
          "real":[1.5],"in":{"a":[9]}})");
  EXPECT_THAT(*config.IntList("a"), ElementsAre(3, 1, 2147483647));
  for (const std::string key : {"none", "null", "missing"}) {
    ASSERT_TRUE(config.IntList(key).ok()) << key;
    EXPECT_THAT(*config.IntList(key), ElementsAre()) << key;
  }
  for (const std::string key :
       {"n", "s", "o", "mixed", "deep", "less", "more", "real"}) {
    const Status status = config.IntList(key).status();
    EXPECT_EQ(status.code(), ErrorCode::kMalformed) << key;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("\"" + key + "\" is "));
  }
  EXPECT_THAT(*Parsed(R"({"a":[1],"text_config":{"a":[2]}})").IntList("a"),
              ElementsAre(2));
}

TEST(ConfigValuesTest, ReadsTheTypeUnderBothNames) {
  EXPECT_EQ(*Parsed(R"({"torch_dtype":"bfloat16"})").dtype(), DType::kBF16);
  EXPECT_EQ(*Parsed(R"({"dtype":"float16"})").dtype(), DType::kF16);
  EXPECT_EQ(*Parsed(R"({"dtype":null,"torch_dtype":"float16"})").dtype(),
            DType::kF16);
  EXPECT_EQ(ExitCode(Parsed(R"({"dtype":"auto"})").dtype().status().code()), 4);
  EXPECT_FALSE(Parsed(R"({"dtype":16})").dtype().ok());
}

TEST(ConfigValuesTest, StillHasTheWholeOfALargerModel) {
  const ConfigValues part = Parsed(
      R"({"model_type":"llava","architectures":["Llava"],
          "text_config":{"model_type":"llama"}})");
  EXPECT_EQ(*part.model_type(), "llama");
  EXPECT_EQ(*part.Whole().model_type(), "llava");
  EXPECT_EQ(*part.Whole().architecture(), "Llava");
  EXPECT_EQ(*Parsed(R"({"model_type":"gpt2"})").Whole().model_type(), "gpt2");
}

TEST(ConfigValuesTest, UsesTheLanguagePartOfALargerModel) {
  const ConfigValues config = Parsed(
      R"({"model_type":"llava","torch_dtype":"bfloat16","n":1,
          "vision_config":{"n":2},"text_config":{"model_type":"llama","n":3},
          "quantization_config":{"bits":4}})");
  EXPECT_EQ(*config.model_type(), "llama");
  EXPECT_EQ(*config.Int("n", 0), 3);
  EXPECT_EQ(*config.dtype(), DType::kBF16);
  EXPECT_TRUE(config.quantized());
  EXPECT_THAT(config.other_parts(), ElementsAre("vision_config"));
}

struct Hostile {
  std::string json;
  std::string message;
};

class HostileConfigTest : public testing::TestWithParam<Hostile> {};

// Asked for key "n", at least 1, for a switch "b", and for the names.
TEST_P(HostileConfigTest, IsMalformedAndNamesTheKey) {
  const auto read = [&]() -> Status {
    CASTOR_ASSIGN_OR_RETURN(const ConfigValues config,
                            ConfigValues::Parse(GetParam().json));
    CASTOR_RETURN_IF_ERROR(config.model_type().status());
    CASTOR_RETURN_IF_ERROR(config.architecture().status());
    CASTOR_RETURN_IF_ERROR(config.Int("n", 1).status());
    return config.Bool("b", true).status();
  };
  const Status status = read();
  EXPECT_EQ(status.code(), ErrorCode::kMalformed) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, HostileConfigTest,
    testing::Values(
        Hostile{"", "not JSON"}, Hostile{"[]", "is an array"},
        Hostile{"3", "is no object"}, Hostile{R"({"n":1,"n":2})", "twice"},
        Hostile{R"({"a":{"x":1,"x":1}})", R"("a" holds the key "x" twice)"},
        Hostile{R"({"model_type":7})", R"("model_type" is 7 where a string)"},
        Hostile{R"({"model_type":["gpt2"]})", R"("model_type" is an array)"},
        Hostile{R"({"architectures":7})", R"("architectures" is 7)"},
        Hostile{R"({"n":0})", R"("n" is 0 where a whole number from 1 to)"},
        Hostile{R"({"n":-1})", R"("n" is -1)"},
        Hostile{R"({"n":1.5})", R"("n" is 1.5)"},
        Hostile{R"({"n":2147483648})", R"("n" is 2147483648)"},
        Hostile{R"({"n":18446744073709551617})",
                R"("n" is 18446744073709551617)"},
        Hostile{R"({"n":"7"})", R"("n" is "7")"},
        Hostile{R"({"n":null})", R"("n" is null)"},
        Hostile{R"({"n":{}})", R"("n" is an object)"},
        Hostile{R"({"n":true})", R"("n" is true)"},
        Hostile{R"({"b":1})", R"("b" is 1 where true or false belongs)"},
        Hostile{R"({"b":"true"})", R"("b" is "true")"}));

}  // namespace
}  // namespace castor
