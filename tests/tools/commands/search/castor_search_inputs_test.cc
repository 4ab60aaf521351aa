// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What `castor search` reads and what it takes from it, as a user runs it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "chunk/text/json_value.h"
#include "tests/support/file_text.h"
#include "tests/tools/models/model_files.h"
#include "tests/tools/run_process.h"

namespace castor {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr char kGpt2Xl[] = "tools/models/configs/gpt2-xl/config.json";

ProcessOutcome Search(std::vector<std::string> args) {
  args.insert(args.begin(), {"tools/castor", "search"});
  return RunProcess(args);
}

std::set<std::string> Groups(const JsonValue& document) {
  std::set<std::string> groups;
  for (const JsonValue& candidate : document["candidates"]) {
    groups.insert(candidate["group"].text());
  }
  return groups;
}

TEST(CastorSearchInputsTest, ReadsAModelOfTheHubCache) {
  const TempFolder folder;
  const std::string snapshot = "models--org--tiny/snapshots/r1/";
  folder.Write("models--org--tiny/blobs/1",
               R"({"model_type":"gpt2","n_layer":1,"n_embd":96})");
  folder.Write("models--org--tiny/refs/main", "r1");
  fs::create_directories(folder.At(snapshot));
  fs::create_symlink("../../blobs/1", folder.At(snapshot + "config.json"));
  setenv("HF_HUB_CACHE", folder.path().c_str(), 1);
  const ProcessOutcome found = Search({"org/tiny", "--json"});
  const ProcessOutcome none = Search({"org/none"});
  unsetenv("HF_HUB_CACHE");
  EXPECT_EQ(found.exit_code, 0) << found.err;
  EXPECT_EQ(ParseJson(found.out).value()["model"]["name"], "org/tiny");
  EXPECT_THAT(found.err, HasSubstr("read from the hub cache"));
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("nothing is read online"));
}

// A trace without moments that names its parameters, unless `params` is empty.
std::string TraceNaming(const std::string& params) {
  std::string text =
      R"({"schema":"castor.trace/1","rank":0,"world":1,"chunks":[],)";
  if (!params.empty()) text.append(R"("params":[)").append(params).append("],");
  return text.append(R"("moments":[]})");
}

TEST(CastorSearchInputsTest, PacksInTheOrderOfATrace) {
  const TempFolder folder;
  const std::string list =
      folder.Write("m.tsv", "alpha\t64\tF32\nbeta\t128\tF32\ngamma\t32\tF32\n");
  const auto search = [&](const std::string& trace) {
    return Search({list, "--order", "trace", "--trace",
                   folder.Write("step.json", trace), "-o",
                   folder.At("l.json")});
  };
  const ProcessOutcome good = search(TraceNaming(R"("gamma","alpha","beta")"));
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_THAT(
      good.out,
      HasSubstr("Order       trace: parameters are packed as "
                "the step of --trace first used them, by your choice\n"));
  const std::string layout = FileText(folder.At("l.json"));
  EXPECT_LT(layout.find("\"gamma\""), layout.find("\"alpha\""));
  EXPECT_LT(layout.find("\"alpha\""), layout.find("\"beta\""));

  const std::pair<std::string, std::string> bad[] = {
      {TraceNaming(R"("gamma","alpha")"),
       "step.json\": the trace lacks parameter \"beta\" "
       "of the model"},
      {TraceNaming(R"("gamma","alpha","beta","betas")"),
       "has parameter \"betas\", which the model has not, the nearest being "
       "\"beta\""},
      {TraceNaming(R"("gamma","alpha","beta","gamma")"), "each is given once"},
      {TraceNaming(""), "does not name its parameters"},
      {"{}", "has no \"schema\""},
      {"", "step.json"}};
  for (const auto& [trace, message] : bad) {
    const ProcessOutcome refused = search(trace);
    EXPECT_EQ(refused.exit_code, 4) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr(message));
    EXPECT_EQ(refused.out, "");
  }
}

TEST(CastorSearchInputsTest, PacksFrozenParametersByThemselves) {
  const ProcessOutcome frozen = Search(
      {kGpt2Xl, "--freeze", "*.wte.weight", "--freeze=*.wpe.weight", "--json"});
  EXPECT_EQ(frozen.exit_code, 0) << frozen.err;
  EXPECT_THAT(Groups(ParseJson(frozen.out).value()),
              testing::ElementsAre("F32", "F32 frozen"));
  const ProcessOutcome only =
      Search({kGpt2Xl, "--only", "*.h.4[0-7].*", "--json"});
  EXPECT_EQ(only.exit_code, 0) << only.err;
  EXPECT_THAT(Groups(ParseJson(only.out).value()),
              testing::ElementsAre("F32", "F32 frozen"));
  const ProcessOutcome nothing =
      Search({kGpt2Xl, "--only", "transformer.wte.wieght"});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.err,
              HasSubstr("did you mean \"transformer.wte.weight\"?"));
}

}  // namespace
}  // namespace castor
