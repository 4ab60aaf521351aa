// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/trace/trace_file.h"

#include <random>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/param_spec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/placement/random_step.h"
#include "tests/support/byte_mutator.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

auto IsMalformed(const std::string& why) {
  return StatusIs(ErrorCode::kMalformed, HasSubstr(why));
}

constexpr char kText[] = R"({
"schema": "castor.trace/1",
"rank": 1,
"world": 2,
"chunks": [
{"class": 0, "gathered_bytes": 4096, "shard_bytes": 2048, "trainable": true},
{"class": 1, "gathered_bytes": 512, "shard_bytes": 256, "trainable": false}
],
"moments": [
{"moment": 0, "access": "use", "chunk": 1, "leased_bytes": 512, "compute_ns": 7},
{"moment": 1, "access": "use_end", "chunk": 1, "compute_ns": 0},
{"moment": 2, "access": "grad_open", "chunk": 0, "leased_bytes": 0, "compute_ns": 9},
{"moment": 3, "access": "grad_close", "chunk": 0, "compute_ns": 1}
]
}
)";

TraceFile Written() {
  TraceFile file;
  file.rank = 1;
  file.world = 2;
  file.chunks = {{0, Bytes(4096), Bytes(2048), true},
                 {1, Bytes(512), Bytes(256), false}};
  file.step.accesses = {{AccessKind::kUse, ChunkId(1)},
                        {AccessKind::kUseEnd, ChunkId(1)},
                        {AccessKind::kGradOpen, ChunkId(0)},
                        {AccessKind::kGradClose, ChunkId(0)}};
  file.step.leases = {{0, Bytes(512)}, {2, Bytes(0)}};
  file.step.compute_ns = {7, 0, 9, 1};
  return file;
}

TEST(TraceFileTest, WritesALineForEachChunkAndMoment) {
  EXPECT_EQ(WriteTrace(Written()), kText);
  EXPECT_THAT(ParseTrace(kText), IsOkAndHolds(Written()));
}

// Replaces the first `from` of a text that is good.
std::string With(const std::string& from, const std::string& to) {
  std::string text = kText;
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

// Earlier versions wrote how far up their arena leases reached, also where that
// alone changed.
TEST(TraceFileTest, GapsBetweenLeasesAreIgnored) {
  const std::string gap = ", \"lease_gap_bytes\": 1024";
  EXPECT_THAT(
      ParseTrace(With("\"leased_bytes\": 512", "\"leased_bytes\": 512" + gap)),
      IsOkAndHolds(Written()));
  const std::string leased = "\"chunk\": 1, \"leased_bytes\": 512";
  std::string repeated = With(leased, leased + gap);
  const std::string use_end = "\"use_end\", \"chunk\": 1";
  repeated.insert(repeated.find(use_end) + use_end.size(),
                  ", \"leased_bytes\": 512");
  EXPECT_THAT(ParseTrace(repeated), IsOkAndHolds(Written()));
  EXPECT_THAT(ParseTrace(With("\"chunk\": 1, \"compute_ns\": 0",
                              "\"chunk\": 1, \"leased_bytes\": 512")),
              StatusIs(ErrorCode::kMalformed));
}

TEST(TraceFileTest, ReadsItsKeysInAnyOrder) {
  const Result<TraceFile> file = ParseTrace(
      R"({"moments":[{"chunk":0,"moment":0,"access":"use"},
          {"access":"use_end","chunk":0,"moment":1}],"world":1,"rank":0,
          "chunks":[{"trainable":true,"shard_bytes":3,"class":0,
          "gathered_bytes":3}],"schema":"castor.trace/1"})");
  ASSERT_THAT(file, IsOk());
  EXPECT_EQ(file->step.accesses.size(), 2u);
  EXPECT_TRUE(file->step.compute_ns.empty());
  EXPECT_THAT(
      ParseTrace(R"({"schema":"castor.trace/1","rank":0,"world":1,"chunks":[],)"
                 R"("moments":[]})"),
      IsOkAndHolds(TraceFile()));
}

