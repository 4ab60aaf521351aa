// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// `castor search` as a user runs it: a process with its own streams.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/param_spec.h"
#include "chunk/text/json_value.h"
#include "tests/tools/models/model_files.h"
#include "tests/tools/run_process.h"

namespace castor {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr char kCastor[] = "tools/castor";
constexpr char kGpt2Xl[] = "tools/models/configs/gpt2-xl/config.json";
constexpr char kLlama[] = "tools/models/configs/llama-3-8b/config.json";

ProcessOutcome Castor(std::vector<std::string> args,
                      const std::string& input = "") {
  args.insert(args.begin(), kCastor);
  return RunProcess(args, input);
}

// The document, after checking that the run succeeded.
JsonValue Document(std::vector<std::string> args,
                   const std::string& input = "") {
  args.push_back("--json");
  const ProcessOutcome outcome = Castor(std::move(args), input);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.back(), '\n');
  return ParseJson(outcome.out).value();
}

TEST(CastorSearchTest, ShowsAPageForPeople) {
  const ProcessOutcome outcome = Castor({"search", kGpt2Xl});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("gpt2-xl: gpt2, 580 tensors, "
                                     "1,557,611,200 parameters"));
  EXPECT_THAT(outcome.out, HasSubstr("Order       family"));
  EXPECT_THAT(outcome.out, HasSubstr("Proved"));
  EXPECT_THAT(outcome.out, HasSubstr("Recommended"));
  EXPECT_THAT(outcome.out, testing::Not(HasSubstr("\x1b")));
  EXPECT_THAT(Castor({"search", kLlama}).out,
              HasSubstr("291 tensors, 8,030,261,248 parameters"));
}

TEST(CastorSearchTest, FindsTheSizesThatAreKnownForLlama3) {
  // Published with the exact search that this one descends from: 218,116,096
  // elements in 34 chunks, of which 2 oversize, for 8 ranks.
  const JsonValue document =
      Document({"search", kLlama, "--world", "8", "--mode", "uniform"});
  EXPECT_EQ(document["best"]["chunk_elements"], 218'116'096);
  EXPECT_EQ(document["best"]["chunks"], 34);
  EXPECT_EQ(document["best"]["oversize_chunks"], 2);
  EXPECT_EQ(document["certificate"]["optimal"], true);
  EXPECT_EQ(document["model"]["order"], "family");
}

TEST(CastorSearchTest, ReadsEveryFormatToTheSameAnswer) {
  const TempFolder folder;
  const std::vector<ParamSpec> model = {{"w.1", {100, 30}, DType::kBF16},
                                        {"w.2", {77}, DType::kBF16},
                                        {"w.10", {50, 50}, DType::kBF16}};
  const std::string tsv =
      "w.1\t100,30\tBF16\nw.2\t77\tBF16\nw.10\t50,50\tBF16\n";
  const std::string list = R"([{"name":"w.1","shape":[100,30],"dtype":"BF16"},)"
                           R"({"name":"w.2","shape":[77],"dtype":"bfloat16"},)"
                           R"({"name":"w.10","shape":[50,50],"dtype":"BF16"}])";
  folder.Write("m.tsv", tsv);
  folder.Write("m.json", list);
  WriteSafetensors(folder, "m/m.safetensors", model);
  WriteSafetensors(folder, "s/m-1.safetensors", {model[0], model[2]});
  WriteSafetensors(folder, "s/m-2.safetensors", {model[1]});
  folder.Write("s/m.safetensors.index.json",
               R"({"weight_map":{"w.1":"m-1.safetensors",)"
               R"("w.2":"m-2.safetensors","w.10":"m-1.safetensors"}})");
  const auto answer = [](JsonValue document) {
    document["model"].Remove("name");
    document["model"].Remove("source");
    return document.Dump();
  };
  const std::vector<std::string> limits = {"--min", "1KiB",    "--max",
                                           "16KiB", "--order", "natural"};
  const auto search = [&](const std::string& model_path,
                          const std::string& input = "") {
    std::vector<std::string> args = {"search", model_path};
    args.insert(args.end(), limits.begin(), limits.end());
    return answer(Document(args, input));
  };
  const std::string expected = search(folder.At("m.tsv"));
  EXPECT_EQ(search(folder.At("m.json")), expected);
  EXPECT_EQ(search("-", tsv), expected);
  EXPECT_EQ(search("-", list), expected);
  EXPECT_EQ(search(folder.At("m/m.safetensors")), expected);
  EXPECT_EQ(search(folder.At("m")), expected);
  EXPECT_EQ(search(folder.At("s/m.safetensors.index.json")), expected);
  EXPECT_EQ(search(folder.At("s")), expected);
}

