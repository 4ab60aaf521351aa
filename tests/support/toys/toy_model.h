// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_TOYS_TOY_MODEL_H_
#define CASTOR_TESTS_SUPPORT_TOYS_TOY_MODEL_H_

// A model small enough to compute by hand, and how it is to be trained: every
// parameter is used in a forward and a backward sweep, and its gradient is a
// fixed function of its own values, the rank, the step and the micro-batch. The
// same functions serve an engine (toy_trainer.h) and plain arrays. Pure
// functions and values, thread-safe.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/param_spec.h"
#include "collectives/custom_update.h"
#include "placement/trace/step_trace.h"

namespace castor {

class ZeroEngine;

struct ToyModel {
  std::vector<ParamSpec> params;
  // By parameter, the optimizer's group it is in; empty: none is in any.
  std::vector<std::string> groups = {};
};

// `count` parameters of random shapes, the largest of `largest` elements; a
// scalar and an empty one among them when there are more than three.
ToyModel MakeToyModel(uint64_t seed, int count, int64_t largest, DType dtype);

enum class ToyPoint : uint8_t {
  kForward,   // before the parameter is used
  kOpened,    // its gradient was written, but not handed back
  kBackward,  // its gradient was handed back
  kEnd,       // after the last micro-batch, before the step
};

// A point of a training at which the trainer holds no lease.
struct ToyMoment {
  int step = 0;
  int attempt = 0;  // of the step: counts what was abandoned
  int micro_batch = 0;
  ToyPoint point = ToyPoint::kForward;
  size_t param = 0;
};

struct ToyRun {
  int steps = 3;
  int first_step = 0;  // those before it were made elsewhere
  int micro_batches = 1;
  bool always_last = false;  // any micro-batch may be the last, it says
  double lr = 0.05;
  // The rate of a group of the optimizer in a step, set before it; the empty
  // name is of what is in none. Empty: all have `lr`.
  std::function<double(const std::string& group, int step)> rate;
  // Whether the first element of a gradient becomes infinite, where a rank has
  // one.
  std::function<bool(int rank, int step, int micro_batch, size_t param)>
      overflows;
  bool updates_early = false;  // tells the rate before the last micro-batch
  // Tells the rate, or another one in a third of the steps, as a guess.
  bool guesses = false;
  // Parameters skipped (no gradient) in every step.
  std::vector<int> unused;
  // By rank: parameters that it has no gradient for, though others may.
  std::vector<std::vector<int>> unused_by_rank;
  // Share of the gradients that a rank has none of, though others may, drawn
  // anew for each rank, step and micro-batch from `seed`; from that step on.
  double missing = 0;
  int missing_from = 0;
  // A rank acquires parameters that it has no gradient for as others do.
  bool acquires_all = false;
  // There is no forward sweep, and gradients do not depend on the weights,
  // which nobody looks at.
  bool blind = false;
  // Share of the gradients that are skipped, and share of those that are
  // written but not handed back, drawn alike on all ranks from `seed`.
  double skipped = 0;
  double left_open = 0;
  uint64_t seed = 0;
  // Parameters used once more at the other end of the model, as a tied
  // embedding is: the gradient comes in two pieces.
  std::vector<int> tied;
  // 0: computes on a ThreadLane; else on so many WorkerLanes, in turn.
  int worker_lanes = 0;
  // Whether Seal is told what the trainer holds.
  bool declares = true;
  // Whether slots may grow.
  bool grows = false;
  // Share of the leases that are kept for longer, for as long as chance has it
  // on each rank, perhaps beyond the step, but not into between_steps.
  double keeps = 0;
  // Whether the trainer evaluates all parameters, or abandons the step and
  // begins it anew, at a moment. Must not depend on the rank.
  std::function<bool(const ToyMoment&)> evaluates;
  std::function<bool(const ToyMoment&)> abandons;
  // Whether the trainer of a rank gives up at a moment, with kUnavailable.
  std::function<bool(const ToyMoment&)> fails;
  // Of a custom optimizer. On a GPU it is called when the stream gets there, on
  // what the stream's work reaches.
  UpdateFunction update;
  // Called on every rank before its first step; a failure ends it.
  std::function<Status(ZeroEngine&)> after_seal;
  // Declared at Seal, beside what is held.
  std::optional<StepTrace> step;
  // Called on every rank after every step but the last; a failure ends it.
  std::function<Status(ZeroEngine&, int step)> between_steps;
  // Called on rank 0 after every step.
  std::function<void(ZeroEngine&, int step)> after_step;
};

namespace toy {

int64_t SizeOf(const ParamSpec& spec);

// Of kU8 whole, from 0 to 255.
float InitialValue(DType dtype, size_t param, int64_t element);

// Where a gradient is computed.
struct GradPlace {
  size_t param = 0;
  int rank = 0;
  int step = 0;
  int micro_batch = 0;
  int use = 0;  // 1: the second use of a tied parameter
  bool overflows = false;
  double loss_scale = 1;
};

// Adds the gradient of `count` elements to `grad`, rounding to its dtype. It
// depends on the weights, so that a wrong weight spreads, unless `weight` is
// null.
void AddGradient(const GradPlace& place, const void* weight, DType dtype,
                 int64_t count, void* grad, DType grad_dtype);
// The gradients' dtype: the parameters', or fp32.
DType GradDType(DType dtype, bool fp32);

// Whether the parameter has a gradient in this micro-batch.
bool Uses(const ToyModel& model, const ToyRun& run, size_t param, int step,
          int micro_batch);
bool SkippedBy(const ToyRun& run, size_t param, int rank, int step,
               int micro_batch);
// Whether it may have none, or one that is not handed back: it cannot be told
// when its chunk is reduced.
bool Irregular(const ToyRun& run);
bool LeftOpen(const ToyRun& run, size_t param, int step, int micro_batch);
bool Tied(const ToyRun& run, size_t param);
bool Overflows(const ToyRun& run, int rank, int step, int micro_batch,
               size_t param);

// Of the bits of a parameter; never 0.
uint64_t HashOf(const void* data, DType dtype, int64_t count);

}  // namespace toy
}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_TOYS_TOY_MODEL_H_
