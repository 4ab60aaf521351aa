// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/plan/plan_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/units_text.h"
#include "chunk/param_spec.h"
#include "chunk/tensor_fields.h"
#include "offload/kernels/optimizer_options.h"
#include "placement/model_blocks.h"
#include "tools/models/castor_files.h"
#include "tools/models/model_reader.h"
#include "tools/models/model_shape.h"

namespace castor {
namespace {

constexpr Bytes kLeastChunk = MiB(32);
constexpr Bytes kMostChunk = MiB(512);
constexpr int64_t kBudgetsPerChunk = 8;
// A model so small that it would have few chunks of the least size is cut into
// smaller ones where its budget asks for that.
constexpr int64_t kChunksPerModel = 64;

Status CheckTogether(const PlanFlags& flags) {
  if (!flags.files.layout.empty() &&
      (flags.engine.chunk_size || flags.min || flags.max)) {
    return InvalidArgument(
        "--layout says where every parameter lies: leave --chunk, --min and "
        "--max away");
  }
  if (flags.engine.chunk_size && (flags.min || flags.max)) {
    return InvalidArgument(
        "--chunk is the size, and --min and --max are for searching one; give "
        "either");
  }
  if (flags.engine.optimizer.momentum != 0 &&
      flags.engine.optimizer.kind != OptimizerKind::kSgd) {
    return InvalidArgument("--momentum is for --optimizer sgd");
  }
  if (flags.seq && !flags.trace.empty()) {
    return InvalidArgument(
        "--seq counts activations by formula and --trace has what was on "
        "lease; give one of them");
  }
  if (flags.borrow && !flags.seq) {
    return InvalidArgument(
        "--borrow-activations needs --seq, from which activations follow");
  }
  if (flags.engine.grad_mode == GradMode::kReuse &&
      flags.step.micro_batches > 1) {
    return InvalidArgument(
        fmt::format("--grad-mode reuse writes gradients over parameters, which "
                    "{} micro-batches need again; take one, or another mode",
                    flags.step.micro_batches));
  }
  if (flags.batch && !flags.seq) {
    return InvalidArgument(
        "--batch says how large activations are, and so needs --seq");
  }
  return OkStatus();
}

// A size is searched between bounds that say themselves what they are, so that
// another budget alone changes no layout. No budget is so small that its chunks
// are below what the model calls for: what holds nothing tells no size.
Status FillChunks(const PlanFlags& flags, const PlanSubject& subject,
                  ZeroOptions* options) {
  options->max_chunk = kMostChunk;
  if (flags.device_budget) {
    const Bytes least =
        std::min(kLeastChunk, RoundUp(subject.bytes / kChunksPerModel, KiB(4)));
    const Bytes part = *flags.device_budget / kBudgetsPerChunk;
    options->max_chunk = std::max({std::min(kMostChunk, part), least, KiB(4)});
  }
  options->min_chunk = std::min(kLeastChunk, options->max_chunk);
  if (flags.max) {
    options->max_chunk = *flags.max;
    options->min_chunk = std::min(options->min_chunk, *flags.max);
  }
  if (flags.min) {
    options->min_chunk = *flags.min;
    if (!flags.max) {
      options->max_chunk = std::max(options->max_chunk, *flags.min);
    }
  }
  if (options->min_chunk == Bytes(0)) {
    return InvalidArgument(
        "a chunk of 0 bytes holds nothing: give --min and --max more");
  }
  if (options->min_chunk <= options->max_chunk) return OkStatus();
  return InvalidArgument(fmt::format("--min {} is above --max {}",
                                     FormatSizeExact(options->min_chunk),
                                     FormatSizeExact(options->max_chunk)));
}

Status FillActivations(const PlanFlags& flags, const PlanSubject& subject,
                       PlanRequest* request) {
  if (!flags.seq) return OkStatus();
  TransformerShape shape = subject.shape;
  shape.batch = flags.batch.value_or(1);
  shape.seq = *flags.seq;
  if (flags.width) shape.query_width = shape.key_width = 0;
  shape.width = flags.width.value_or(shape.width);
  shape.heads = flags.heads.value_or(shape.heads);
  shape.vocab = flags.vocab.value_or(shape.vocab);
  shape.mlp_width = flags.mlp_width.value_or(shape.mlp_width);
  shape.dropout = flags.dropout;
  shape.keeps_scores = flags.attention == "scores";
  if (const auto& params = subject.model.params; !params.empty()) {
    shape.element_bytes = DTypeBits(params.front().dtype) / 8;
  }
  if (shape.width == 0 || shape.heads == 0) {
    return InvalidArgument(fmt::format(
        "nothing tells the model's {}, from which activations follow; give {}",
        shape.width == 0 ? "hidden size" : "attention heads",
        shape.width == 0 ? "--width and --heads" : "--heads"));
  }
  CASTOR_RETURN_IF_ERROR(ValidateShape(shape));
  request->activations = shape;
  request->borrows = flags.borrow;
  return OkStatus();
}

// Names that share a parameter which the list has.
std::vector<TiedParam> TiedParamsOf(const ModelList& model) {
  std::map<std::string, int32_t> ids;
  for (size_t p = 0; p < model.params.size(); ++p) {
    ids.emplace(model.params[p].name, static_cast<int32_t>(p));
  }
  std::vector<TiedParam> tied;
  for (const TiedName& name : model.tied) {
    const auto found = ids.find(name.to);
    if (found != ids.end() && !ids.contains(name.name)) {
      tied.push_back({name.name, ParamId(found->second)});
    }
  }
  return tied;
}

}  // namespace

Result<PlanSubject> ReadPlanSubject(const PlanFlags& flags) {
  PlanSubject subject;
  ReadModelOptions read = flags.read;
  if (!flags.dtype.empty()) {
    const Result<DType> dtype = ReadDType(flags.dtype, DTypeSpelling::kLenient);
    if (!dtype.ok()) {
      return InvalidArgument(
          std::string(dtype.status().WithContext("--dtype").message()));
    }
    read.dtype = *dtype;
  }
  if (!flags.files.machine.empty()) {
    CASTOR_ASSIGN_OR_RETURN(subject.machine,
                            ReadMachineFile(flags.files.machine));
  }
  if (!flags.trace.empty()) {
    CASTOR_ASSIGN_OR_RETURN(subject.trace, ReadTraceFile(flags.trace));
  }
  if (!flags.files.layout.empty()) {
    CASTOR_ASSIGN_OR_RETURN(LayoutFile layout,
                            ReadLayoutFile(flags.files.layout));
    subject.layout = std::make_shared<const LayoutFile>(std::move(layout));
  }
  CASTOR_ASSIGN_OR_RETURN(subject.model, ReadModel(flags.model, read));
  CASTOR_ASSIGN_OR_RETURN(subject.shape,
                          ReadModelShape(flags.model, subject.model));
  const std::vector<TiedParam> tied = TiedParamsOf(subject.model);
  const std::vector<ParamSpec>& params = subject.model.params;
  for (const ParamSpec& spec : params) {
    // The reader has refused shapes that overflow.
    const Elements count = CountElements(spec.shape, spec.dtype).value();
    subject.elements += count;
    subject.bytes += BytesOf(count, spec.dtype);
  }
  subject.by_block = FindModelBlocks(params, tied, HoldUnit::kBlock);
  subject.by_module = FindModelBlocks(params, tied, HoldUnit::kModule);
  return subject;
}

Result<PlanRequest> CheckPlanFlags(const PlanFlags& flags,
                                   const PlanSubject& subject) {
  CASTOR_RETURN_IF_ERROR(CheckTogether(flags));
  PlanRequest request;
  request.flags = flags;
  ZeroOptions& options = request.options;
  options = flags.engine;
  options.layout = subject.layout;
  options.machine = subject.machine;
  CASTOR_RETURN_IF_ERROR(FillChunks(flags, subject, &options));
  options.device_budget = flags.device_budget.value_or(kNoDeviceLimit);
  options.host_budget = flags.host_budget.value_or(Bytes(0));
  if (flags.nvme) options.nvme = {{{}, flags.nvme}};
  options.step_compute_ns = flags.compute.value_or(0);
  request.step = flags.step;
  request.step.whole_grads = options.accumulation == AccumulationOrder::kLast;
  request.step.grads_in_place = options.grad_mode == GradMode::kReuse;
  CASTOR_RETURN_IF_ERROR(FillActivations(flags, subject, &request));
  return request;
}

}  // namespace castor
