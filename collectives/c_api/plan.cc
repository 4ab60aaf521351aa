// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Plans through the C ABI.

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/param_spec.h"
#include "chunk/search/chunk_bounds.h"
#include "collectives/answers/foretell.h"
#include "collectives/c_api/castor.h"
#include "collectives/c_api/door.h"
#include "collectives/c_api/tensor.h"
#include "collectives/memory/held_moments.h"
#include "collectives/options/option_table.h"
#include "collectives/sealing/layout_choice.h"
#include "collectives/sealing/seal_plan.h"
#include "collectives/world/launch.h"
#include "collectives/zero_config.h"
#include "offload/nvme/nvme_option.h"
#include "placement/derive/model_blocks.h"
#include "placement/derive/step_model.h"

namespace castor::c_api {
namespace {

struct PlanQuestion {
  ZeroOptions options;
  EngineFiles files;
  int world = 1;
  bool processes = false;
  std::string working_set = "block";
  StepShape step;
};

Result<PlanQuestion> ReadQuestion(std::string_view text) {
  PlanQuestion question;
  OptionTable table = EngineOptions(&question.options, &question.files);
  table.Whole("world", &question.world, 1, kMostPlannedRanks);
  table.Switch("processes", &question.processes);
  table.Choice("working_set", &question.working_set, {"block", "module"});
  table.Whole("micro_batches", &question.step.micro_batches, 1,
              kMostPlannedMicroBatches);
  table.Switch("recompute", &question.step.recompute);
  CASTOR_ASSIGN_OR_RETURN(const std::vector<std::string> said,
                          ReadConfig(text, table));
  const auto says = [&](std::string_view key) {
    return std::find(said.begin(), said.end(), key) != said.end();
  };
  if (!says("device_budget_bytes")) {
    return InvalidArgument(
        "device_budget_bytes is missing: say what a rank may hold on its "
        "device");
  }
  const std::vector<NvmeOption>& drives = question.options.nvme;
  if (!drives.empty() && !NvmeLimit(drives)) {
    return InvalidArgument(
        "a drive of nvme has no size_bytes: say how much may lie there");
  }
  CASTOR_RETURN_IF_ERROR(ReadEngineFiles(question.files, &question.options));
  return question;
}

Result<PlanFile> PlanWithin(std::span<const ParamSpec> params,
                            PlanQuestion question) {
  const ZeroOptions& options = question.options;
  CASTOR_ASSIGN_OR_RETURN(const ChunkLayout layout,
                          LayoutOf(params, options, question.world));
  std::vector<TiedParam> tied;
  if (const auto head = SuspectedTie(params)) tied.push_back(*head);
  const std::vector<ModelBlock> blocks = FindModelBlocks(
      params, tied,
      question.working_set == "block" ? HoldUnit::kBlock : HoldUnit::kModule);
  question.step.whole_grads = options.accumulation == AccumulationOrder::kLast;
  question.step.grads_in_place = options.grad_mode == GradMode::kReuse;
  CASTOR_ASSIGN_OR_RETURN(const StepTrace step,
                          DeriveStep(layout, blocks, question.step));
  EngineRequest engine;
  engine.params = params;
  engine.options = options;
  engine.world = question.world;
  if (question.processes) {
    engine.communicator_buffers =
        ExchangeBufferFor(options.device_budget, question.world);
  }
  engine.declared.held = HeldMomentsOf(params, blocks, question.step);
  CASTOR_ASSIGN_OR_RETURN(
      const Foretold told,
      Foretell({.engine = engine, .layout = &layout, .steps = {&step}}));
  CASTOR_RETURN_IF_ERROR(told.fits);
  PlanFile file = PlanFileOf(engine, "", question.processes);
  file.files = question.files;
  if (!options.nvme.empty()) file.nvme = NvmeLimit(options.nvme);
  return file;
}

// Sizes that nobody said become those between which the search of a plan that
// fits has looked.
Result<PlanFile> MakePlan(std::span<const ParamSpec> params,
                          PlanQuestion question) {
  ZeroOptions& options = question.options;
  CASTOR_RETURN_IF_ERROR(CheckOptions(options, question.world));
  for (const ParamSpec& spec : params) {
    CASTOR_RETURN_IF_ERROR(CheckTrains(spec, options.grad_mode));
  }
  if (options.layout != nullptr || options.chunk_size) {
    return PlanWithin(params, question);
  }
  Status refused;
  for (const ChunkBounds& bounds :
       BoundsFor(params, options, question.world, options.device_budget)) {
    options.min_chunk = bounds.least;
    options.max_chunk = bounds.most;
    Result<PlanFile> plan = PlanWithin(params, question);
    if (plan.status().code() != ErrorCode::kInfeasible) return plan;
    refused = plan.status();
  }
  return refused;
}

Result<std::string> Plan(TensorList tensors, std::string_view options) {
  CASTOR_ASSIGN_OR_RETURN(PlanQuestion question, ReadQuestion(options));
  CASTOR_ASSIGN_OR_RETURN(const std::vector<ParamSpec> params,
                          SpecsOf(tensors));
  CASTOR_ASSIGN_OR_RETURN(const PlanFile plan,
                          MakePlan(params, std::move(question)));
  return WritePlan(plan);
}

}  // namespace
}  // namespace castor::c_api

extern "C" int32_t castor_plan_run(const castor_tensor* tensors, size_t count,
                                   const char* options, const char** json) {
  // Made by threads that plan, and only these.
  thread_local std::string answer;
  return castor::c_api::ThroughTheDoor([&] {
    return castor::c_api::AnswerAsText(tensors, count, options,
                                       castor::c_api::Plan, &answer, json);
  });
}
