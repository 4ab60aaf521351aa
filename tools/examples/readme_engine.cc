// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The engine in one page: a chain of linear layers learns to map one vector to
// another, with a device budget of an eighth of its states. The README shows
// the marked regions; a test keeps them the same, and another runs this.
//
//   readme_engine DIR    DIR: a folder on a drive, for what memory does not
//                        hold

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/param_spec.h"
#include "collectives/in_process_communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "offload/lane.h"
#include "offload/lanes/executor.h"

namespace castor {
namespace {

constexpr size_t kWidth = 256;
constexpr size_t kLayers = 16;
constexpr int kSteps = 100;

// Small values that depend on the element only, whoever asks for them.
void InitialValues(int64_t begin, int64_t end, float* out) {
  for (int64_t i = begin; i < end; ++i) {
    *out++ = 0.002f * std::sin(static_cast<float>(i));
  }
}

// One vector in, one out, and what backward needs from forward. Each layer adds
// weight * input to its input; the last output is to become a vector of ones.
class Chain {
 public:
  static std::vector<ParamSpec> Params() {
    std::vector<ParamSpec> params;
    for (size_t i = 0; i < kLayers; ++i) {
      params.push_back({"layer" + std::to_string(i), {kWidth, kWidth}});
    }
    return params;
  }

  Chain() : inputs_(kLayers + 1, std::vector<float>(kWidth)), delta_(kWidth) {
    for (size_t i = 0; i < kWidth; ++i) {
      inputs_[0][i] = std::cos(static_cast<float>(i));
    }
  }

  Status Forward(size_t layer, const float* weight) {
    const std::vector<float>& in = inputs_[layer];
    for (size_t row = 0; row < kWidth; ++row) {
      float sum = in[row];
      for (size_t col = 0; col < kWidth; ++col) {
        sum += weight[row * kWidth + col] * in[col];
      }
      inputs_[layer + 1][row] = sum;
    }
    if (layer + 1 == kLayers) Compare();
    return OkStatus();
  }

  Status Backward(size_t layer, const float* weight, void* weight_grad) {
    float* const grad = static_cast<float*>(weight_grad);
    const std::vector<float>& in = inputs_[layer];
    std::vector<float> before = delta_;
    for (size_t row = 0; row < kWidth; ++row) {
      for (size_t col = 0; col < kWidth; ++col) {
        grad[row * kWidth + col] += delta_[row] * in[col];
        before[col] += weight[row * kWidth + col] * delta_[row];
      }
    }
    delta_ = std::move(before);
    return OkStatus();
  }

  // Of the last forward pass: half the mean squared distance.
  double loss() const { return loss_; }

 private:
  void Compare() {
    loss_ = 0;
    for (size_t i = 0; i < kWidth; ++i) {
      const float distance = inputs_.back()[i] - 1;
      loss_ += 0.5 * distance * distance / kWidth;
      delta_[i] = distance / kWidth;
    }
  }

  std::vector<std::vector<float>> inputs_;  // of each layer, then the output
  std::vector<float> delta_;  // of the loss, by the output of the layer at hand
  double loss_ = 0;
};

void PrintPeaks(const EngineStats& stats) {
  for (Tier tier : kAllTiers) {
    std::printf(
        "%-6s  at most %8lld bytes\n", std::string(TierName(tier)).c_str(),
        static_cast<long long>(stats.tiers[TierIndex(tier)].peak.count()));
  }
}

// [readme forward]
Status Forward(ZeroEngine& engine, std::span<const ParamId> layers,
               Chain& chain, Lane& lane) {
  for (size_t i = 0; i < layers.size(); ++i) {
    CASTOR_ASSIGN_OR_RETURN(ParamLease weight,
                            engine.Acquire(layers.subspan(i, 1), lane));
    lane.Run([&] { return chain.Forward(i, weight.f32(0)); });
  }
  return OkStatus();
}
// [end]

// [readme step]
Status TrainStep(ZeroEngine& engine, std::span<const ParamId> layers,
                 Chain& chain, Lane& lane) {
  CASTOR_RETURN_IF_ERROR(engine.BeginMicroBatch(/*last=*/true));
  CASTOR_RETURN_IF_ERROR(Forward(engine, layers, chain, lane));
  for (size_t i = layers.size(); i-- > 0;) {
    CASTOR_ASSIGN_OR_RETURN(ParamLease weight,
                            engine.Acquire(layers.subspan(i, 1), lane));
    CASTOR_ASSIGN_OR_RETURN(void* const grad, engine.Grad(layers[i], lane));
    lane.Run([&] { return chain.Backward(i, weight.f32(0), grad); });
    CASTOR_RETURN_IF_ERROR(engine.GradReady(layers[i], lane));
  }
  return engine.Step(/*lr=*/1e-3).status();
}
// [end]

Status Train(const std::filesystem::path& drive) {
  // Background work of all ranks of the process; of one rank here.
  ThreadPool pool(2);
  const auto ranks = MakeInProcessWorld({.world = 1, .executor = &pool});
  // [readme setup]
  ZeroOptions options;
  options.device_budget = MiB(2);  // hard, everything counted
  options.host_budget = MiB(4);
  options.nvme = {{drive, {}}};  // the rest
  options.chunk_size = KiB(256);
  options.executor = &pool;
  CASTOR_ASSIGN_OR_RETURN(const std::unique_ptr<ZeroEngine> engine,
                          ZeroEngine::Create(options, ranks[0].get()));
  std::vector<ParamId> layers;
  for (const ParamSpec& spec : Chain::Params()) {
    CASTOR_ASSIGN_OR_RETURN(const ParamId id,
                            engine->Register(spec, InitialValues));
    layers.push_back(id);
  }
  CASTOR_RETURN_IF_ERROR(engine->Seal({}));  // allocates all there will be
  // [end]

  ThreadLane lane("compute");
  Chain chain;
  for (int step = 1; step <= kSteps; ++step) {
    CASTOR_RETURN_IF_ERROR(TrainStep(*engine, layers, chain, lane));
    if (step == 1 || step % 25 == 0) {
      std::printf("step %3d  loss %.6f\n", step, chain.loss());
    }
  }
  PrintPeaks(engine->stats());
  return engine->Close();
}

}  // namespace
}  // namespace castor

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: readme_engine DIR\n");
    return 2;
  }
  const castor::Status status = castor::Train(argv[1]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "readme_engine: %s\n", status.ToString().c_str());
  return castor::ExitCode(status.code());
}
