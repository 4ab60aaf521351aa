// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// `castor plan` as a user runs it, and train_gpt with what it wrote: processes
// with streams of their own.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "chunk/base/units.h"
#include "chunk/text/json_value.h"
#include "tests/support/file_text.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_rounds.h"
#include "tests/tools/models/model_files.h"
#include "tests/tools/run_process.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

constexpr char kCastor[] = "tools/castor";
constexpr char kTrain[] = "tools/examples/train_gpt";
constexpr char kGpt2Xl[] = "tools/models/configs/gpt2-xl/config.json";
constexpr char kLlama[] = "tools/models/configs/llama-3-8b/config.json";

ProcessOutcome Plan(std::vector<std::string> args) {
  args.insert(args.begin(), {kCastor, "plan"});
  return RunProcess(args);
}

// The words of a command line that quotes nothing.
std::vector<std::string> Words(const std::string& command) {
  std::istringstream text(command);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

TEST(CastorPlanTest, PrintsCommandsThatFitWhereItDoesNot) {
  const ProcessOutcome refused =
      Plan({kLlama, "--dtype", "bf16", "--world", "2", "--device-budget",
            "6GiB", "--host-budget", "16GiB", "--json"});
  EXPECT_EQ(refused.exit_code, 3) << refused.err;
  const JsonValue document = ParseJson(refused.out).value();
  EXPECT_EQ(document["fits"], false);
  EXPECT_THAT(document["reason"].text(), HasSubstr("do not fit"));
  ASSERT_GE(document["changes"].size(), 3u);
  size_t number = 0;
  for (const JsonValue& change : document["changes"]) {
    std::vector<std::string> words = Words(change["command"].text());
    ASSERT_EQ(words[1], "plan");
    // Every third is run, where a sanitizer watches.
    if (TestStride() > 1 && number++ % 3 != 0) continue;
    words[0] = kCastor;
    words.push_back("--plain");
    const ProcessOutcome changed = RunProcess(words);
    EXPECT_EQ(changed.exit_code, 0) << change["command"].text() << changed.err;
    EXPECT_THAT(changed.out, HasSubstr("fits\tyes\n"));
  }
}

// 16,384 tokens of 128,256 words take 27.4 GiB as logits, their log-softmax and
// the gradients of both.
TEST(CastorPlanTest, CountsLogitsAndProposesALossInChunks) {
  const ProcessOutcome plain =
      Plan({kLlama, "--dtype", "bf16", "--batch", "4", "--seq", "4096",
            "--recompute", "--device-budget", "22GiB", "--host-budget",
            "128GiB", "--json"});
  ASSERT_EQ(plain.exit_code, 3) << plain.err;
  std::string chunked;
  const JsonValue document = ParseJson(plain.out).value();
  for (const JsonValue& change : document["changes"]) {
    if (change["command"].text().ends_with("--loss chunked")) {
      chunked = change["command"].text();
    }
  }
  ASSERT_NE(chunked, "");
  std::vector<std::string> words = Words(chunked);
  words[0] = kCastor;
  words.push_back("--json");
  const ProcessOutcome fits = RunProcess(words);
  EXPECT_EQ(fits.exit_code, 0) << fits.err;
  EXPECT_LE(ParseJson(fits.out)
                .value()["configuration"]["activations"]["activations_bytes"]
                .integer(),
            GiB(8).count());
}

// The one that fits was planned, and so was the next.
TEST(CastorPlanTest, FindsTheLargestBatchAndSequenceThatFit) {
  for (const auto& [what, flag, step] :
       {std::tuple("batch", "--batch", 1), std::tuple("seq", "--seq", 128)}) {
    std::vector<std::string> words = {kLlama,
                                      "--dtype",
                                      "bf16",
                                      "--recompute",
                                      "--loss",
                                      "fused",
                                      "--device-budget",
                                      "24GiB",
                                      "--host-budget",
                                      "128GiB",
                                      "--seq",
                                      "1024",
                                      "--fit",
                                      what};
    words.push_back("--json");
    const ProcessOutcome found = Plan(words);
    ASSERT_EQ(found.exit_code, 0) << found.err;
    const JsonValue document = ParseJson(found.out).value();
    const JsonValue& largest = document["largest"];
    EXPECT_EQ(largest["what"].text(), what);
    const int64_t fits = largest["fits"].integer();
    EXPECT_GT(fits, step);
    EXPECT_EQ(largest["refused"].integer(), fits + step);
    EXPECT_NE(largest["reason"].text(), "");
    const std::string command = document["command"].text();
    const std::string value = fmt::format("{} {}", flag, fits);
    ASSERT_THAT(command, HasSubstr(value));
    std::vector<std::string> next = Words(command);
    next[0] = kCastor;
    EXPECT_EQ(RunProcess(next).exit_code, 0);
    *(std::find(next.begin(), next.end(), flag) + 1) =
        std::to_string(fits + step);
    EXPECT_EQ(RunProcess(next).exit_code, 3);
  }
  const ProcessOutcome none = Plan({kLlama, "--device-budget", "24GiB", "--seq",
                                    "4096", "--fit", "batch", "--plain"});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_THAT(none.out, HasSubstr("largest\tbatch\t0\t1\n"));
  const ProcessOutcome unknown = Plan({kLlama, "--fit", "batch"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("--fit batch counts activations"));
}

// As many bytes as a trainer counted, all the time.
TEST(CastorPlanTest, TakesTheActivationsThatSomebodyCounted) {
  const auto plan = [](const std::vector<std::string>& more) {
    std::vector<std::string> words = {
        kGpt2Xl, "--device-budget", "4GiB", "--host-budget", "64GiB", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return Plan(words);
  };
  const JsonValue without = ParseJson(plan({}).out).value();
  const JsonValue with = ParseJson(plan({"--activations", "1GiB"}).out).value();
  EXPECT_EQ(with["configuration"]["activations"]["activations_bytes"].integer(),
            GiB(1).count());
  EXPECT_TRUE(with["configuration"]["activations"]["counted"].boolean());
  EXPECT_FALSE(without["configuration"]["activations"]["counted"].boolean());
  const ProcessOutcome both = plan({"--activations", "1GiB", "--seq", "64"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("--activations says what --seq counts"));
}

TEST(CastorPlanTest, ProposesOtherTiersWhereTheDeviceHoldsNoChunk) {
  for (const char* const budget : {"0", "100MiB"}) {
    const ProcessOutcome page = Plan({kGpt2Xl, "--device-budget", budget});
    EXPECT_EQ(page.exit_code, 3);
    EXPECT_THAT(page.out,
                AllOf(HasSubstr("does not hold one chunk: the largest"),
                      HasSubstr(" oversize, up to 306.74 MiB,"),
                      HasSubstr("of device and ")));
  }
  const ProcessOutcome refused =
      Plan({kGpt2Xl, "--device-budget", "0", "--json"});
  const JsonValue document = ParseJson(refused.out).value();
  EXPECT_EQ(document["configuration"]["largest_oversize_bytes"].integer(),
            321'645'056);
  bool host = false;
  bool nvme = false;
  size_t number = 0;
  for (const JsonValue& change : document["changes"]) {
    const std::string command = change["command"].text();
    host |= command.find("--host-budget") != command.npos &&
            command.find("--nvme") == command.npos;
    nvme |= command.find("--nvme") != command.npos;
    if (TestStride() > 1 && number++ % 3 != 0) continue;
    std::vector<std::string> words = Words(command);
    words[0] = kCastor;
    words.push_back("--plain");
    EXPECT_EQ(RunProcess(words).exit_code, 0) << command;
  }
  EXPECT_TRUE(host);
  EXPECT_TRUE(nvme);
}

TEST(CastorPlanTest, NamesTheStatesThatTheOptimizerKeeps) {
  const auto plan = [](const std::string& state, const std::string& form) {
    return Plan({kGpt2Xl, "--device-budget", "4GiB", "--host-budget", "64GiB",
                 "--optimizer", "sgd", "--momentum", "0.9", "--limit",
                 state + "@device=10%", form});
  };
  const ProcessOutcome json = plan("momentum_buffer", "--json");
  ASSERT_EQ(json.exit_code, 0) << json.err;
  const JsonValue document = ParseJson(json.out).value();
  EXPECT_THAT(
      document["homes"].keys(),
      testing::ElementsAre("param", "grad", "master", "momentum_buffer"));
  const JsonValue& device = document["tiers"][size_t{0}]["classes"];
  EXPECT_GT(device["momentum_buffer_bytes"].integer(), 0);
  EXPECT_FALSE(device.contains("exp_avg_bytes"));
  const ProcessOutcome plain = plan("momentum_buffer", "--plain");
  EXPECT_THAT(plain.out, HasSubstr("class\tmomentum_buffer\t"));
  EXPECT_THAT(plain.out, testing::Not(HasSubstr("exp_avg")));
  const ProcessOutcome wrong = plan("exp_avg", "--plain");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("is for state \"exp_avg\""),
                               HasSubstr("known are param, grad, master, "
                                         "momentum_buffer, all")));
}

// 132 bytes for 128 values of a matrix; chunks of other sizes waste more.
TEST(CastorPlanTest, CountsMomentsOf8Bits) {
  const auto host_bytes = [](const char* moments, const char* state) {
    const ProcessOutcome json =
        Plan({kGpt2Xl, "--dtype", "bf16", "--device-budget", "6GiB",
              "--host-budget", "64GiB", "--moments", moments, "--json"});
    EXPECT_EQ(json.exit_code, 0) << json.err;
    const JsonValue document = ParseJson(json.out).value();
    int64_t bytes = 0;
    for (size_t tier = 0; tier < 2; ++tier) {
      bytes += document["tiers"][tier]["classes"][state].integer();
    }
    return static_cast<double>(bytes);
  };
  for (const char* const state : {"exp_avg_bytes", "exp_avg_sq_bytes"}) {
    const double share = host_bytes("8bit", state) / host_bytes("F32", state);
    EXPECT_NEAR(share, 132.0 / 512, 0.02);
  }
}

TEST(CastorPlanTest, ProposesMoreRanksWithTheMemoryThatThereIs) {
  const ProcessOutcome refused =
      Plan({kGpt2Xl, "--dtype", "bf16", "--device-budget", "4GiB",
            "--host-budget", "8GiB", "--plain"});
  ASSERT_EQ(refused.exit_code, 3) << refused.err;
  // Eight ranks have an eighth of the host's memory each.
  EXPECT_THAT(
      refused.out,
      AllOf(HasSubstr("train on 8 ranks, which share the host's memory"),
            HasSubstr("--world 8 --device-budget 4GiB --host-budget "
                      "1GiB --ranks-per-host 8"),
            HasSubstr("train on 4 ranks, with more hosts like this one"),
            HasSubstr("--world 4 --device-budget 4GiB --host-budget "
                      "8GiB\n")));
}

TEST(CastorPlanTest, ProposesMomentsOf8BitsWhereBf16IsNotEnough) {
  const auto proposes = [](const char* host, std::string_view what) {
    const ProcessOutcome refused =
        Plan({kGpt2Xl, "--dtype", "bf16", "--device-budget", "4GiB",
              "--host-budget", host, "--json"});
    EXPECT_EQ(refused.exit_code, 3) << refused.err;
    const JsonValue document = ParseJson(refused.out).value();
    for (const JsonValue& change : document["changes"]) {
      if (change["command"].text().find(what) != std::string::npos) return true;
    }
    return false;
  };
  EXPECT_TRUE(proposes("16GiB", "--moments bf16"));
  EXPECT_FALSE(proposes("16GiB", "--moments 8bit"));
  EXPECT_TRUE(proposes("12GiB", "--moments 8bit"));
}

TEST(CastorPlanTest, SaysWhatIsWrongWithFlagsAndFiles) {
  EXPECT_EQ(Plan({}).exit_code, 2);
  EXPECT_EQ(Plan({kLlama, "--stage", "4"}).exit_code, 2);
  const ProcessOutcome twice =
      Plan({kLlama, "--dtype", "f64", "--device-budget", "24GiB"});
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_THAT(twice.err, HasSubstr("--dtype bf16"));
  EXPECT_THAT(Plan({"--help"}).out, HasSubstr("f32, bf16 or f16"));
  for (const char* const dtype : {"f32", "bf16", "f16"}) {
    EXPECT_EQ(Plan({kLlama, "--dtype", dtype, "--plain"}).exit_code, 0);
  }
  EXPECT_EQ(Plan({"/nonexistent/model"}).exit_code, 2);
  EXPECT_EQ(Plan({kLlama, "--machine", kLlama}).exit_code, 4);
}

class TrainedPlanTest : public testing::Test {
 protected:
  static std::vector<std::string> Small() {
    return {"--layers", "2", "--heads", "2", "--embd", "64", "--seq", "16"};
  }
  ProcessOutcome Train(std::vector<std::string> args) const {
    args.insert(args.begin(), kTrain);
    for (const std::string& arg : Small()) args.push_back(arg);
    return RunProcess(args);
  }
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 300; ++i) {
      text += "line " + std::to_string(i * i) + " of the text\n";
    }
    text_ = folder_.Write("text", text);
    const ProcessOutcome list = Train({"--print-model"});
    ASSERT_EQ(list.exit_code, 0) << list.err;
    model_ = folder_.Write("model.tsv", list.out);
  }

  TempFolder folder_;
  std::string text_;
  std::string model_;
};

