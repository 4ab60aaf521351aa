// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "chunk/search/layer_certificate.h"
#include "chunk/search/search_certificate.h"
#include "chunk/text/json_value.h"
#include "tests/tools/commands/search/made_report.h"
#include "tools/cli/text/text_forms.h"
#include "tools/commands/search/search_run.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

std::string PageOf(const SearchReport& report) {
  return SearchDocument(report).Page();
}

void ExpectOneScreen(const std::string& page) {
  const std::vector<std::string> lines = Lines(page);
  EXPECT_LE(lines.size(), kPageLines) << page;
  for (const std::string& line : lines) {
    EXPECT_LE(line.size(), kPageColumns) << line;
  }
}

TEST(SearchDocumentTest, IsThatOfTheDesign) {
  const JsonValue json = SearchDocument(MadeReport(Irregular())).Json();
  EXPECT_THAT(json.keys(),
              ElementsAre("schema", "model", "options", "alignment",
                          "candidates", "best", "recommended", "certificate",
                          "certificates", "rules"));
  EXPECT_EQ(json["schema"], "castor.search/1");
  EXPECT_EQ(json["model"]["tensors"], 60);
  EXPECT_EQ(json["model"]["parameters"], json["model"]["elements"]);
  EXPECT_EQ(json["model"]["order"], "natural");
  EXPECT_EQ(json["options"]["min_chunk_bytes"], 1024);
  EXPECT_EQ(json["options"]["gathered_slots"], 3);
  EXPECT_TRUE(json["options"]["device_budget_bytes"].is_null());
  EXPECT_EQ(json["alignment"].Dump(), R"({"q_elements":128,"a_elements":64})");
  for (const JsonValue& candidate : json["candidates"]) {
    EXPECT_THAT(candidate.keys(),
                ElementsAre("mode", "chunk_elements", "chunk_bytes", "chunks",
                            "oversize_chunks", "allocated_elements",
                            "waste_elements", "waste_bytes", "waste_fraction",
                            "gathered_bytes", "reason"));
  }
  EXPECT_THAT(json["candidates"], Contains(json["best"]));
  EXPECT_THAT(json["candidates"], Contains(json["recommended"]));
  EXPECT_THAT(json["certificates"], ElementsAre(json["certificate"]));
}

