// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/bench/support/compared_runs.h"

#include <fmt/format.h>

#include "chunk/base/ids.h"
#include "chunk/param_spec.h"
#include "offload/nvme/nvme_option.h"

namespace castor {
namespace {

std::vector<ParamSpec> SpecsOf(const ComparedRun& config) {
  std::vector<ParamSpec> specs;
  const gpt::GptParams params(config.model);
  for (const gpt::GptParam& param : params.all()) {
    specs.push_back({param.name, param.shape, config.dtype, true});
  }
  return specs;
}

}  // namespace

std::string ComparedRun::Name() const {
  return fmt::format("{}x{} {}", model.layers, model.embd, DTypeName(dtype));
}

std::vector<ComparedRun> ComparedRuns() {
  const gpt::GptConfig models[] = {
      {.vocab = 256, .context = 256, .layers = 8, .heads = 8, .embd = 512},
      {.vocab = 256, .context = 256, .layers = 14, .heads = 8, .embd = 384},
      {.vocab = 256, .context = 256, .layers = 5, .heads = 8, .embd = 640}};
  std::vector<ComparedRun> configs;
  for (const gpt::GptConfig& model : models) {
    for (int room = 0; room < 4; ++room) {
      for (const Bytes chunk : {MiB(7), MiB(14)}) {
        for (int variant = 0; variant < 2; ++variant) {
          ComparedRun config;
          const auto n = static_cast<int>(configs.size());
          config.model = model;
          config.dtype = n % 3 == 2 ? DType::kBF16 : DType::kF32;
          config.chunk = chunk;
          config.ranks = variant + 1;
          config.stage = variant == 0 || room % 2 == 0 ? 3 : 2;
          config.policy =
              n / 2 % 2 == 0 ? PlanPolicy::kAuto : PlanPolicy::kPlanned;
          config.trainer =
              n / 4 % 2 == 0 ? SimTrainer::kStream : SimTrainer::kThread;
          config.micro_batches = n % 5 == 4 ? 2 : 1;
          config.nvme = room == 3;
          // Most, some and little of the model on the device.
          const Bytes rooms[] = {MiB(224), MiB(128), MiB(64), MiB(64)};
          config.device = rooms[room];
          if (config.chunk == MiB(14)) config.device += MiB(64);
          config.host = config.nvme ? MiB(256) : GiB(1);
          configs.push_back(config);
        }
      }
    }
  }
  return configs;
}

TwinTraining TrainingOf(const ComparedRun& config, const TierModel& machine,
                        const TwinPlace& place) {
  TwinTraining training;
  training.params = SpecsOf(config);
  training.options.stage = config.stage;
  training.options.chunk_size = config.chunk;
  training.options.policy = config.policy;
  training.options.device_budget = config.device;
  training.options.host_budget = config.host;
  training.options.log = place.log;
  if (config.nvme) training.options.nvme = {{place.nvme, GiB(2)}};
  training.machine = machine;
  // The host's memory stands for it.
  training.device_memory =
      LinkModel{machine.memory->bytes_per_second / place.slower, 0};
  training.clock = TwinClock::kMachine;
  training.world = config.ranks;
  training.steps = place.steps;
  training.micro_batches = config.micro_batches;
  training.trainer = config.trainer;
  // Embeddings, layers, and the rest, each for three nanoseconds an element on
  // its way forward and six on its way back, and half a millisecond besides.
  const gpt::GptParams params(config.model);
  training.units.push_back(
      {params.token_embedding(), params.position_embedding()});
  for (int layer = 0; layer < config.model.layers; ++layer) {
    std::vector<ParamId>& unit = training.units.emplace_back();
    for (int p = 0; p < gpt::kBlockParams; ++p) {
      unit.push_back(params.block(layer, p));
    }
  }
  training.units.push_back({params.final_ln_weight(), params.final_ln_bias()});
  std::vector<int64_t> forward_ns;
  for (const std::vector<ParamId>& unit : training.units) {
    forward_ns.push_back(500'000);
    for (const ParamId id : unit) {
      forward_ns.back() += 3 * params.param(id).elements();
    }
    // What a unit touches is declared: its parameters, and their gradients.
    training.seal.held.push_back({unit, unit});
  }
  training.compute_ns = [forward_ns](size_t unit, bool backward) {
    return forward_ns[unit] * (backward ? 2 : 1);
  };
  return training;
}

}  // namespace castor
