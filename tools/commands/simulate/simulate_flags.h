// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_FLAGS_H_
#define CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_FLAGS_H_

// The flags of `castor simulate`, as they are declared and written, and what
// they ask for once they are found to make sense together. Nothing is read here
// but the command line. Pure functions, thread-safe, but for declaring.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/zero_options.h"
#include "offload/kernels/optimizer_options.h"
#include "placement/placement_rules.h"
#include "placement/plan.h"
#include "placement/simulation_result.h"
#include "placement/static_policy.h"
#include "placement/tier_model.h"

namespace CLI {
class App;
}  // namespace CLI

namespace castor {

// As they were written; what is empty was not given.
struct SimulateFlags {
  std::string trace;
  std::string machine;
  std::optional<Bytes> device_budget;
  std::optional<Bytes> host_budget;
  std::optional<Bytes> nvme;
  std::string dtype;
  std::string layout;
  std::string optimizer = "adamw";
  std::string moments = "f32";
  std::string grad_mode = "separate";
  int64_t stage = 3;
  std::optional<int64_t> shard_group;
  std::string optimizer_span;
  std::optional<int64_t> world;
  int64_t ranks_per_host = 1;
  std::string policy = "auto";
  std::optional<std::string> prefetch;
  std::vector<std::string> limit;
  std::vector<std::string> place;
  double clip = 1;
  std::string compute;
  int64_t evaluate = 0;
  std::vector<std::string> then;
  std::string device_memory;
  std::string trainer = "stream";
  std::string sweep;
  int64_t points = 12;
  std::string svg;
  bool json = false;
  bool plain = false;
};

// `flags` outlives `app`.
void DeclareSimulateFlags(CLI::App& app, SimulateFlags* flags);

// Which budget a sweep varies.
enum class SweptBudget : uint8_t { kDevice, kHost };

// "device-budget", "host-budget".
std::string_view SweptBudgetName(SweptBudget budget);

struct SimulateRequest {
  enum class Form { kPage, kPlain, kJson };

  std::string trace_file;
  std::string machine_file;
  Bytes device_budget;  // of one rank, where they are not swept
  Bytes host_budget;
  std::optional<Bytes> nvme_budget;  // empty: there is no NVMe
  std::string layout_file;           // empty: a parameter for each chunk
  std::optional<DType> dtype;        // of parameters; empty: as recorded
  GradMode grad_mode = GradMode::kSeparate;
  OptimizerOptions optimizer;
  int stage = 3;
  std::optional<int> shard_group;               // empty: as recorded
  std::optional<OptimizerSpan> optimizer_span;  // the same
  std::optional<int> ranks;                     // empty: as recorded
  int ranks_per_host = 1;
  PlanPolicy policy = PlanPolicy::kAuto;
  PrefetchMode prefetch = PrefetchMode::kDepth;
  int prefetch_depth = 3;
  std::optional<StaticLimits> limits;  // of homes; empty: as budgets allow
  std::vector<PlacementRule> rules;
  bool clip = true;                   // the norm is computed, and waited for
  std::optional<int64_t> compute_ns;  // of a step; empty: as recorded
  int64_t evaluations = 0;            // before every step
  std::optional<LinkModel> device_memory;  // its speed; empty: it is instant
  SimTrainer trainer = SimTrainer::kStream;
  struct Sweep {
    SweptBudget budget = SweptBudget::kDevice;
    std::vector<Bytes> values;  // rising
  };
  std::optional<Sweep> sweep;
  std::vector<std::string> then;  // files of steps that depart from the trace
  std::string svg;                // where the plot goes; empty: nowhere
  Form form = Form::kPage;
};

// InvalidArgument with a sentence for what makes no sense for any trace.
Result<SimulateRequest> CheckSimulateFlags(const SimulateFlags& flags);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_FLAGS_H_