TEST(SearchDocumentTest, SaysWhatStaysWhole) {
  std::vector<ParamSpec> params = Irregular();
  params[3].shape = {40'000};
  for (size_t i = 0; i < 5; ++i) params[i].whole = true;
  SearchReport report = MadeReport(params);
  EXPECT_THAT(PageOf(report), Not(HasSubstr("Whole")));
  report.search.pack = {.world = 4, .shards = 4};
  report.result = SearchChunkSize(params, report.search).value();
  // Four shards of 40,000 elements of F32, in multiples of 512: above the
  // largest size asked for.
  EXPECT_THAT(PageOf(report),
              HasSubstr("5 parameters of F32 that no border between 4 shards "
                        "may cut: chunks of 626 KiB at least"));
  EXPECT_EQ(SearchDocument(report).Json()["best"]["chunk_bytes"], 641'024);
  ExpectOneScreen(PageOf(report));
}

TEST(SearchDocumentTest, NamesTheGroupWhereThereAreSeveral) {
  std::vector<ParamSpec> params = Irregular();
  params.push_back({"norm", {10}, DType::kBF16});
  params.push_back({"frozen", {10}, DType::kBF16, /*trainable=*/false});
  const SearchReport report = MadeReport(params);
  const JsonValue json = SearchDocument(report).Json();
  ASSERT_EQ(json["best"].size(), 3u);
  ASSERT_EQ(json["certificates"].size(), 3u);
  EXPECT_EQ(json["best"][0]["group"], "F32");
  EXPECT_EQ(json["recommended"][1]["group"], "BF16");
  EXPECT_EQ(json["certificate"][2]["group"], "BF16 frozen");
  for (const std::string choice : {"best", "recommended"}) {
    int64_t waste = 0;
    int64_t gathered = 0;
    for (const JsonValue& one : json[choice]) {
      waste += one["waste_bytes"].integer();
      gathered += one["gathered_bytes"].integer();
    }
    const JsonValue& totals = json["totals"][choice];
    EXPECT_EQ(totals["waste_bytes"], waste);
    EXPECT_EQ(totals["gathered_bytes"], gathered);
    EXPECT_EQ(totals["allocated_bytes"],
              json["model"]["total_bytes"].integer() + waste);
  }
  const std::string page = PageOf(report);
  ExpectOneScreen(page);
  EXPECT_THAT(page, HasSubstr("Group       BF16 frozen: 1 tensor"));
  EXPECT_THAT(page, HasSubstr("All groups  "));
}

TEST(SearchDocumentTest, KnowsAModelWithoutParameters) {
  const Document document = SearchDocument(MadeReport({}));
  EXPECT_TRUE(document.Json()["candidates"].empty());
  EXPECT_TRUE(document.Json()["best"].is_null());
  EXPECT_TRUE(document.Json()["recommended"].is_null());
  EXPECT_EQ(document.Json()["certificate"]["optimal"], true);
  EXPECT_TRUE(document.Json()["certificates"].empty());
  EXPECT_THAT(document.Page(), HasSubstr("nothing to pack"));
  EXPECT_EQ(Lines(document.Plain()).size(), 1u);
}

TEST(SearchDocumentTest, HasALineForEachCandidate) {
  const SearchReport report = MadeReport(Irregular());
  const auto& candidates = report.result.groups[0].candidates;
  const std::vector<std::string> lines = Lines(SearchDocument(report).Plain());
  ASSERT_EQ(lines.size(), candidates.size() + 1);
  EXPECT_THAT(lines[0], StartsWith("#group\tmode\tchunk_elements\t"));
  for (const std::string& line : lines) {
    EXPECT_EQ(std::count(line.begin(), line.end(), '\t'), 11) << line;
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    EXPECT_THAT(
        lines[i + 1],
        StartsWith("F32\tuniform\t" +
                   std::to_string(candidates[i].chunk_size.count()) + "\t"));
  }
}

TEST(SearchDocumentTest, FitsAScreenAndSaysWhatItLeavesOut) {
  const SearchReport report = MadeReport(Irregular());
  const size_t candidates = report.result.groups[0].candidates.size();
  ASSERT_GT(candidates, 10u);
  const Document document = SearchDocument(report);
  ExpectOneScreen(document.Page());
  EXPECT_THAT(document.Page(),
              AllOf(HasSubstr("fewest chunks"), HasSubstr("least gathered"),
                    HasSubstr(std::to_string(candidates - 10) + " more"),
                    HasSubstr("'my model.tsv' --device-budget")));
  EXPECT_THAT(document.Page(Emphasis::kTerminal), HasSubstr("\x1b[1m> "));
}

TEST(SearchDocumentTest, CountsTheShareOfOversizeParameters) {
  // 64 KiB hold 16384 F32: the second has a chunk of its own.
  EXPECT_THAT(
      PageOf(MadeReport(
          {{"a", {16384}, DType::kF32}, {"b", {49152}, DType::kF32}}, KiB(64))),
      HasSubstr("75.00 % of the bytes\n"));
}

TEST(SearchDocumentTest, KeepsATerminalSafeFromNames) {
  SearchReport report = MadeReport(Irregular());
  report.model.name = "m\x1b[2J";
  report.model.source = "s\x1b[2J";
  report.request.model = "a\x1b[2J";
  report.model.dropped = {{"d\x1b[2J", "integers"}};
  const std::string page = PageOf(report);
  EXPECT_THAT(page, Not(HasSubstr("\x1b")));
  EXPECT_THAT(page, HasSubstr("m\\x1b[2J: 60 tensors"));
  EXPECT_THAT(page, HasSubstr("castor search MODEL --device-budget"));
}

TEST(SearchDocumentTest, ListsWhatWasLeftOutByReason) {
  SearchReport report = MadeReport(Irregular());
  report.model.dropped = {{"h.0.attn.bias", "attention mask"},
                          {"step", "integers"},
                          {"h.1.attn.bias", "attention mask"}};
  EXPECT_THAT(PageOf(report),
              AllOf(HasSubstr("2 tensors (attention mask): \"h.0.attn.bias\""),
                    HasSubstr("1 tensor (integers): \"step\"\n")));
}

std::vector<std::string> TableOf(const SearchReport& report, size_t rows) {
  Document document;
  const int64_t left_out = AddCandidates(report, 0, rows, &document);
  EXPECT_EQ(left_out, std::max<int64_t>(
                          0, std::ssize(report.result.groups[0].candidates) -
                                 static_cast<int64_t>(rows)));
  return Lines(document.Page());
}

TEST(SearchCandidatesTest, AreAsManyAsThereIsRoomFor) {
  const SearchReport report = MadeReport(Irregular());
  const size_t count = report.result.groups[0].candidates.size();
  ASSERT_GT(count, 16u);
  for (size_t rows = 4; rows < count + 2; ++rows) {
    EXPECT_EQ(TableOf(report, rows).size(), std::min(rows, count) + 1);
  }
}

TEST(SearchCandidatesTest, KeepBestAndRecommendedWhereThereIsLittleRoom) {
  SearchReport report = MadeReport(Irregular());
  GroupSearchResult& group = report.result.groups[0];
  group.recommended = group.candidates[1];
  group.best = group.candidates[group.candidates.size() - 2];
  const std::vector<std::string> lines = TableOf(report, 2);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[1],
              AllOf(StartsWith("> uniform "), HasSubstr("recommended")));
  EXPECT_THAT(lines[2], HasSubstr("best"));
}

TEST(SearchCandidatesTest, NoteTheBestOfAMode) {
  SearchReport report = MadeReport(Irregular());
  GroupSearchResult& group = report.result.groups[0];
  ChunkSizeCandidate layer = group.candidates.back();
  layer.mode = SearchMode::kLayer;
  layer.waste += Elements(1);
  group.candidates.push_back(layer);
  ModeResult mode;
  mode.mode = SearchMode::kLayer;
  mode.best = layer;
  group.modes.push_back(mode);
  EXPECT_THAT(TableOf(report, 5), Contains(HasSubstr("best layer")));
  EXPECT_THAT(TableOf(MadeReport({{"a", {1000}, DType::kF32}}, KiB(64)), 5),
              Contains(HasSubstr("best, recommended, whole group")));
}

TEST(SearchCandidatesTest, StandBesideOtherChoices) {
  SearchReport report = MadeReport(Irregular());
  const ChunkSizeCandidate other = report.result.groups[0].candidates[0];
  RuleReport rule;
  rule.rule.claimed_fraction = 0.07;
  rule.in_castor = {other};
  report.rule = rule;
  report.request.chunk = other.chunk_bytes;
  report.choice.emplace(
      SearchChoice{{other}, ChunkLayout(1, Elements(64), {}, {}, {})});
  EXPECT_THAT(TableOf(report, 3),
              AllOf(Contains(StartsWith("  --chunk ")),
                    Contains(AllOf(StartsWith("  gemini "),
                                   HasSubstr("claims 7.00 %")))));
}

TEST(SearchCandidatesTest, HaveTimesWhereAMachineIsKnown) {
  SearchReport report = MadeReport({{"a", {1'000'000}, DType::kBF16}});
  report.search.pack.world = 2;
  EXPECT_THAT(TableOf(report, 3)[0], Not(HasSubstr("time")));
  report.machine.emplace();
  report.machine->host_to_device = {2'000'000'000, 10'000};
  report.machine->device_to_host = {1'000'000'000, 0};
  report.machine->all_gather = {500'000'000, 7};
  EXPECT_THAT(TableOf(report, 3)[0], HasSubstr("  time  note"));
  const ChunkSizeCandidate& best = report.result.groups[0].best;
  const JsonValue json = SearchDocument(report).Json();
  const JsonValue& transfer = json["best"]["transfer"];
  // Half of it on each rank, twice down and once up.
  const double bytes = static_cast<double>(best.allocated.count());
  const double down =
      2 * (static_cast<double>(best.chunks) * 1e-5 + bytes / 2e9);
  EXPECT_DOUBLE_EQ(transfer["host_to_device_seconds"].real(), down);
  EXPECT_DOUBLE_EQ(transfer["device_to_host_seconds"].real(), bytes / 1e9);
  EXPECT_GT(transfer["all_gather_seconds"].real(), down);
  EXPECT_TRUE(transfer["reduce_scatter_seconds"].is_null());
  EXPECT_TRUE(transfer["overlapped_seconds"].is_null());
  EXPECT_EQ(json["machine"].Dump(),
            R"({"host_to_device":{"bytes_per_second":2000000000,)"
            R"("latency_ns":10000},"device_to_host":{"bytes_per_second":)"
            R"(1000000000,"latency_ns":0},"all_gather":{"bytes_per_second":)"
            R"(500000000,"step_latency_ns":7}})");
  EXPECT_THAT(PageOf(report), HasSubstr("left out: reduce scatter"));
}

// With its newlines as spaces.
std::string ProofOf(const GroupSearchResult& group, bool brief) {
  Document document;
  SayProofs(group, {}, brief, &document);
  std::string flat;
  for (const char c : document.Page()) {
    const char next = c == '\n' ? ' ' : c;
    if (next != ' ' || flat.empty() || flat.back() != ' ') flat += next;
  }
  return flat;
}

TEST(SearchProofTest, SaysWhyNothingWastesLess) {
  EXPECT_THAT(ProofOf(MadeReport(Irregular()).result.groups[0], false),
              AllOf(HasSubstr("none of the 127 allowed sizes, 1 KiB to 64 KiB"),
                    HasSubstr(" intervals cover them")));
  const GroupSearchResult one =
      MadeReport({{"a", {1000}, DType::kF32}}, KiB(64)).result.groups[0];
  EXPECT_THAT(ProofOf(one, false),
              HasSubstr("the only allowed size, 4 KiB, wastes 96 B (24 "));
  EXPECT_THAT(ProofOf(one, true), HasSubstr("less than uniform 96 B"));
  GroupSearchResult layers;
  layers.modes.resize(1);
  layers.modes[0].mode = SearchMode::kLayer;
  layers.modes[0].lower_bound_waste = Elements(256);
  layers.modes[0].certificate =
      LayerCertificate{{.first = 1, .params = 9, .repeats = 32}, {}};
  EXPECT_THAT(ProofOf(layers, false),
              AllOf(HasSubstr("9 tensors repeat 32 times"),
                    HasSubstr("less than 1 KiB (256 elements)")));
}

TEST(SearchProofTest, IsCompleteForPrograms) {
  ModeResult mode;
  mode.mode = SearchMode::kUniform;
  mode.lower_bound_waste = Elements(7);
  mode.optimal = true;
  SearchCertificate uniform;
  uniform.intervals = {{Elements(128), Elements(256), 3, Elements(640)}};
  mode.certificate = uniform;
  EXPECT_EQ(CertificateJson(mode, "").Dump(),
            R"({"mode":"uniform","lower_bound_waste_elements":7,)"
            R"("optimal":true,"intervals":[{"from_elements":128,)"
            R"("to_elements":256,"chunks":3,"oversize_elements":640}]})");
  mode.mode = SearchMode::kLayer;
  mode.certificate = LayerCertificate{{.first = 1, .params = 9, .repeats = 32},
                                      {{2, Elements(256), Elements(7)}}};
  EXPECT_EQ(CertificateJson(mode, "F32 frozen").Dump(),
            R"({"mode":"layer","group":"F32 frozen",)"
            R"("lower_bound_waste_elements":7,"optimal":true,)"
            R"("repeat":{"first":1,"params":9,"repeats":32},)"
            R"("steps":[{"chunks_per_repeat":2,"chunk_elements":256,)"
            R"("waste_elements":7}]})");
}

SearchReport Explained(std::vector<ParamSpec> params) {
  SearchReport report = MadeReport(std::move(params));
  std::vector<std::string> notes;
  report.request.pick = ChoicePick::kChunk;
  report.request.chunk = KiB(4);
  report.request.explain = true;
  report.choice = MakeChoice(report, &notes).value();
  return report;
}

TEST(SearchExplainTest, TellsTheCausesAndTheWorstChunks) {
  // F32 in chunks of 1024: 1000 + 24 of tail; 100, 28 of alignment, 800 and a
  // tail of 96; 1500 alone, rounded by 36.
  const Document document =
      ExplainDocument(Explained({{"a", {1000}, DType::kF32},
                                 {"b", {100}, DType::kF32},
                                 {"c", {800}, DType::kF32},
                                 {"d", {1500}, DType::kF32}}));
  const JsonValue& json = document.Json();
  EXPECT_EQ(json["pick"], "chunk");
  EXPECT_EQ(json["waste_bytes"], 736);
  EXPECT_EQ(json["tail_bytes"], 480);
  EXPECT_EQ(json["alignment_bytes"], 112);
  EXPECT_EQ(json["rounding_bytes"], 144);
  ASSERT_EQ(json["chunks"].size(), 3u);
  EXPECT_EQ(json["chunks"][1].Dump(),
            R"({"dtype":"F32","trainable":true,"chunk_elements":1024,)"
            R"("oversize":false,"waste_elements":124,"tail_elements":96,)"
            R"("alignment_elements":28,"rounding_elements":0,)"
            R"("parameters":["b","c"]})");
  EXPECT_EQ(json["chunks"][2]["oversize"], true);
  const std::vector<std::string> lines = Lines(document.Page());
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_THAT(lines[0], HasSubstr("736 B = tails 480 B (65.22 %) + alignment "
                                  "112 B (15.22 %) + oversize"));
  EXPECT_THAT(lines[4],
              MatchesRegex(" +1 +4 KiB +496 B +384 B +112 B +b, \\+1"));
  EXPECT_THAT(lines[5], MatchesRegex(" +2 +6 KiB +144 B +144 B +0 B +d"));
}

TEST(SearchRuleTest, IsSaidInWordsWhereItIsAskedFor) {
  SearchReport report = MadeReport(Irregular());
  RuleReport rule;
  rule.rule.chunk_size = Elements(1024);
  rule.in_castor = {report.result.groups[0].candidates[0]};
  report.rule = rule;
  EXPECT_THAT(PageOf(report), Not(HasSubstr("its rule picks")));
  report.request.rule_asked_for = true;
  EXPECT_THAT(PageOf(report), HasSubstr("its rule picks 1,024 elements"));
}

}  // namespace
}  // namespace castor
