// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/layout_file.h"

#include <cstddef>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/param_spec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/chunk/random_layout.h"
#include "tests/support/byte_mutator.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void ExpectSame(const LayoutFile& got, const LayoutFile& want) {
  EXPECT_EQ(got.layout.world(), want.layout.world());
  EXPECT_EQ(got.layout.align(), want.layout.align());
  ASSERT_EQ(got.params.size(), want.params.size());
  for (size_t p = 0; p < want.params.size(); ++p) {
    const ParamSpec& spec = want.params[p];
    EXPECT_EQ(got.params[p].name, spec.name);
    EXPECT_EQ(got.params[p].shape, spec.shape);
    EXPECT_EQ(got.params[p].dtype, spec.dtype);
    EXPECT_EQ(got.params[p].trainable, spec.trainable);
    const ParamPlace& place = want.layout.places()[p];
    EXPECT_EQ(got.layout.places()[p].chunk, place.chunk);
    EXPECT_EQ(got.layout.places()[p].offset, place.offset);
    EXPECT_EQ(got.layout.places()[p].size, place.size);
  }
  ASSERT_EQ(got.layout.chunks().size(), want.layout.chunks().size());
  for (size_t c = 0; c < want.layout.chunks().size(); ++c) {
    const ChunkInfo& chunk = want.layout.chunks()[c];
    EXPECT_EQ(got.layout.chunks()[c].group, chunk.group);
    EXPECT_EQ(got.layout.chunks()[c].size, chunk.size);
    EXPECT_EQ(got.layout.chunks()[c].used, chunk.used);
    EXPECT_EQ(got.layout.chunks()[c].payload, chunk.payload);
    EXPECT_EQ(got.layout.chunks()[c].oversize, chunk.oversize);
    EXPECT_EQ(got.layout.chunks()[c].params, chunk.params);
  }
  ASSERT_EQ(got.layout.groups().size(), want.layout.groups().size());
  for (size_t g = 0; g < want.layout.groups().size(); ++g) {
    const GroupInfo& group = want.layout.groups()[g];
    EXPECT_EQ(got.layout.groups()[g].dtype, group.dtype);
    EXPECT_EQ(got.layout.groups()[g].trainable, group.trainable);
    EXPECT_EQ(got.layout.groups()[g].chunk_size, group.chunk_size);
    EXPECT_EQ(got.layout.groups()[g].chunks, group.chunks);
    EXPECT_EQ(got.layout.groups()[g].moments8, group.moments8);
  }
}

// Two ranks, Q = 256: two parameters share chunk 0, chunk 1 is oversize, one
// parameter is empty and one is frozen.
constexpr char kSmall[] = R"({
"schema": "castor.layout/1",
"world": 2,
"align_elements": 64,
"quantum_elements": 256,
"groups": [
{"dtype": "BF16", "trainable": true, "chunk_elements": 512},
{"dtype": "F32", "trainable": false, "chunk_elements": 256}
],
"chunks": [
{"group": 0, "elements": 512, "oversize": false},
{"group": 0, "elements": 768, "oversize": true},
{"group": 1, "elements": 256, "oversize": false}
],
"parameters": [
{"name": "a", "shape": [10, 10], "dtype": "BF16", "trainable": true, "chunk": 0, "offset": 0},
{"name": "b", "shape": [300], "dtype": "BF16", "trainable": true, "chunk": 0, "offset": 128},
{"name": "c", "shape": [7, 100], "dtype": "BF16", "trainable": true, "chunk": 1, "offset": 0},
{"name": "d", "shape": [0, 5], "dtype": "BF16", "trainable": true, "chunk": null, "offset": null},
{"name": "e", "shape": [], "dtype": "F32", "trainable": false, "chunk": 2, "offset": 0}
]
}
)";

