// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Plans of the C ABI against the command's: the same bytes for the same list
// and options.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/c_api/castor.h"
#include "tests/collectives/c_api/tensor_list.h"
#include "tests/support/file_text.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/run_process.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A head without a table of its own, as of GPT-2.
std::vector<ListedTensor> Layers() {
  std::vector<ListedTensor> list = {{"wte.weight", {8000, 256}}};
  for (int i = 0; i < 6; ++i) {
    const std::string layer = "h." + std::to_string(i);
    list.push_back({layer + ".up.weight", {1024, 256}});
    list.push_back({layer + ".down.weight", {256, 1024}});
    list.push_back({layer + ".down.bias", {256}});
  }
  list.push_back({"ln_f.weight", {256}});
  return list;
}

int32_t PlanInC(const std::vector<ListedTensor>& list,
                const std::string& options, std::string* plan) {
  const std::vector<castor_tensor> tensors = ForC(list);
  const char* json = "";
  const int32_t code =
      castor_plan_run(tensors.data(), tensors.size(), options.c_str(), &json);
  EXPECT_EQ(json == nullptr, code != CASTOR_OK);
  if (json != nullptr) *plan = json;
  return code;
}

// What the command writes, but for the list's name.
std::string PlanByCommand(const std::vector<ListedTensor>& list,
                          std::vector<std::string> flags) {
  const TempDir dir;
  const std::string file = dir.File("plan.json");
  flags.insert(flags.begin(), {DataPath("tools/castor"), "plan", "-"});
  flags.insert(flags.end(), {"-o", file});
  const ProcessOutcome run = RunProcess(flags, ForTheCommand(list));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  std::string plan = FileText(file);
  const std::string name = "standard input";
  plan.erase(plan.find(name), name.size());
  return plan;
}

TEST(CPlanTest, AnswersWhatTheCommandWrites) {
  const std::vector<ListedTensor> list = Layers();
  std::string plan;
  ASSERT_EQ(
      PlanInC(list,
              R"({"device_budget_bytes": "16MiB", "host_budget_bytes": "256MiB",
                        "clip_norm": 1, "keep_copies": true})",
              &plan),
      CASTOR_OK)
      << castor_last_error();
  EXPECT_EQ(plan, PlanByCommand(list, {"--device-budget", "16MiB",
                                       "--host-budget", "256MiB"}));
  ASSERT_EQ(
      PlanInC(list,
              R"({"device_budget_bytes": "24MiB", "host_budget_bytes": "24MiB",
                  "nvme": [{"directory": "/tmp", "size_bytes": 268435456}],
                  "chunk": {"min_bytes": 262144, "max_bytes": "2MiB"},
                  "world": 2, "processes": true, "stage": 2,
                  "working_set": "module", "micro_batches": 3,
                  "recompute": true, "keep_copies": true})",
              &plan),
      CASTOR_OK)
      << castor_last_error();
  EXPECT_EQ(plan, PlanByCommand(list, {"--device-budget",
                                       "24MiB",
                                       "--host-budget",
                                       "24MiB",
                                       "--nvme",
                                       "256MiB",
                                       "--min",
                                       "256KiB",
                                       "--max",
                                       "2MiB",
                                       "--world",
                                       "2",
                                       "--processes",
                                       "--stage",
                                       "2",
                                       "--working-set",
                                       "module",
                                       "--micro-batches",
                                       "3",
                                       "--recompute",
                                       "--clip",
                                       "0"}));
}

TEST(CPlanTest, SaysWhyThereIsNone) {
  std::string plan;
  EXPECT_EQ(PlanInC(Layers(), R"({"device_budget_bytes": "1MiB"})", &plan),
            CASTOR_INFEASIBLE);
  EXPECT_THAT(castor_last_error(),
              AllOf(HasSubstr("device budget"), Not(HasSubstr("--"))));
  EXPECT_EQ(PlanInC(Layers(), "{}", &plan), CASTOR_INVALID_ARGUMENT);
  EXPECT_THAT(castor_last_error(), HasSubstr("device_budget_bytes is missing"));
  EXPECT_EQ(
      PlanInC(Layers(), R"({"device_budget_bytes": "16MiB", "micro_batch": 2})",
              &plan),
      CASTOR_INVALID_ARGUMENT);
  EXPECT_THAT(castor_last_error(), HasSubstr("did you mean micro_batches?"));
  EXPECT_EQ(PlanInC(Layers(),
                    R"({"device_budget_bytes": "16MiB",
                        "nvme": [{"directory": "/tmp"}]})",
                    &plan),
            CASTOR_INVALID_ARGUMENT);
  EXPECT_THAT(castor_last_error(), HasSubstr("size_bytes"));
}

}  // namespace
}  // namespace castor
