// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/support/toy_trainer.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <thread>

#include "collectives/in_process_communicator.h"
#include "offload/kernels/adamw.h"
#include "offload/kernels/convert.h"
#include "offload/kernels/exact_sum.h"

namespace castor {
namespace {

uint64_t Hash(uint64_t a, uint64_t b) {
  uint64_t h = a * 0x9e3779b97f4a7c15ull ^ (b + 0x7f4a7c15ull);
  h ^= h >> 31;
  h *= 0xbf58476d1ce4e5b9ull;
  return h ^ (h >> 29);
}

// In [-1, 1).
float Noise(uint64_t a, uint64_t b, uint64_t c) {
  return static_cast<float>(static_cast<int64_t>(Hash(Hash(a, b), c) >> 40)) /
             8388608.0f -
         1.0f;
}

float InitialValue(size_t param, int64_t element) {
  return Noise(param, static_cast<uint64_t>(element), 1);
}

// A gradient that depends on the weights, so that a wrong weight spreads.
float Gradient(float weight, size_t param, int64_t element, int rank, int step,
               int micro_batch) {
  const uint64_t where =
      Hash(static_cast<uint64_t>(rank) << 32 | static_cast<uint64_t>(step),
           static_cast<uint64_t>(micro_batch));
  return 0.25f * weight +
         Noise(param, static_cast<uint64_t>(element), where) * 0.5f;
}

int64_t SizeOf(const ParamSpec& spec) {
  return CountElements(spec.shape, spec.dtype)->count();
}

bool Uses(const ToyModel& model, const ToyRun& run, size_t param) {
  return model.params[param].trainable &&
         std::find(run.unused.begin(), run.unused.end(),
                   static_cast<int>(param)) == run.unused.end();
}

float Widen(const void* data, DType dtype, int64_t i) {
  return dtype == DType::kF32
             ? static_cast<const float*>(data)[i]
             : BFloat16ToFloat(static_cast<const uint16_t*>(data)[i]);
}

Status TrainStep(ZeroEngine& engine, Lane& lane, const ToyModel& model,
                 const ToyRun& run, const std::vector<ParamId>& ids, int step) {
  for (int a = 0; a < run.micro_batches; ++a) {
    CASTOR_RETURN_IF_ERROR(engine.BeginMicroBatch(a + 1 == run.micro_batches));
    for (size_t p = 0; p < ids.size(); ++p) {
      // Forward holds two parameters at a time.
      const ParamId pair[] = {ids[p], ids[std::min(p + 1, ids.size() - 1)]};
      CASTOR_ASSIGN_OR_RETURN(ParamLease lease, engine.Acquire(pair, lane));
    }
    for (size_t p = ids.size(); p-- > 0;) {
      if (!Uses(model, run, p)) continue;
      const ParamSpec& spec = model.params[p];
      CASTOR_ASSIGN_OR_RETURN(ParamLease lease,
                              engine.Acquire(std::span(&ids[p], 1), lane));
      CASTOR_ASSIGN_OR_RETURN(void* const grad, engine.Grad(ids[p], lane));
      lane.Run([&] {
        for (int64_t i = 0; i < SizeOf(spec); ++i) {
          const float g = Gradient(Widen(lease.data(0), spec.dtype, i), p, i,
                                   engine.rank(), step, a);
          if (spec.dtype == DType::kF32) {
            static_cast<float*>(grad)[i] += g;
          } else {
            uint16_t* at = static_cast<uint16_t*>(grad) + i;
            *at = FloatToBFloat16(BFloat16ToFloat(*at) + g);
          }
        }
        return OkStatus();
      });
      CASTOR_RETURN_IF_ERROR(engine.GradReady(ids[p], lane));
    }
  }
  return OkStatus();
}

Status Train(const ToyModel& model, const ToyRun& run,
             const ZeroOptions& options, Communicator* communicator,
             ToyResult& result) {
  CASTOR_ASSIGN_OR_RETURN(std::unique_ptr<ZeroEngine> engine,
                          ZeroEngine::Create(options, communicator));
  ThreadLane lane("toy compute");
  std::vector<ParamId> ids;
  for (size_t p = 0; p < model.params.size(); ++p) {
    CASTOR_ASSIGN_OR_RETURN(
        const ParamId id,
        engine->Register(model.params[p],
                         [p](int64_t begin, int64_t end, float* out) {
                           for (int64_t i = begin; i < end; ++i) {
                             out[i - begin] = InitialValue(p, i);
                           }
                         }));
    ids.push_back(id);
  }
  SealOptions declared;
  for (size_t p = 0; p < ids.size(); ++p) {
    declared.held.push_back(
        {{ids[p], ids[std::min(p + 1, ids.size() - 1)]}, {}});
  }
  for (size_t p = ids.size(); p-- > 0;) {
    if (Uses(model, run, p)) declared.held.push_back({{ids[p]}, {ids[p]}});
  }
  CASTOR_RETURN_IF_ERROR(engine->Seal(declared));
  for (int step = 0; step < run.steps; ++step) {
    CASTOR_RETURN_IF_ERROR(TrainStep(*engine, lane, model, run, ids, step));
    CASTOR_ASSIGN_OR_RETURN(const StepResult stepped, engine->Step(run.lr));
    result.norms.push_back(stepped.grad_norm);
    if (run.after_step && communicator->rank() == 0) {
      run.after_step(*engine, step);
    }
  }
  for (size_t p = 0; p < ids.size(); ++p) {
    std::vector<float> values(static_cast<size_t>(SizeOf(model.params[p])));
    CASTOR_RETURN_IF_ERROR(engine->ReadParam(ids[p], values));
    result.weights.push_back(std::move(values));
  }
  CASTOR_ASSIGN_OR_RETURN(result.digest, engine->WeightDigest());
  result.layout = engine->layout();
  CASTOR_RETURN_IF_ERROR(engine->Close());
  result.stats = engine->stats();
  return OkStatus();
}

}  // namespace

ToyModel MakeToyModel(uint64_t seed, int count, int64_t largest, DType dtype) {
  std::mt19937_64 random(seed);
  ToyModel model;
  for (int p = 0; p < count; ++p) {
    ParamSpec spec;
    spec.name = "p" + std::to_string(p);
    spec.dtype = dtype;
    const int64_t size =
        1 + static_cast<int64_t>(random() % static_cast<uint64_t>(largest));
    spec.shape = {size};
    if (p == 1) spec.shape = {};
    if (p == 2) spec.shape = {4, 0};
    if (p == 3) spec.shape = {largest};
    model.params.push_back(std::move(spec));
  }
  return model;
}

ToyResult TrainToyRank(const ToyModel& model, const ToyRun& run,
                       const ZeroOptions& options, Communicator* communicator) {
  ToyResult result;
  result.status = Train(model, run, options, communicator, result);
  if (!result.status.ok()) communicator->Abort(result.status);
  return result;
}

ToyResult TrainToy(const ToyModel& model, const ToyRun& run, int world,
                   const ZeroOptions& options) {
  InProcessOptions in_process;
  in_process.world = world;
  in_process.executor = options.executor;
  std::vector<std::unique_ptr<Communicator>> communicators =
      MakeInProcessWorld(in_process);
  std::vector<ToyResult> results(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (size_t r = 0; r < results.size(); ++r) {
    threads.emplace_back([&, r] {
      results[r] = TrainToyRank(model, run, options, communicators[r].get());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const ToyResult& result : results) {
    if (!result.status.ok()) {
      results[0].status = result.status;
      break;
    }
  }
  return std::move(results[0]);
}

ToyResult TrainToyReference(const ToyModel& model, const ToyRun& run, int world,
                            double clip_norm, const AdamWOptions& optimizer) {
  ToyResult result;
  std::vector<std::vector<float>> exp_avg;
  std::vector<std::vector<float>> exp_avg_sq;
  for (size_t p = 0; p < model.params.size(); ++p) {
    const size_t size = static_cast<size_t>(SizeOf(model.params[p]));
    std::vector<float> values(size);
    for (size_t i = 0; i < size; ++i) {
      values[i] = InitialValue(p, static_cast<int64_t>(i));
    }
    result.weights.push_back(std::move(values));
    exp_avg.emplace_back(size, 0.0f);
    exp_avg_sq.emplace_back(size, 0.0f);
  }
  const auto round_to = [](DType dtype, float value) {
    return dtype == DType::kF32 ? value
                                : BFloat16ToFloat(FloatToBFloat16(value));
  };
  for (int step = 0; step < run.steps; ++step) {
    std::vector<std::vector<float>> grads;
    ExactSum squares;
    for (size_t p = 0; p < model.params.size(); ++p) {
      const DType dtype = model.params[p].dtype;
      const size_t size = result.weights[p].size();
      std::vector<float> total(size, 0.0f);
      for (size_t i = 0; Uses(model, run, p) && i < size; ++i) {
        const float weight = round_to(dtype, result.weights[p][i]);
        for (int a = 0; a < run.micro_batches; ++a) {
          float sum = 0;
          for (int r = 0; r < world; ++r) {
            const float g = round_to(
                dtype, 0.0f + Gradient(weight, p, static_cast<int64_t>(i), r,
                                       step, a));
            sum = r == 0 ? g : sum + g;
          }
          sum = round_to(dtype, sum);
          total[i] = a == 0 ? sum : round_to(dtype, total[i] + sum);
        }
      }
      AddSquares(total.data(), DType::kF32, static_cast<int64_t>(size),
                 &squares);
      grads.push_back(std::move(total));
    }
    const double average = 1.0 / (static_cast<double>(world) *
                                  static_cast<double>(run.micro_batches));
    double clip = 1;
    double norm = 0;
    if (clip_norm > 0) {
      norm = std::sqrt(squares.Total()) * average;
      clip = std::min(1.0, clip_norm / (norm + 1e-6));
    }
    result.norms.push_back(norm);
    AdamWOptions at = optimizer;
    at.lr = run.lr;
    for (size_t p = 0; p < model.params.size(); ++p) {
      if (!Uses(model, run, p)) continue;
      AdamWBuffers buffers;
      buffers.grad = grads[p].data();
      buffers.param = result.weights[p].data();
      buffers.exp_avg = exp_avg[p].data();
      buffers.exp_avg_sq = exp_avg_sq[p].data();
      AdamWStepScalar(buffers, static_cast<int64_t>(grads[p].size()),
                      ComputeAdamWScalars(at, step + 1),
                      static_cast<float>(clip * average));
    }
  }
  return result;
}

}  // namespace castor