LayoutFile Small() {
  std::vector<ParamSpec> params = {{"a", {10, 10}, DType::kBF16, true},
                                   {"b", {300}, DType::kBF16, true},
                                   {"c", {7, 100}, DType::kBF16, true},
                                   {"d", {0, 5}, DType::kBF16, true},
                                   {"e", {}, DType::kF32, false}};
  const Elements sizes[] = {Elements(512), Elements(256)};
  ChunkLayout layout =
      PackChunks(params, sizes, {.world = 2, .align = Elements(64)}).value();
  return {std::move(params), std::move(layout)};
}

std::string Written(const LayoutFile& file) {
  Result<std::string> text = WriteLayout(file.params, file.layout);
  EXPECT_THAT(text, IsOk());
  return *std::move(text);
}

TEST(LayoutFileTest, WritesALineForEachParameter) {
  EXPECT_EQ(Written(Small()), kSmall);
}

TEST(LayoutFileTest, ReadsWhatItWrote) {
  const Result<LayoutFile> read = ParseLayout(kSmall);
  ASSERT_THAT(read, IsOk());
  ExpectSame(*read, Small());
}

TEST(LayoutFileTest, ReadsBackEveryRandomLayout) {
  std::mt19937_64 random(TestSeed(1));
  for (int round = 0; round < 500; ++round) {
    const LayoutFile file = RandomLayoutFile(random);
    const std::string text = Written(file);
    const Result<LayoutFile> read = ParseLayout(text);
    ASSERT_THAT(read, IsOk()) << text;
    ExpectSame(*read, file);
    EXPECT_EQ(Written(*read), text);
    if (HasFailure()) FAIL() << text;
  }
}

TEST(LayoutFileTest, SaysOfWhichGroupsMomentsAreIn8Bits) {
  std::vector<ParamSpec> params = {{"a", {100}, DType::kF32, true},
                                   {"b", {300}, DType::kF32, true}};
  params[1].moments8 = true;
  const Elements sizes[] = {Elements(256), Elements(512)};
  const std::string text = Written(
      {params, PackChunks(params, sizes, {.align = kScaleBlock}).value()});
  EXPECT_THAT(text, HasSubstr(R"("chunk_elements": 256},)"));
  EXPECT_THAT(text, HasSubstr(R"("chunk_elements": 512, "moments8": true})"));
  const Result<LayoutFile> read = ParseLayout(text);
  ASSERT_THAT(read, IsOk());
  EXPECT_FALSE(read->layout.groups()[0].moments8);
  EXPECT_TRUE(read->layout.groups()[1].moments8);
}

TEST(LayoutFileTest, HoldsAModelWithoutParameters) {
  const LayoutFile empty = {{}, ChunkLayout(3, Elements(64), {}, {}, {})};
  const Result<LayoutFile> read = ParseLayout(Written(empty));
  ASSERT_THAT(read, IsOk());
  ExpectSame(*read, empty);
}

TEST(LayoutFileTest, RefusesToWriteNamesThatDoNotReadBack) {
  const auto write = [](const std::vector<std::string>& names) {
    std::vector<ParamSpec> params;
    for (const std::string& name : names) {
      params.push_back({name, {0}, DType::kF32, true});
    }
    const ChunkLayout layout(1, Elements(64),
                             std::vector<ParamPlace>(names.size()), {}, {});
    return WriteLayout(params, layout);
  };
  EXPECT_THAT(write({"a", "b"}), IsOk());
  EXPECT_THAT(write({"a", "b", "a"}),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("\"a\"")));
  EXPECT_THAT(write({""}), StatusIs(ErrorCode::kInvalidArgument));
  EXPECT_THAT(write({"\xff"}),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("\\xff")));
}

struct Broken {
  std::string_view from;  // in kSmall, its first occurrence
  std::string_view to;
  std::string message;
};

class LayoutFileBrokenTest : public testing::TestWithParam<Broken> {};