TEST(TraceFileTest, NamesParametersInTheOrderOfTheirFirstUse) {
  TraceFile file = Written();
  file.params = {"wte", "h.0.\"quoted\"", "\u00e9"};
  const std::string text = WriteTrace(file);
  EXPECT_THAT(text, HasSubstr("],\n\"params\": [\n\"wte\",\n\"h.0.\\\"quoted"
                              "\\\"\",\n"));
  EXPECT_THAT(ParseTrace(text), IsOkAndHolds(file));

  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {R"("params": ["a", "a"],)", "\"a\" cannot be a name in \"params\""},
      {R"("params": [""],)", "names are UTF-8, not empty"},
      {R"("params": [3],)", R"("params"[0] is 3)"},
      {R"("params": ["a", {}],)", R"("params"[1] is an object)"},
      {R"("params": {},)", R"("params" is an object)"},
      {R"("params": "a",)", R"("params" is "a")"},
      {R"("params": [], "params": [],)", "params"}};
  for (const auto& [section, message] : mistakes) {
    EXPECT_THAT(ParseTrace(With("\"moments\"", section + "\"moments\"")),
                IsMalformed(message))
        << section;
  }
}

TEST(TraceFileTest, NamesGroupsOfRanks) {
  TraceFile file = Written();
  file.world = 4;
  file.shard_group = 2;
  const std::string groups = "\"world\": 4,\n\"shard_group\": 2,\n";
  EXPECT_THAT(WriteTrace(file), HasSubstr(groups + "\"chunks\""));
  EXPECT_THAT(ParseTrace(WriteTrace(file)), IsOkAndHolds(file));
  file.spans_world = true;
  const std::string text =
      With("\"world\": 2,\n", groups + "\"optimizer_span\": \"world\",\n");
  EXPECT_EQ(WriteTrace(file), text);
  EXPECT_THAT(ParseTrace(text), IsOkAndHolds(file));

  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {R"("shard_group": 3,)", "its 2 ranks cannot be cut into shard groups"},
      {R"("shard_group": 0,)", R"("shard_group" is 0)"},
      {R"("optimizer_span": "machine",)", "one of group, world"},
      {R"("optimizer_span": 1,)", R"("optimizer_span" is 1)"}};
  for (const auto& [section, message] : mistakes) {
    EXPECT_THAT(ParseTrace(With("\"chunks\"", section + "\"chunks\"")),
                IsMalformed(message))
        << section;
  }
}

TEST(TraceFileTest, ChunksSayOfWhichTypeTheirParametersAre) {
  TraceFile file = Written();
  file.chunks[0].dtype = DType::kBF16;
  file.chunks[1].dtype = DType::kF32;
  const std::string text = WriteTrace(file);
  EXPECT_THAT(text,
              AllOf(HasSubstr("\"trainable\": true, \"dtype\": \"BF16\"},"),
                    HasSubstr("false, \"dtype\": \"F32\"}\n")));
  EXPECT_THAT(ParseTrace(text), IsOkAndHolds(file));

  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {With("true}", R"(true, "dtype": "BF61"})"),
       R"("chunks"[0]."dtype" is "BF61")"},
      {With("true}", R"(true, "dtype": 16})"), "a type such as BF16"},
      {With("true}", R"(true, "dtype": ["F32"]})"), "is an array"},
      {With("true}", R"(true, "dtype": "F32"})"),
       "chunk 1 has no dtype, unlike the chunks before it"},
      {With("false}", R"(false, "dtype": "F32"})"), "chunk 1 has a dtype"}};
  for (const auto& [wrong, message] : mistakes) {
    EXPECT_THAT(ParseTrace(wrong), IsMalformed(message)) << wrong;
  }
  std::string odd = text;
  odd.replace(odd.find("\"gathered_bytes\": 512"), 21,
              "\"gathered_bytes\": 510");
  EXPECT_THAT(ParseTrace(odd),
              IsMalformed("chunk 1 has 510 bytes, which is no whole "
                          "number of F32 elements"));
}

