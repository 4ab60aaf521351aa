// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What `castor search` adds to a search when asked: a layout file, causes of
// waste, rules of other systems, modelled times. As a user runs it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "chunk/chunk_layout.h"
#include "chunk/layout_file.h"
#include "chunk/text/json_value.h"
#include "tests/support/file_text.h"
#include "tests/tools/models/model_files.h"
#include "tests/tools/run_process.h"

namespace castor {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr char kCastor[] = "tools/castor";
constexpr char kLlama[] = "tools/models/configs/llama-3-8b/config.json";

ProcessOutcome Castor(std::vector<std::string> args,
                      const std::string& input = "") {
  args.insert(args.begin(), {kCastor, "search"});
  return RunProcess(args, input);
}

JsonValue Document(std::vector<std::string> args,
                   const std::string& input = "") {
  args.push_back("--json");
  const ProcessOutcome outcome = Castor(std::move(args), input);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return ParseJson(outcome.out).value();
}

LayoutFile ReadLayout(const std::string& path) {
  return ParseLayout(FileText(path)).value();
}

// Two layers of two experts each.
std::string MoeList() {
  std::string list = "model.embed_tokens.weight\t64,96\tBF16\n";
  for (int layer = 0; layer < 2; ++layer) {
    for (int expert = 0; expert < 2; ++expert) {
      const std::string name = "model.layers." + std::to_string(layer) +
                               ".mlp.experts." + std::to_string(expert) + ".";
      list += name + "gate_proj.weight\t80,96\tBF16\n";
      list += name + "up_proj.weight\t80,96\tBF16\n";
      list += name + "down_proj.weight\t96,80\tBF16\n";
    }
  }
  return list;
}

TEST(CastorSearchOutputTest, WritesTheLayoutOfEachChoice) {
  const TempFolder folder;
  const std::string path = folder.At("layout.json");
  const std::vector<std::vector<std::string>> choices = {
      {}, {"--pick", "best"}, {"--chunk", "100MB", "--world", "2"}};
  for (const std::vector<std::string>& choice : choices) {
    std::vector<std::string> args = {kLlama, "-o", path};
    args.insert(args.end(), choice.begin(), choice.end());
    const JsonValue document = Document(args);
    const JsonValue& chosen = document["choice"]["candidate"];
    EXPECT_EQ(document["choice"]["output"], path);
    const LayoutFile file = ReadLayout(path);
    EXPECT_EQ(file.params.size(), 291u);
    EXPECT_EQ(static_cast<int64_t>(file.layout.chunks().size()),
              chosen["chunks"]);
    EXPECT_EQ(
        (file.layout.allocated_bytes() - file.layout.payload_bytes()).count(),
        chosen["waste_bytes"]);
    EXPECT_EQ(file.layout.quantum().count(),
              document["alignment"]["q_elements"]);
    if (choice.empty()) {
      EXPECT_EQ(chosen, document["recommended"]);
    } else if (choice[0] == "--pick") {
      EXPECT_EQ(chosen, document["best"]);
    } else {
      // 100,000,000 bytes are 50,000,000 elements, no multiple of 256.
      EXPECT_EQ(chosen["chunk_elements"], 50'000'128);
    }
  }
  const ProcessOutcome page = Castor({kLlama, "-o", path});
  EXPECT_THAT(page.out, HasSubstr("Written     " + path));
  EXPECT_EQ(page.err, "");
}

TEST(CastorSearchOutputTest, LeavesNothingWhereTheFileCannotBeWritten) {
  const TempFolder folder;
  const std::string path = folder.Write("old", "old");
  const ProcessOutcome missing =
      Castor({kLlama, "-o", folder.At("no/such/layout.json")});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_EQ(missing.out, "");
  EXPECT_THAT(missing.err, HasSubstr("there is no folder"));
  EXPECT_EQ(Castor({kLlama, "-o", folder.path()}).exit_code, 2);
  // The limit ends a write as a full drive does.
  const ProcessOutcome full =
      RunProcess({"/bin/bash", "-c",
                  std::string("trap '' XFSZ; ulimit -f 4; exec ") + kCastor +
                      " search " + kLlama + " -o " + path});
  EXPECT_EQ(full.exit_code, 5) << full.err;
  EXPECT_EQ(full.out, "");
  EXPECT_THAT(full.err, HasSubstr("could not be written"));
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    files += entry.exists() ? 1 : 0;
  }
  EXPECT_EQ(files, 1);
  EXPECT_EQ(FileText(path), "old");
}