TEST_F(TrainedPlanTest, ATrainerLoadsThePlanAndKeepsToItToTheByte) {
  const std::string plan = folder_.At("plan.json");
  const std::string record = folder_.At("run.rec");
  const std::string trace = folder_.At("step.json");
  std::vector<std::string> args = {
      model_,    "--order",         "file",   "--world",       "2",
      "--chunk", "64KiB",           "--nvme", "4MiB",          "--policy",
      "planned", "--device-budget", "640KiB", "--host-budget", "400KiB"};
  const auto train = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"--plan", plan,           "--ranks", "2",
                                    "--nvme", folder_.path(), "--text",  text_};
    all.insert(all.end(), more.begin(), more.end());
    const ProcessOutcome trained = Train(all);
    EXPECT_EQ(trained.exit_code, 0) << trained.err;
  };
  const auto planned = [&args](const std::vector<std::string>& more) {
    std::vector<std::string> all = args;
    all.insert(all.end(), more.begin(), more.end());
    const ProcessOutcome outcome = Plan(all);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
    return outcome.out;
  };
  // As the list says, then as the trainer was seen to do it: the same.
  planned({"-o", plan});
  train({"--steps", "5", "--record", record, "--trace", trace});
  const JsonValue document =
      ParseJson(planned({"--compare", record, "--json"})).value();
  EXPECT_EQ(document["configuration"]["step_source"], "listed");
  const JsonValue recorded =
      ParseJson(planned({"--trace", trace, "--compare", record, "--json"}))
          .value();
  EXPECT_EQ(recorded["configuration"]["step_source"], "recorded");
  const JsonValue& comparison = document["comparison"];
  EXPECT_EQ(comparison, recorded["comparison"]);
  EXPECT_EQ(comparison["steps"].integer(), 3);
  ASSERT_EQ(comparison["peaks"].size(), 3u);
  ASSERT_EQ(comparison["links"].size(), 6u);
  for (const char* const rows : {"peaks", "links"}) {
    for (const JsonValue& row : comparison[rows]) {
      EXPECT_GT(row["planned_bytes"].integer(), 0);
      EXPECT_EQ(row["planned_bytes"], row["measured_bytes"])
          << rows << " " << row["what"].text();
    }
  }
  EXPECT_GT(comparison["measured_ns"].integer(), 0);
  // A damaged record is compared by its whole steps, and that is said.
  const std::string bytes = FileText(record);
  for (const auto& [cut, code] :
       {std::pair(bytes.size() - 9, 6), std::pair(size_t{40}, 6),
        std::pair(size_t{5}, 4)}) {
    std::vector<std::string> all = args;
    all.insert(all.end(), {"--trace", trace, "--compare",
                           folder_.Write("cut.rec", bytes.substr(0, cut))});
    const ProcessOutcome outcome = Plan(all);
    EXPECT_EQ(outcome.exit_code, code) << cut << outcome.out << outcome.err;
  }
  EXPECT_EQ(comparison["other_settings"]["budgets"].size(), 0u);
  EXPECT_TRUE(comparison["other_settings"]["policy"].is_null());

  // The same chunks under another budget and policy.
  args[10] = "auto";
  args[12] = "1MiB";
  const std::string other = planned({"--trace", trace, "--compare", record});
  EXPECT_THAT(other, ContainsRegex("Not alike +the run had 640 KiB for device "
                                   "where 1 MiB is planned and policy planned "
                                   "in place of\n +auto"));
  EXPECT_LT(other.find("Not alike"), other.find("next to the run"));

  // Another model of as many bytes, and another chunk size.
  const auto refused = [&](const std::string& model, const std::string& chunk) {
    args[0] = model;
    args[6] = chunk;
    std::vector<std::string> all = args;
    all.insert(all.end(), {"--compare", record});
    const ProcessOutcome outcome = Plan(all);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.out;
    return outcome.err;
  };
  std::string list = FileText(model_);
  ASSERT_NE(list.find("wpe"), list.npos);
  for (size_t at = 0; (at = list.find("wpe")) != list.npos;) {
    list.replace(at, 3, "pos");
  }
  EXPECT_THAT(refused(folder_.Write("other.tsv", list), "64KiB"),
              AllOf(HasSubstr("the run was of another model: chunk 1 of it "
                              "holds"),
                    HasSubstr("wpe"), HasSubstr("pos")));
  EXPECT_THAT(
      refused(model_, "32KiB"),
      HasSubstr("another model, type or chunk size: chunk 1 of it has"));
}