constexpr char kEvaluations[] = R"(],
"evaluations": [
{"evaluation": 0, "before": 0, "access": "use", "chunk": 1, "compute_ns": 5},
{"evaluation": 0, "before": 0, "access": "use_end", "chunk": 1, "compute_ns": 0},
{"evaluation": 1, "before": 4, "access": "use", "chunk": 0},
{"evaluation": 1, "before": 4, "access": "use_end", "chunk": 0}
]
}
)";

TEST(TraceFileTest, EvaluationsHaveALineForEachAccess) {
  TraceFile file = Written();
  file.step.evaluations = {
      {0,
       {{AccessKind::kUse, ChunkId(1)}, {AccessKind::kUseEnd, ChunkId(1)}},
       {5, 0}},
      {4,
       {{AccessKind::kUse, ChunkId(0)}, {AccessKind::kUseEnd, ChunkId(0)}},
       {}}};
  const std::string text = With("]\n}\n", kEvaluations);
  EXPECT_EQ(WriteTrace(file), text);
  EXPECT_THAT(ParseTrace(text), IsOkAndHolds(file));
}

TEST(TraceFileTest, RefusesEvaluationsThatAreNone) {
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {R"({"evaluation": 1, "before": 0, "access": "use", "chunk": 0})",
       "is of evaluation 1 behind 0 others"},
      {R"({"evaluation": 0, "before": 0, "access": "use", "chunk": 0},
          {"evaluation": 0, "before": 1, "access": "use_end", "chunk": 0})",
       "before moment 1, and its evaluation before moment 0"},
      {R"({"evaluation": 0, "before": 0, "access": "use", "chunk": 0},
          {"evaluation": 0, "before": 0, "access": "use_end", "chunk": 0,
           "compute_ns": 3})",
       "has a compute_ns, unlike those before it"},
      {R"({"evaluation": 0, "access": "use", "chunk": 0})", "before"},
      {R"({"evaluation": 0, "before": 0, "access": "use", "chunk": 0})",
       "evaluation 0: moment 0 (use of chunk 0): the step ends"},
      {R"({"evaluation": 0, "before": 0, "access": "use", "chunk": 0,
           "leased_bytes": 1})",
       "leased_bytes"},
      {"7", R"("evaluations"[0] is 7)"}};
  for (const auto& [accesses, message] : mistakes) {
    const std::string section = "\"evaluations\": [" + accesses + "],";
    EXPECT_THAT(ParseTrace(With("\"moments\"", section + "\"moments\"")),
                IsMalformed(message))
        << section;
  }
}

TEST(TraceFileTest, NamesParametersWithoutAGradientAndOwnEndsOfLeases) {
  TraceFile file = Written();
  file.step.missing_grads = {{ChunkId(0), "h.0.\"spare\""}, {ChunkId(0), ""}};
  file.step.lease_ends = {{0, 4}};
  const std::string text = With("]\n}\n", R"(],
"missing_grads": [
{"chunk": 0, "param": "h.0.\"spare\""},
{"chunk": 0}
],
"lease_ends": [
{"use": 0, "before": 4}
]
}
)");
  EXPECT_EQ(WriteTrace(file), text);
  EXPECT_THAT(ParseTrace(text), IsOkAndHolds(file));
  for (const auto& [section, message] :
       std::vector<std::pair<std::string, std::string>>{
           {R"("missing_grads": [{"param": "a"}],)", R"(has no "chunk")"},
           {R"("missing_grads": [{"chunk": 0, "param": ""}],)",
            "a parameter's name"},
           {R"("missing_grads": [{"chunk": 1}],)", "chunk 1 is said to lack"},
           {R"("missing_grads": 4,)", R"("missing_grads" is 4)"},
           {R"("lease_ends": [{"use": 0}],)", R"(has no "before")"},
           {R"("lease_ends": [{"use": 0, "behind": 3}],)", "behind"},
           {R"("lease_ends": [{"use": 1, "before": 3}],)",
            "the lease of moment 1"}}) {
    EXPECT_THAT(ParseTrace(With("\"moments\"", section + "\"moments\"")),
                IsMalformed(message))
        << section;
  }
}

