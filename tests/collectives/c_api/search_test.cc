// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The search of the C ABI against the command's: the same bytes for the same
// list and options.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "chunk/text/json_value.h"
#include "collectives/c_api/castor.h"
#include "tests/collectives/c_api/tensor_list.h"
#include "tests/support/run_program.h"
#include "tests/tools/run_process.h"

namespace castor {
namespace {

using testing::HasSubstr;
using testing::Not;

// An embedding, twelve equal layers and a norm in another type.
std::vector<ListedTensor> Layers() {
  std::vector<ListedTensor> list = {{"embed.weight", {4000, 512}, "BF16"}};
  for (int i = 0; i < 12; ++i) {
    const std::string layer = "layers." + std::to_string(i);
    list.push_back({layer + ".up", {2048, 512}, "BF16"});
    list.push_back({layer + ".down", {512, 2048}, "BF16"});
    list.push_back({layer + ".bias", {512}, "BF16"});
  }
  list.push_back({"norm.weight", {700}, "F32"});
  return list;
}

std::string SearchInC(const std::vector<ListedTensor>& list,
                      const char* options) {
  const std::vector<castor_tensor> tensors = ForC(list);
  const char* json = nullptr;
  const int32_t code =
      castor_search_run(tensors.data(), tensors.size(), options, &json);
  EXPECT_EQ(code, CASTOR_OK) << castor_last_error();
  return json == nullptr ? "" : json;
}

// What the command answers, but for where the list came from.
std::string SearchByCommand(const std::vector<ListedTensor>& list,
                            std::vector<std::string> flags) {
  flags.insert(flags.begin(), {DataPath("tools/castor"), "search", "-"});
  flags.push_back("--json");
  const ProcessOutcome run = RunProcess(flags, ForTheCommand(list));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  JsonValue json = ParseJson(run.out).value();
  EXPECT_EQ(json.Dump(2) + '\n', run.out);
  json["model"]["name"] = "";
  json["model"]["source"] = "castor_search_run";
  return json.Dump(2) + '\n';
}

TEST(CSearchTest, AnswersWhatTheCommandDoes) {
  const std::vector<ListedTensor> list = Layers();
  EXPECT_EQ(SearchInC(list, nullptr), SearchByCommand(list, {}));
  EXPECT_EQ(SearchInC({}, "{}"), SearchByCommand({}, {}));
  const std::vector<ListedTensor> one_type(list.begin(), list.end() - 1);
  EXPECT_EQ(
      SearchInC(one_type, R"({"min": "1MiB", "max": 33554432, "world": 4,
                              "align": 128, "mode": "layer",
                              "prefetch": 2, "rule": "gemini"})"),
      SearchByCommand(one_type, {"--min", "1MiB", "--max", "32MiB", "--world",
                                 "4", "--align", "128", "--mode", "layer",
                                 "--prefetch", "2", "--rule", "gemini"}));
  EXPECT_EQ(
      SearchInC(list, R"({"device_budget": "1GiB", "h2d": "24GB/s,10us",
                          "d2h": "20GB/s", "world": 2, "all_gather": "9GB/s",
                          "reduce_scatter": "8GB/s,1us"})"),
      SearchByCommand(list, {"--device-budget", "1GiB", "--h2d", "24GB/s,10us",
                             "--d2h", "20GB/s", "--world", "2", "--all-gather",
                             "9GB/s", "--reduce-scatter", "8GB/s,1us"}));
}

TEST(CSearchTest, NamesOptionsAsTheProgramDoes) {
  const auto refusal = [](const char* options) {
    const char* json = "";
    EXPECT_EQ(castor_search_run(nullptr, 0, options, &json),
              CASTOR_INVALID_ARGUMENT);
    EXPECT_EQ(json, nullptr);
    return std::string(castor_last_error());
  };
  EXPECT_THAT(refusal(R"({"min": "2MiB", "max": "1MiB"})"),
              HasSubstr("min 2MiB is above max 1MiB"));
  EXPECT_THAT(refusal(R"({"all_gather": "1GB/s"})"), HasSubstr("give world"));
  EXPECT_THAT(refusal(R"({"h2d": "fast"})"), Not(HasSubstr("--")));
  EXPECT_THAT(refusal(R"({"prefetc": 1})"),
              HasSubstr("did you mean prefetch?"));
}

}  // namespace
}  // namespace castor