TEST_F(TrainedPlanTest, WhatThePlanSaysIsNotSaidTwice) {
  const std::string plan = folder_.At("plan.json");
  const ProcessOutcome planned =
      Plan({model_, "--order", "file", "--device-budget", "4MiB", "-o", plan});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const ProcessOutcome twice =
      Train({"--plan", plan, "--device-budget", "4MiB", "--text", text_});
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_THAT(twice.err, HasSubstr("--device-budget"));
  const ProcessOutcome other =
      Train({"--plan", plan, "--ranks", "2", "--text", text_});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("--world 2"));
}

TEST(CastorPlanTest, WritesAPageOfWhatItPrints) {
  const TempDir folder;
  const std::string page = folder.File("plan.html");
  const std::vector<std::string> budgets = {
      kGpt2Xl, "--device-budget", "8GiB",   "--host-budget",
      "24GiB", "--json",          "--html", page};
  const ProcessOutcome planned = Plan(budgets);
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const JsonValue document = ParseJson(planned.out).value();
  const std::string text = FileText(page);
  const std::string begin = "id=\"document\">";
  const size_t from = text.find(begin) + begin.size();
  EXPECT_EQ(
      ParseJson(text.substr(from, text.find("</script>", from) - from)).value(),
      document);
  // Every chunk has its parameters and reasons.
  const JsonValue& chunks = document["chunk_list"];
  EXPECT_EQ(static_cast<int64_t>(chunks.size()),
            document["configuration"]["chunks"].integer());
  for (const JsonValue& chunk : chunks) {
    EXPECT_GT(chunk["params"].size(), 0u);
    for (const JsonValue& home : chunk["homes"]) {
      EXPECT_NE(home["why"].text(), "");
    }
  }
  // More memory fits where less does, and moves no more.
  const JsonValue& grid = document["budget_grid"];
  ASSERT_EQ(grid.size(), 100u);
  const auto number = [](const JsonValue& point, const char* key) {
    return point[key].integer();
  };
  size_t fitting = 0;
  for (const JsonValue& less : grid) {
    fitting += less["fits"].boolean();
    for (const JsonValue& more : grid) {
      const bool above = number(more, "device_budget_bytes") >=
                             number(less, "device_budget_bytes") &&
                         number(more, "host_budget_bytes") >=
                             number(less, "host_budget_bytes");
      EXPECT_TRUE(!above || !less["fits"].boolean() || more["fits"].boolean());
    }
  }
  EXPECT_GT(fitting, 0u);
  EXPECT_LT(fitting, grid.size());
  // What is asked for is one of them.
  EXPECT_THAT(document["command"].text(), Not(HasSubstr("--html")));
  EXPECT_EQ(
      Plan({kGpt2Xl, "--html", folder.File("no/such/plan.html")}).exit_code, 2);

  const ProcessOutcome refused =
      Plan({kLlama, "--dtype", "bf16", "--device-budget", "8GiB",
            "--host-budget", "64GiB", "--json", "--html", page});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(FileText(page), HasSubstr("\"fits\":false"));
  EXPECT_FALSE(ParseJson(refused.out).value().contains("chunk_list"));
}

}  // namespace
}  // namespace castor
