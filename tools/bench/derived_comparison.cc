// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// How far off castor plan is where it derives what a step does, next to the
// trainer's own word, by which a run goes to the byte: the least device budget
// that is said to fit, and the bytes that a step moves there. Drawn models of
// the example trainer; nothing is trained.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "tools/bench/drawn_plans.h"
#include "tools/commands/plan/plan_outcome.h"

namespace castor {
namespace {

constexpr size_t kPlans = 300;

// Derived over listed.
void Print(std::string_view what, std::vector<double> ratios) {
  std::sort(ratios.begin(), ratios.end());
  fmt::print("{}: median {:.3f}, least {:.3f}, most {:.3f} of {}\n", what,
             ratios[ratios.size() / 2], ratios.front(), ratios.back(),
             ratios.size());
}

Bytes MovedWith(const PlanSubject& subject, PlanFlags flags, Bytes budget) {
  flags.device_budget = budget;
  const Result<PlanOutcome> outcome = MakePlan(subject, flags);
  CASTOR_CHECK(outcome.ok() && outcome->fits.ok());
  return outcome->moved();
}

void Compare(const std::filesystem::path& folder) {
  std::mt19937_64 random(1);
  std::vector<double> budgets;
  std::vector<double> moved;
  int64_t optimistic = 0;
  while (budgets.size() < kPlans) {
    const DrawnPlan drawn = DrawPlan(random);
    const Result<PlanSubject> listed = SubjectOf(drawn, folder.string());
    CASTOR_CHECK(listed.ok());
    const PlanSubject derived = WithoutStep(*listed);
    const auto least = LeastDeviceBudget(*listed, drawn.flags);
    const auto guessed = LeastDeviceBudget(derived, drawn.flags);
    if (!least.ok() || !guessed.ok() || !*least || !*guessed) continue;
    const Bytes run = **least;
    const Bytes said = **guessed;
    if (said < run) ++optimistic;
    budgets.push_back(static_cast<double>(said.count()) /
                      static_cast<double>(run.count()));
    const Bytes budget = std::max(run, said);
    const Bytes moves = MovedWith(*listed, drawn.flags, budget);
    if (moves == Bytes(0)) continue;
    moved.push_back(
        static_cast<double>(MovedWith(derived, drawn.flags, budget).count()) /
        static_cast<double>(moves.count()));
  }
  Print("least device budget, derived over listed", budgets);
  Print("bytes moved in a step, derived over listed", moved);
  fmt::print("derived says that less fits than the run asks for: {} of {}\n",
             optimistic, budgets.size());
}

}  // namespace
}  // namespace castor

int main() {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / "castor_derived_comparison";
  std::filesystem::create_directories(folder);
  castor::Compare(folder);
  std::filesystem::remove_all(folder);
  return 0;
}
