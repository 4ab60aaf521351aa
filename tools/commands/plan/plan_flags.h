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

namespace CLI {
class App;
}  // namespace CLI

namespace castor {

// As they were written; what is empty was not given.
struct PlanFlags {
  // The model, as for castor search.
  std::string model;
  std::string dtype;
  std::string order;
  std::string expert_layout;
  std::vector<std::string> freeze;
  std::vector<std::string> only;

  // How it is trained.
  int64_t world = 1;
  int64_t stage = 3;
  std::optional<int64_t> shard_group;  // all ranks
  std::string optimizer_span;
  std::optional<Bytes> chunk;
  std::optional<Bytes> min;
  std::optional<Bytes> max;
  int64_t align = 64;
  std::string layout;
  std::string optimizer;
  std::string moments;
  double momentum = 0;
  double clip = 1;
  std::string grad_mode;
  std::string accumulation_order;
  std::optional<std::string> prefetch;
  std::string policy;
  std::vector<std::string> limit;
  std::vector<std::string> place;

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
  std::string batch_order;
  bool recompute = false;
  std::string hold;
  std::optional<int64_t> width;
  std::optional<int64_t> heads;
  std::optional<int64_t> vocab;
  std::optional<int64_t> mlp_width;
  std::string attention;
  bool dropout = false;
  bool borrow = false;
  std::string trace;

  // How long it takes.
  std::string machine;
  std::string compute;
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
