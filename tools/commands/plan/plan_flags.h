// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PLAN_PLAN_FLAGS_H_
#define CASTOR_TOOLS_COMMANDS_PLAN_PLAN_FLAGS_H_

// The flags of `castor plan`, as they are declared and written, and back: a
// change that would help is a change of flags. What they ask for is in
// plan_request.h. Owner thread only.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/units.h"
#include "collectives/zero_config.h"
#include "collectives/zero_options.h"

namespace CLI {
class App;
}  // namespace CLI

namespace castor {

// What castor plan takes an engine to do unless told otherwise: it clips.
ZeroOptions PlannedEngine();

// What is empty was not given.
struct PlanFlags {
  // The model, as for castor search.
  std::string model;
  std::string dtype;
  std::string order;
  std::string expert_layout;
  std::vector<std::string> freeze;
  std::vector<std::string> only;

  // How it is trained; budgets, drives and sizes that are searched are below.
  int64_t world = 1;
  ZeroOptions engine = PlannedEngine();
  EngineFiles files;
  std::optional<Bytes> min;
  std::optional<Bytes> max;

  // What each rank has.
  std::optional<Bytes> device_budget;
  std::optional<Bytes> host_budget;
  std::optional<Bytes> nvme;
  Bytes cuda_context;
  Bytes nccl;

  // What a step does.
  std::optional<int64_t> batch;
  std::optional<int64_t> seq;
  int64_t micro_batches = 1;
  std::string batch_order = "batch-major";
  bool recompute = false;
  std::string hold = "module";
  std::optional<int64_t> width;
  std::optional<int64_t> heads;
  std::optional<int64_t> vocab;
  std::optional<int64_t> mlp_width;
  std::string attention = "flash";
  bool dropout = false;
  bool borrow = false;
  std::string trace;

  std::optional<int64_t> compute;  // nanoseconds
  int64_t ranks_per_host = 1;

  std::string output;
  std::string compare;
  std::string explain;
  bool json = false;
  bool plain = false;
};

// `flags` outlives `app`. The first declares what is planned, MODEL included,
// the second all flags of castor plan.
void DeclarePlannedFlags(CLI::App& app, PlanFlags* flags);
void DeclarePlanFlags(CLI::App& app, PlanFlags* flags);

// "castor plan MODEL --world 8 ...": what a shell takes for `flags`, without
// those that say in which form to answer and where to.
std::string PlanCommandText(const PlanFlags& flags);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PLAN_PLAN_FLAGS_H_
