// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/reference_trainer.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "chunk/base/clock.h"
#include "chunk/base/ids.h"
#include "collectives/lr_schedule.h"
#include "tools/examples/gpt/gemm.h"
#include "tools/examples/gpt/gpt_params.h"
#include "tools/examples/gpt/model.h"
#include "tools/examples/gpt/plain_params.h"
#include "tools/examples/gpt/reference_optimizer.h"
#include "tools/examples/gpt/step_board.h"

namespace castor::gpt {
namespace {

uint64_t Digest(PlainParams<float>& params) {
  uint64_t digest = 0;
  for (int32_t i = 0; i < params.size(); ++i) {
    digest += WeightDigest(ParamId(i), params.master(ParamId(i)));
  }
  return digest;
}

// By ParamId.
std::vector<bool> WithoutDecay(const TrainOptions& options) {
  std::vector<bool> without;
  if (options.engine.groups.empty()) return without;
  const GptParams params(options.model);
  for (const GptParam& param : params.all()) {
    without.push_back(!param.is_matrix());
  }
  return without;
}

}  // namespace

Result<TrainOutcome> TrainReference(const TrainOptions& options,
                                    const TextData& data,
                                    const TrainHooks& hooks) {
  CASTOR_RETURN_IF_ERROR(Validate(options));
  if (options.ranks != 1) {
    return InvalidArgument(
        fmt::format("a reference run has one rank, not {}; leave --ranks away",
                    options.ranks));
  }
  if (options.dtype == DType::kF16) {
    return InvalidArgument(
        "a reference run has no F16: use --dtype f32 or bf16");
  }
  CASTOR_RETURN_IF_ERROR(
      CheckMemory(TrainerBytes(options, /*reference=*/true)));
  CASTOR_RETURN_IF_ERROR(LoadBlas());
  const int seq = options.model.context;
  std::vector<int> tokens(static_cast<size_t>(options.batch) *
                          static_cast<size_t>(seq));
  std::vector<int> targets(tokens.size());
  PlainParams<float> params(
      options.model,
      options.dtype == DType::kBF16 ? Precision::kBf16 : Precision::kFull,
      options.seed);
  const OptimizerOptions& numbers = options.engine.optimizer;
  ReferenceOptimizer optimizer({.beta1 = numbers.beta1,
                                .beta2 = numbers.beta2,
                                .eps = numbers.eps,
                                .weight_decay = numbers.weight_decay,
                                .no_decay = WithoutDecay(options),
                                .clip_norm = options.engine.clip_norm});
  Gpt<float> model(options.model, options.batch);
  const SteadyClock clock;
  StepBoard board(options, hooks, &clock);
  TrainOutcome outcome;
  const int64_t begin_ns = clock.NowNs();
  for (int64_t step = 1; board.Begin(step); ++step) {
    RankStep result;
    for (int micro = 0; micro < options.accumulate; ++micro) {
      data.Sample({options.seed, step, 0, micro}, options.batch, seq, tokens,
                  targets);
      params.BeginMicroBatch(micro == 0);
      CASTOR_ASSIGN_OR_RETURN(const double loss,
                              model.Forward(params, tokens, targets));
      CASTOR_RETURN_IF_ERROR(model.Backward(params));
      params.EndMicroBatch();
      result.loss += loss / options.accumulate;
    }
    const ReferenceOptimizer::Outcome stepped = optimizer.Step(
        params, LearningRateAt(ScheduleOf(options), step), options.accumulate);
    result.grad_norm = stepped.grad_norm;
    result.applied = stepped.applied;
    board.Post(0, step, result);
    if (step == options.digest_step) outcome.digests[step] = Digest(params);
  }
  outcome.seconds = static_cast<double>(clock.NowNs() - begin_ns) * 1e-9;
  outcome.final_digest = Digest(params);
  outcome.stopped_early = board.stopped_early();
  outcome.steps_without_loss = board.steps_without_loss();
  outcome.steps = board.TakeReports();
  return outcome;
}

uint64_t WeightDigest(ParamId param, std::span<const float> values) {
  constexpr size_t kBlock = 64;
  const uint64_t key = static_cast<uint64_t>(param.value()) << 40;
  uint64_t digest = 0;
  for (size_t begin = 0; begin < values.size(); begin += kBlock) {
    const std::span<const float> block =
        values.subspan(begin, std::min(kBlock, values.size() - begin));
    digest += XXH3_64bits_withSeed(block.data(), block.size_bytes(),
                                   key ^ (begin / kBlock));
  }
  return digest;
}

}  // namespace castor::gpt