TEST_P(LayoutFileBrokenTest, IsMalformedAndNamesThePlace) {
  std::string text = kSmall;
  const size_t at = text.find(GetParam().from);
  ASSERT_NE(at, text.npos);
  text.replace(at, GetParam().from.size(), GetParam().to);
  EXPECT_THAT(ParseLayout(text),
              StatusIs(ErrorCode::kMalformed, HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Text, LayoutFileBrokenTest,
    testing::Values(
        Broken{"{", "", "is \"schema\" where an object belongs (at byte"},
        Broken{"{", "[", "is an array where an object belongs"},
        Broken{"]\n}", "]\n", "this is not JSON"},
        Broken{"layout/1", "layout/2", "this version reads"},
        Broken{"\"schema\": \"castor.layout/1\",", "",
               "the document has no \"schema\""},
        Broken{"\"world\": 2,", "\"world\": 2, \"world\": 2,",
               "the document holds the key \"world\" twice (at byte"},
        Broken{"\"world\"", "\"word\"",
               "the document holds the unknown key \"word\"; did you mean "
               "world? (at byte"},
        Broken{"\"world\": 2", "\"world\": 0", "\"world\" is 0 where a whole"},
        Broken{"\"world\": 2", "\"world\": 2.0", "\"world\" is 2"},
        Broken{"\"world\": 2", "\"world\": [2]",
               "\"world\" is an array where a string or a number belongs"},
        Broken{"\"groups\": [", "\"groups\": 1, \"x\": [",
               "\"groups\" is 1 where an array belongs"},
        Broken{"\"chunk_elements\"", "\"chunk_element\"",
               "\"groups\"[0] holds the unknown key \"chunk_element\"; did you "
               "mean chunk_elements?"},
        Broken{"\"dtype\": \"BF16\", ", "", "\"groups\"[0] has no \"dtype\""},
        Broken{"\"BF16\"", "\"bf16\"",
               "\"groups\"[0].\"dtype\": dtype \"bf16\" is unknown"},
        Broken{"\"trainable\": true", "\"trainable\": 1",
               "\"groups\"[0].\"trainable\" is 1 where true or false belongs"},
        Broken{"\"trainable\": true", "\"moments8\": 1, \"trainable\": true",
               "\"groups\"[0].\"moments8\" is 1 where true or false belongs"},
        Broken{"\"trainable\": true", "\"moments8\": true, \"trainable\": true",
               "group 0 has moments of 8 bits, and parameters are aligned to "
               "64 elements: it needs a multiple of 128"},
        Broken{"{\"group\": 0", "{\"group\": -1", "\"chunks\"[0].\"group\" is"},
        Broken{"[10, 10]", "[10, -10]", "\"parameters\"[0].\"shape\"[1]"},
        Broken{"[10, 10]", "[10, [10]]", "is an array where a dimension"},
        Broken{"[10, 10]", "100",
               "\"parameters\"[0].\"shape\" is 100 where an array belongs"},
        Broken{"\"name\": \"a\"", "\"name\": 5", "is 5 where a string"},
        Broken{"\"name\": \"a\"", "\"name\": {}",
               "is an object where a plain value"},
        Broken{"\"offset\": 128", "\"offset\": \"128\"",
               "\"parameters\"[1].\"offset\" is \"128\""},
        Broken{", \"offset\": 128", "",
               "\"parameters\"[1] has no \"offset\""}));

// Others that the parts may have are in layout_parts_test.cc.
INSTANTIATE_TEST_SUITE_P(Layout, LayoutFileBrokenTest,
                         testing::Values(Broken{
                             "\"name\": \"b\"", "\"name\": \"a\"",
                             "parameter 1 \"a\": the name was given already"}));

TEST(LayoutFileTest, RefusesALongText) {
  EXPECT_THAT(ParseLayout(std::string((size_t{256} << 20) + 1, ' ')),
              StatusIs(ErrorCode::kMalformed, HasSubstr("268435457 bytes")));
}

// What a layout is written with, beside what every parser meets.
std::vector<std::string> Tokens() {
  std::vector<std::string> tokens = ParserTokens();
  for (const char* own :
       {"1", "64", "128", "256", "512", "768", "1152921504606846976",
        "\"chunk\"",
        "{\"group\": 0, \"elements\": 512, \"oversize\": false},"}) {
    tokens.emplace_back(own);
  }
  return tokens;
}

// CHECKs of the layout and sanitizers see to it that what is accepted is one.
TEST(LayoutFileTest, EndsInALayoutOrInMalformedWhateverIsDamaged) {
  ByteMutator mutator(TestSeed(2), Tokens());
  int accepted = 0;
  for (int round = 0; round < 15'000; ++round) {
    const std::string text = mutator.Mutate(kSmall);
    const Result<LayoutFile> read = ParseLayout(text);
    if (!read.ok()) {
      ASSERT_EQ(read.status().code(), ErrorCode::kMalformed) << text;
      continue;
    }
    ++accepted;
    const Result<LayoutFile> again = ParseLayout(Written(*read));
    ASSERT_THAT(again, IsOk()) << text;
    ExpectSame(*again, *read);
    ASSERT_GE(read->layout.allocated_bytes(), read->layout.payload_bytes());
  }
  EXPECT_GT(accepted, 20);  // some damage does no harm
}

// --- Of the model at hand ----------------------------------------------------

std::vector<ParamSpec> Registered() {
  return {{"a", {4, 3}, DType::kF32, true},
          {"b", {5}, DType::kF32, true},
          {"c", {6}, DType::kF32, true}};
}

LayoutFile MadeBefore() {
  const Elements size[] = {Elements(256)};
  return {Registered(),
          PackChunks(Registered(), size, {.world = 2, .align = Elements(64)})
              .value()};
}

TEST(LayoutMatchTest, AcceptsTheModelItWasMadeFrom) {
  EXPECT_THAT(CheckLayoutFits(MadeBefore(), Registered(), 2), IsOk());
}

TEST(LayoutMatchTest, RefusesAnotherNumberOfRanks) {
  EXPECT_THAT(CheckLayoutFits(MadeBefore(), Registered(), 4),
              StatusIs(ErrorCode::kInvalidArgument,
                       AllOf(HasSubstr("for 2 ranks and there are 4"),
                             HasSubstr("--world 4"))));
}

TEST(LayoutMatchTest, NamesTheFirstParameterThatDiffers) {
  const auto message = [](auto change) {
    std::vector<ParamSpec> params = Registered();
    change(params);
    const Status status = CheckLayoutFits(MadeBefore(), params, 2);
    EXPECT_THAT(status, StatusIs(ErrorCode::kInvalidArgument,
                                 HasSubstr("in the order in which they are "
                                           "registered")));
    return std::string(status.message());
  };
  EXPECT_THAT(message([](auto& p) { p[1].name = "x"; }),
              HasSubstr("its parameter 1 is \"b\" (F32 [5]), and the one "
                        "registered is \"x\" (F32 [5])"));
  EXPECT_THAT(message([](auto& p) { p[0].shape = {12}; }),
              HasSubstr("its parameter 0 is \"a\" (F32 [4, 3]), and the one "
                        "registered is \"a\" (F32 [12])"));
  EXPECT_THAT(message([](auto& p) { p[2].dtype = DType::kBF16; }),
              HasSubstr("registered is \"c\" (BF16 [6])"));
  EXPECT_THAT(message([](auto& p) { p[2].trainable = false; }),
              HasSubstr("registered is \"c\" (F32 [6], frozen)"));
  EXPECT_THAT(message([](auto& p) { std::swap(p[1], p[2]); }),
              HasSubstr("parameter 1 is \"b\" (F32 [5]), and the one "
                        "registered is \"c\""));
}

TEST(LayoutMatchTest, NamesTheFirstParameterThatOneSideLacks) {
  std::vector<ParamSpec> params = Registered();
  params.push_back({"d", {7}, DType::kF32, true});
  EXPECT_THAT(CheckLayoutFits(MadeBefore(), params, 2),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("it has 3 parameters and 4 are registered; "
                                 "the first that the layout lacks is \"d\"")));
  params.resize(1);
  EXPECT_THAT(CheckLayoutFits(MadeBefore(), params, 2),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("it has 3 parameters and 1 are registered; "
                                 "the first that the model lacks is \"b\"")));
}

}  // namespace
}  // namespace castor
