// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_FLAGS_H_
#define CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_FLAGS_H_

// The flags of `castor simulate`, as they are declared, and what they ask for
// once they are found to make sense together. Nothing is read here but the
// command line. Pure functions, thread-safe, but for declaring.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/zero_config.h"
#include "collectives/zero_options.h"
#include "placement/simulation_result.h"
#include "placement/tier_model.h"

namespace CLI {
class App;
}  // namespace CLI

namespace castor {

// Which budget a sweep varies.
enum class SweptBudget : uint8_t { kDevice, kHost };

// "device-budget", "host-budget".
std::string_view SweptBudgetName(SweptBudget budget);

// What it takes an engine to do unless told otherwise: it clips.
ZeroOptions SimulatedOptions();

struct SimulateRequest {
  std::string trace_file;
  EngineFiles files;  // no layout: a parameter for each chunk
  // As far as neither the trace nor what is below says.
  ZeroOptions engine = SimulatedOptions();
  Bytes device_budget;  // of one rank, where they are not swept
  Bytes host_budget;
  std::optional<Bytes> nvme_budget;             // empty: there is no NVMe
  std::optional<DType> dtype;                   // of parameters; as recorded
  std::optional<int> shard_group;               // empty: as recorded
  std::optional<OptimizerSpan> optimizer_span;  // the same
  std::optional<int> ranks;                     // the same
  int ranks_per_host = 1;
  std::optional<int64_t> compute_ns;       // of a step; empty: as recorded
  int64_t evaluations = 0;                 // before every step
  std::optional<LinkModel> device_memory;  // its speed; empty: it is instant
  SimTrainer trainer = SimTrainer::kStream;
  struct Sweep {
    SweptBudget budget = SweptBudget::kDevice;
    std::vector<Bytes> values;  // rising
  };
  std::optional<Sweep> sweep;
  std::vector<std::string> then;  // files of steps that depart from the trace
  std::string svg;                // where the plot goes; empty: nowhere
};

// What flags fill in: a request, but for what they say only together.
struct SimulateFlags {
  SimulateRequest request;
  std::optional<Bytes> device_budget;
  std::optional<Bytes> host_budget;
  std::string sweep;
  int64_t points = 12;
  bool json = false;
  bool plain = false;
};

// `flags` outlives `app`.
void DeclareSimulateFlags(CLI::App& app, SimulateFlags* flags);

// InvalidArgument with a sentence for what makes no sense for any trace.
Result<SimulateRequest> CheckSimulateFlags(const SimulateFlags& flags);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_FLAGS_H_