TEST(CastorSearchOutputTest, SearchesBothWaysOfHoldingExperts) {
  const std::vector<std::string> args = {"-",    "--order", "file", "--min",
                                         "1KiB", "--max",   "64KiB"};
  const JsonValue both = Document(args, MoeList());
  ASSERT_TRUE(both["expert_layouts"].contains("fused"));
  EXPECT_EQ(both["expert_layouts"]["per-expert"]["best"], both["best"]);
  EXPECT_EQ(both["model"]["tensors"], 13);
  EXPECT_EQ(both["expert_layouts"]["fused"]["model"]["tensors"], 5);
  for (const std::string layout : {"fused", "per-expert"}) {
    std::vector<std::string> one = args;
    one.insert(one.end(), {"--expert-layout", layout});
    const JsonValue alone = Document(one, MoeList());
    EXPECT_FALSE(alone.contains("expert_layouts"));
    const JsonValue& part = both["expert_layouts"][layout];
    for (const std::string& key : part.keys()) {
      EXPECT_EQ(part[key], alone[key]) << key;
    }
  }
  const ProcessOutcome page = Castor(args, MoeList());
  EXPECT_THAT(page.out, HasSubstr("Experts     per-expert (a tensor for each), "
                                  "as in the model"));
  EXPECT_THAT(page.out, HasSubstr("Experts     fused"));
}

TEST(CastorSearchOutputTest, AsksHowExpertsAreHeldBeforeItWritesALayout) {
  const TempFolder folder;
  const std::string path = folder.At("layout.json");
  const ProcessOutcome outcome = Castor({"-", "-o", path}, MoeList());
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("--expert-layout fused or"));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(Castor({"-", "-o", path, "--expert-layout", "fused"}, MoeList())
                .exit_code,
            0);
  EXPECT_EQ(ReadLayout(path).params.size(), 5u);
}

TEST(CastorSearchOutputTest, ExplainsTheWaste) {
  const JsonValue document =
      Document({kLlama, "--explain", "--chunk", "64MiB"});
  const JsonValue& explain = document["explain"];
  EXPECT_EQ(explain["pick"], "chunk");
  EXPECT_EQ(explain["waste_bytes"],
            document["choice"]["candidate"]["waste_bytes"]);
  int64_t waste = 0;
  size_t names = 0;
  for (const JsonValue& chunk : explain["chunks"]) {
    waste += 2 * chunk["waste_elements"].integer();
    names += chunk["parameters"].size();
    EXPECT_EQ(chunk["waste_elements"],
              chunk["tail_elements"].integer() +
                  chunk["alignment_elements"].integer() +
                  chunk["rounding_elements"].integer());
  }
  EXPECT_EQ(explain["waste_bytes"], waste);
  EXPECT_EQ(names, 291u);
  const ProcessOutcome page = Castor({kLlama, "--explain"});
  EXPECT_THAT(page.out, HasSubstr("Waste       of recommended: "));
}

TEST(CastorSearchOutputTest, ShowsWhatOtherRulesPick) {
  const JsonValue document = Document({kLlama, "--rule", "gemini"});
  ASSERT_EQ(document["rules"].size(), 1u);
  const JsonValue& gemini = document["rules"][0];
  EXPECT_EQ(gemini["rule"], "gemini");
  // As published for this model: 56.01 Mi elements, 128 chunks besides the two
  // parameters that are left out of the search.
  EXPECT_EQ(gemini["chunk_elements"], 58'732'544);
  EXPECT_EQ(gemini["ignored_parameters"], 2);
  EXPECT_EQ(gemini["chunks"], 130);
  EXPECT_GT(gemini["in_castor"]["waste_elements"].integer(),
            document["best"]["waste_elements"].integer());
  const ProcessOutcome page = Castor({kLlama, "--rule", "gemini"});
  EXPECT_THAT(page.out, HasSubstr("Gemini      its rule picks"));
  EXPECT_EQ(Castor({kLlama, "--rule", "elixir"}).exit_code, 2);
}

TEST(CastorSearchOutputTest, ModelsTimesOnAMachine) {
  const JsonValue plain = Document({kLlama});
  EXPECT_FALSE(plain["best"].contains("transfer"));
  const JsonValue declared = Document({kLlama, "--h2d", "20GB/s,10us"});
  const JsonValue& best = declared["best"];
  const double bytes = 2.0 * best["allocated_elements"].real();
  EXPECT_DOUBLE_EQ(best["transfer"]["host_to_device_seconds"].real(),
                   2 * (best["chunks"].real() * 1e-5 + bytes / 20e9));
  EXPECT_TRUE(best["transfer"]["device_to_host_seconds"].is_null());
  EXPECT_EQ(declared["machine"]["host_to_device"]["latency_ns"], 10'000);
  const TempFolder folder;
  const std::string machine =
      folder.Write("machine.json",
                   R"({"schema":"castor.machine/1","links":{"host_to_device":)"
                   R"({"bytes_per_second":20000000000,"latency_ns":10000}}})");
  EXPECT_EQ(Document({kLlama, "--machine", machine}), declared);
  EXPECT_THAT(Castor({kLlama, "--machine", machine}).out,
              HasSubstr("device to host"));
  const ProcessOutcome broken = Castor(
      {kLlama, "--machine", folder.Write("bad.json", R"({"schema":"x"})")});
  EXPECT_EQ(broken.exit_code, 4);
  EXPECT_THAT(broken.err, StartsWith("castor search: \"" + folder.path()));
}

}  // namespace
}  // namespace castor