TEST(TraceFileTest, NamesTheKeyAndTheByteOfAMistake) {
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {With("trace/1", "trace/2"), "this version reads \"castor.trace/1\""},
      {With("\"rank\": 1,\n", ""), "has no \"rank\""},
      {With("\"world\"", "\"wrold\""), "did you mean world?"},
      {With("\"rank\": 1", "\"rank\": -1"), R"("rank" is -1)"},
      {With("\"rank\": 1", "\"rank\": 1, \"rank\": 1"), "rank"},
      {With("\"class\": 1", "\"class\": 2"), R"("chunks"[1]."class" is 2)"},
      {With("4096", "1099511627777"), R"("chunks"[0]."gathered_bytes" is)"},
      {With("true", "1"), R"("chunks"[0]."trainable" is 1)"},
      {With("\"moment\": 1", "\"moment\": 2"), R"("moments"[1]."moment" is 2)"},
      {With("\"use\"", "\"use \""), "one of use, use_end"},
      {With("\"access\": \"use\", ", ""), R"("moments"[0] has no "access")"},
      {With("\"use\"", "[]"), R"("moments"[0]."access" is an array)"},
      {With(", \"compute_ns\": 0", ""), R"("moments"[1] has no compute_ns)"},
      {With("{\"class\": 0", "[], {\"class\": 0"),
       R"("chunks"[0] is an array)"},
      {With("\"leased_bytes\": 512", "\"leased_bytes\": 0.5"), "0.5"},
      {With("\"moments\": [", "\"moments\": 3, \"x\": ["), R"("moments" is 3)"},
  };
  for (const auto& [text, message] : mistakes) {
    EXPECT_THAT(ParseTrace(text),
                StatusIs(ErrorCode::kMalformed,
                         AllOf(HasSubstr(message), HasSubstr("(at byte "))))
        << text;
  }
}

TEST(TraceFileTest, RefusesWhatIsNoStep) {
  for (const auto& [text, message] :
       std::vector<std::pair<std::string, std::string>>{
           {With("\"world\": 2", "\"world\": 1"), "its rank is 1 of 1"},
           {With("\"access\": \"use\"", "\"access\": \"use_end\""),
            "moment 0 (end of use of chunk 1): no use"},
           {With("\"chunk\": 1, \"leased", "\"chunk\": 2, \"leased"),
            "there are 2 chunks"},
           {With("512, \"compute", "0, \"compute"), "moment 0 is said"}}) {
    EXPECT_THAT(ParseTrace(text), IsMalformed(message));
  }
}

TEST(TraceFileTest, EveryTraceComesBackAsItWasAndDamageDoesNoHarm) {
  const uint64_t seed = TestSeed(20261121);
  std::mt19937_64 random(seed);
  ByteMutator mutator(seed, ParserTokens());
  int good = 0;
  for (int i = 0; i < 300; ++i) {
    const TraceFile file = RandomTraceFile(random);
    const std::string text = WriteTrace(file);
    ASSERT_THAT(ParseTrace(text), IsOkAndHolds(file));
    const Result<TraceFile> damaged = ParseTrace(mutator.Mutate(text));
    if (!damaged.ok()) continue;
    ++good;
    ASSERT_THAT(ParseTrace(WriteTrace(*damaged)), IsOkAndHolds(*damaged));
  }
  EXPECT_GT(good, 0);
}

TEST(TraceFileTest, NumbersClassesOfChunksByTheSizesOfTheirSlots) {
  const std::vector<ParamSpec> params = {{"a", {500}, DType::kBF16, true},
                                         {"b", {2000}, DType::kBF16, true},
                                         {"c", {500}, DType::kBF16, true},
                                         {"d", {256}, DType::kF32, false}};
  PackOptions pack;
  pack.world = 2;
  const Elements sizes[] = {Elements(512), Elements(256)};
  EXPECT_THAT(
      TraceChunks(*PackChunks(params, sizes, pack)),
      ElementsAre(TraceChunk{0, KiB(1), Bytes(512), true, DType::kBF16},
                  TraceChunk{1, KiB(4), KiB(2), true, DType::kBF16},
                  TraceChunk{0, KiB(1), Bytes(512), true, DType::kBF16},
                  TraceChunk{0, KiB(1), Bytes(512), false, DType::kF32}));
}

}  // namespace
}  // namespace castor
