// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The example trainer under each policy at five device budgets, on a twin whose
// links take their time: what moves over each link, how long lanes wait, how
// long a step takes. The table is printed as it stands in results.md. Ends with
// 1 where weights differ from one row to another, or a tier held more than its
// budget. For `planned` and `auto`, homes are as the budgets allow; for
// `static` the host holds 40 % of every state and NVMe the rest, and `auto`
// decides which copies stay, or `planned` where the row says so.
//
//   policy_comparison [FOLDER]     where the NVMe tier's file goes (.)

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/base/units_text.h"
#include "collectives/zero_engine.h"
#include "offload/nvme/nvme_option.h"
#include "placement/plan.h"
#include "placement/static_policy.h"
#include "placement/tier_model.h"
#include "tools/examples/gpt/text_data.h"
#include "tools/examples/gpt/trainer.h"
#include "tools/examples/gpt/training.h"

namespace castor::gpt {
namespace {

constexpr int64_t kSteps = 6;
constexpr int64_t kBudgetsMib[] = {6, 9, 13, 18, 24};

enum class Policy { kPlanned, kAuto, kStatic, kStaticPlanned };

std::string_view NameOf(Policy policy) {
  switch (policy) {
    case Policy::kPlanned:
      return "planned";
    case Policy::kAuto:
      return "auto";
    case Policy::kStatic:
      return "static";
    case Policy::kStaticPlanned:
      return "static, planned";
  }
  return "unknown";
}

TrainOptions OptionsFor(Policy policy, Bytes device_budget,
                        const std::string& folder, Log* log) {
  TrainOptions options;
  options.model = {
      .vocab = 256, .context = 32, .layers = 4, .heads = 4, .embd = 256};
  options.batch = 1;
  options.accumulate = 2;
  options.steps = kSteps;
  options.engine.chunk_size = MiB(1);
  options.engine.device_budget = device_budget;
  options.engine.host_budget = MiB(44);
  options.engine.nvme = {{folder, std::nullopt}};
  options.engine.policy =
      policy == Policy::kPlanned || policy == Policy::kStaticPlanned
          ? PlanPolicy::kPlanned
          : PlanPolicy::kAuto;
  if (policy == Policy::kStatic || policy == Policy::kStaticPlanned) {
    options.engine.home_limits.emplace();
    for (StateLimits& of_state : *options.engine.home_limits)
      of_state.host = 0.4;
  }
  TierModel machine;
  machine.host_to_device = LinkModel{1'000'000'000, 20'000};
  machine.device_to_host = LinkModel{1'000'000'000, 20'000};
  machine.nvme_read = LinkModel{400'000'000, 100'000};
  machine.nvme_write = LinkModel{300'000'000, 50'000};
  options.machine = machine;
  options.engine.log = log;
  return options;
}

TextData Digits() {
  std::vector<uint8_t> text;
  for (int i = 0; i < 3000; ++i) {
    for (char c : std::to_string(i * i)) {
      text.push_back(static_cast<uint8_t>(c));
    }
  }
  return TextData(std::move(text));
}

// Of the steps that follow a plan: the first one makes it, the second begins
// with what the first left behind.
double MedianSeconds(const std::vector<StepReport>& steps) {
  std::vector<double> seconds;
  for (size_t i = 2; i < steps.size(); ++i) seconds.push_back(steps[i].seconds);
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

std::string PerStep(const EngineStats& stats, Tier from, Tier to) {
  return FormatSize(stats.moved[TierIndex(from)][TierIndex(to)] / kSteps);
}

bool WithinBudgets(const EngineStats& stats) {
  return std::all_of(std::begin(stats.tiers), std::end(stats.tiers),
                     [](const TierUse& use) { return use.peak <= use.budget; });
}

Status Compare(const std::string& folder) {
  Log log([](LogLevel, std::string_view) {});
  const TextData text = Digits();
  fmt::print(
      "| device | policy | host to device | device to host | NVMe to host | "
      "host to NVMe | gathers | stalled | step |\n"
      "|---:|---|---:|---:|---:|---:|---:|---:|---:|\n");
  std::optional<uint64_t> digest;
  for (const int64_t mib : kBudgetsMib) {
    for (Policy policy : {Policy::kPlanned, Policy::kAuto, Policy::kStatic,
                          Policy::kStaticPlanned}) {
      CASTOR_ASSIGN_OR_RETURN(
          const TrainOutcome outcome,
          Train(OptionsFor(policy, MiB(mib), folder, &log), text, {}));
      const EngineStats& stats = outcome.ranks.front();
      if (!WithinBudgets(stats)) return Internal("a tier is over its budget");
      if (digest.value_or(outcome.final_digest) != outcome.final_digest) {
        return Internal("weights differ from those of the first row");
      }
      digest = outcome.final_digest;
      fmt::print(
          "| {} MiB | `{}` | {} | {} | {} | {} | {:.1f} | {:.0f} ms | {:.0f} "
          "ms |\n",
          mib, NameOf(policy), PerStep(stats, Tier::kHost, Tier::kDevice),
          PerStep(stats, Tier::kDevice, Tier::kHost),
          PerStep(stats, Tier::kNvme, Tier::kHost),
          PerStep(stats, Tier::kHost, Tier::kNvme),
          static_cast<double>(stats.gathers) / kSteps,
          static_cast<double>(stats.stall_ns) * 1e-6 / kSteps,
          MedianSeconds(outcome.steps) * 1e3);
      std::fflush(stdout);
    }
  }
  fmt::print(
      "\nWeights of all rows are equal: {:016x}; no tier was ever over "
      "its budget.\n",
      *digest);
  return OkStatus();
}

}  // namespace
}  // namespace castor::gpt

int main(int argc, char** argv) {
  const castor::Status status = castor::gpt::Compare(argc > 1 ? argv[1] : ".");
  if (status.ok()) return 0;
  fmt::print(stderr, "policy_comparison: {}\n", status.ToString());
  return 1;
}
