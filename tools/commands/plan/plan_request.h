// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PLAN_PLAN_REQUEST_H_
#define CASTOR_TOOLS_COMMANDS_PLAN_PLAN_REQUEST_H_

// What `castor plan` is asked: its flags, as they are declared and written, and
// back, as a change that would help is a change of flags; the files that they
// name, of which none is read twice, whatever is planned; and what they come to
// together. Values; declaring and reading are for the owner thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/layout_file.h"
#include "chunk/search/chunk_bounds.h"
#include "collectives/zero_config.h"
#include "collectives/zero_options.h"
#include "placement/derive/activation_model.h"
#include "placement/derive/step_model.h"
#include "placement/tier_model.h"
#include "placement/trace/trace_file.h"
#include "tools/models/model_list.h"

namespace CLI {
class App;
}  // namespace CLI

namespace castor {

// What is empty was not given.
struct PlanFlags {
  // An engine clips unless it is told otherwise.
  PlanFlags() { engine.clip_norm = 1; }

  // The model, as for castor search; its type is read from `dtype`.
  std::string model;
  std::string dtype;
  ReadModelOptions read;

  // How it is trained; budgets, drives and sizes that are searched are below.
  int world = 1;
  ZeroOptions engine;
  EngineFiles files;
  std::optional<Bytes> min;
  std::optional<Bytes> max;

  // What each rank has.
  std::optional<Bytes> device_budget;
  std::optional<Bytes> host_budget;
  std::optional<Bytes> nvme;
  bool keep_copies = false;  // without a device budget, too
  bool processes = false;    // each rank is one
  // Of the device, in which ranks exchange gradients; else by `processes`.
  std::optional<Bytes> exchange_buffer;
  Bytes cuda_context;
  Bytes nccl;
  Bytes other_states;  // of the host

  // What a step does.
  std::optional<int64_t> batch;
  std::optional<int64_t> seq;
  std::string fit = "given";  // which of the two is as large as fits
  std::optional<Bytes> activations;
  StepShape step;
  bool update_in_backward = false;
  std::string hold = "block";
  std::optional<int64_t> width;
  std::optional<int64_t> heads;
  std::optional<int64_t> vocab;
  std::optional<int64_t> mlp_width;
  std::string attention = "flash";
  std::string loss = "plain";
  bool dropout = false;
  bool borrow = false;
  std::string trace;

  std::optional<int64_t> compute;  // nanoseconds
  int ranks_per_host = 1;

  std::string output;
  std::string compare;
  std::string explain;
  std::string html;  // where a page goes; empty: nowhere
  bool json = false;
  bool plain = false;

  // On the device, beside Castor and activations.
  Bytes overhead() const { return cuda_context + nccl; }
};

// `flags` outlives `app`. The first declares what is planned, MODEL included,
// the second all flags of castor plan.
void DeclarePlannedFlags(CLI::App& app, PlanFlags* flags);
void DeclarePlanFlags(CLI::App& app, PlanFlags* flags);

// "castor plan MODEL --world 8 ...": what a shell takes for `flags`, without
// those that say in which form to answer and where to.
std::string PlanCommandText(const PlanFlags& flags);

// Whence what a step does is known.
enum class StepSource : uint8_t {
  kRecorded,  // --trace
  kListed,    // the model's list says it
  kDerived,   // from names and shapes: a trainer may hold more, or move less
};
// "recorded", "listed", "derived".
std::string_view StepSourceName(StepSource source);

struct PlanSubject {
  ModelList model;
  Elements elements;  // of all parameters
  Bytes bytes;
  TransformerShape shape;            // as far as anything tells it
  std::vector<ModelBlock> by_block;  // without activations
  std::vector<ModelBlock> by_module;
  std::optional<TierModel> machine;          // --machine
  std::optional<TraceFile> trace;            // --trace
  std::shared_ptr<const LayoutFile> layout;  // --layout

  // A list's step is of a trainer that trains all of it.
  StepSource step_source() const;
};

// InvalidArgument, Malformed: as the readers of those files say.
Result<PlanSubject> ReadPlanSubject(const PlanFlags& flags);

// More than any device has.
inline constexpr Bytes kNoDeviceLimit{int64_t{1} << 50};

struct PlanRequest {
  PlanFlags flags;
  // For an engine; its device budget is all of the rank's until activations and
  // overhead are taken off. Chunks are searched within the first of BoundsOf.
  ZeroOptions options;
  StepShape step;
  // Of a micro-batch; empty: activations are not counted.
  std::optional<TransformerShape> activations;
  bool borrows = false;  // they lie in Castor's pool
};

// Between which sizes a chunk is searched, one after the other until the plan
// fits; one alone where a size or a layout is given.
std::vector<ChunkBounds> BoundsOf(const PlanFlags& flags,
                                  const PlanSubject& subject);

// InvalidArgument with a sentence for what makes no sense together, or with
// what was read.
Result<PlanRequest> CheckPlanFlags(const PlanFlags& flags,
                                   const PlanSubject& subject);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PLAN_PLAN_REQUEST_H_