TEST(CastorSearchTest, GivesTheSameBytesTwice) {
  for (const std::string form : {"--json", "--plain", ""}) {
    std::vector<std::string> args = {"search", kLlama, "--world", "3"};
    if (!form.empty()) args.push_back(form);
    const ProcessOutcome first = Castor(args);
    EXPECT_EQ(first.exit_code, 0) << first.err;
    EXPECT_EQ(first.out, Castor(args).out);
  }
}

TEST(CastorSearchTest, KeepsNotesOffTheResult) {
  const ProcessOutcome outcome =
      Castor({"search", "-", "--json", "--expert-layout", "fused"},
             "b\t2\tF32\na\t2\tF32\n");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err,
              StartsWith("castor: note: the model has no experts"));
  EXPECT_TRUE(ParseJson(outcome.out).ok());
}

TEST(CastorSearchTest, ListsSeveralGroups) {
  const JsonValue document =
      Document({"search", "-"}, "a\t200\tF32\nb\t300\tBF16\nc\t5\tF32\n");
  ASSERT_EQ(document["best"].size(), 2u);
  EXPECT_EQ(document["best"][0]["group"], "F32");
  EXPECT_EQ(document["best"][0]["allocated_elements"], 384);
  EXPECT_EQ(document["certificate"][1]["group"], "BF16");
  EXPECT_EQ(document["model"]["total_bytes"], 4 * 205 + 2 * 300);
  const JsonValue one = Document({"search", "-", "--dtype", "bf16"},
                                 "a\t200\tF32\nb\t300\tBF16\nc\t5\tF32\n");
  EXPECT_EQ(one["best"]["chunk_bytes"], 2 * 640);
}

TEST(CastorSearchTest, AnswersForAnEmptyModel) {
  const JsonValue document = Document({"search", "-"}, "");
  EXPECT_TRUE(document["candidates"].empty());
  EXPECT_TRUE(document["best"].is_null());
  EXPECT_EQ(Castor({"search", "-"}, "").exit_code, 0);
}

TEST(CastorSearchTest, SaysNoWhereNothingFitsTheDevice) {
  const ProcessOutcome outcome =
      Castor({"search", kLlama, "--device-budget", "100MiB"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("the device budget is 100 MiB; raise"));
  const JsonValue fits =
      Document({"search", kLlama, "--device-budget", "2GiB"});
  EXPECT_LE(fits["recommended"]["gathered_bytes"].integer(), int64_t{2} << 30);
}

TEST(CastorSearchTest, WhatIsNextKeepsWhatWasAskedFor) {
  const ProcessOutcome outcome =
      Castor({"search", kLlama, "--order", "natural", "--world", "4", "--dtype",
              "bf16", "--freeze", "*norm*", "--min", "16MiB"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string next = outcome.out.substr(outcome.out.find("\nNext "));
  for (const std::string part :
       {"--order natural", "--world 4", "--dtype bf16", "--freeze '*norm*'",
        "--min 16MiB", "--device-budget 8GiB"}) {
    EXPECT_THAT(next, HasSubstr(part));
  }
}

}  // namespace
}  // namespace castor
