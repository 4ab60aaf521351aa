// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_ZERO_ENGINE_FIXTURE_H_
#define CASTOR_TESTS_SUPPORT_ZERO_ENGINE_FIXTURE_H_

// What the tests of the ZeRO engine begin with: options for a roomy and for a
// tight machine, comparisons of trainings, and an engine of one rank to be
// driven call by call. Owner thread only.

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/in_process_communicator.h"
#include "collectives/zero_config.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/lanes/executor.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/toys/toy_trainer.h"

namespace castor {

class ZeroEngineTest : public testing::Test {
 protected:
  ZeroOptions Roomy(int stage) {
    ZeroOptions options;
    options.stage = stage;
    options.executor = &pool_;
    options.log = &log_;
    options.chunk_size = KiB(8);
    options.device_budget = MiB(8);
    options.host_budget = MiB(8);
    return options;
  }

  // The device holds little more than the working set, the host part of the
  // rest.
  ZeroOptions Tight(int stage, Bytes device, Bytes host) {
    ZeroOptions options = Roomy(stage);
    options.device_budget = device;
    options.host_budget = host;
    options.nvme = {{nvme_.path(), std::nullopt}};
    return options;
  }

  Log log_{[](LogLevel, std::string_view) {}};
  ThreadPool pool_{2};
  TempDir nvme_;
};

inline void ExpectEqual(const ToyResult& got, const ToyResult& want) {
  ASSERT_THAT(got.status, IsOk());
  ASSERT_EQ(got.weights.size(), want.weights.size());
  for (size_t p = 0; p < want.weights.size(); ++p) {
    ASSERT_EQ(got.weights[p], want.weights[p]) << "parameter " << p;
  }
  ASSERT_EQ(got.norms, want.norms);
  ASSERT_EQ(got.seen.size(), want.seen.size());
  for (size_t i = 0; i < got.seen.size(); ++i) {
    if (got.seen[i] == 0) continue;  // never looked
    ASSERT_EQ(got.seen[i], want.seen[i])
        << "parameter " << i % want.weights.size() << " as seen in step "
        << i / want.weights.size();
  }
}

// What ranks compare at Seal: three budgets, and two words of the parameters,
// of each option, and of four things that no row has.
inline int64_t WordsOfInputs() {
  ZeroOptions options;
  EngineFiles files;
  return 3 +
         2 * (std::ssize(SharedOptions(EngineOptions(&options, &files))) + 5);
}

inline void ExpectWithinBudgets(const ToyResult& result) {
  for (Tier tier : kAllTiers) {
    const TierUse& use = result.stats.tiers[TierIndex(tier)];
    EXPECT_LE(use.peak, use.budget) << TierName(tier);
  }
}

// One rank on the one-rank communicator, driven call by call.
class OneRankEngineTest : public ZeroEngineTest {
 protected:
  OneRankEngineTest() {
    InProcessOptions in_process;
    in_process.executor = &pool_;
    world_ = MakeInProcessWorld(in_process);
  }

  // An engine with `count` fp32 parameters of 1,024 elements, chunks of two.
  void Open(const ZeroOptions& options, int count) {
    Result<std::unique_ptr<ZeroEngine>> made =
        ZeroEngine::Create(options, world_[0].get());
    ASSERT_THAT(made, IsOk());
    engine_ = *std::move(made);
    for (int p = 0; p < count; ++p) {
      Result<ParamId> id = engine_->Register(
          {"p" + std::to_string(p), {1024}, DType::kF32, true},
          [p](int64_t begin, int64_t end, float* out) {
            for (int64_t i = begin; i < end; ++i) {
              out[i - begin] = static_cast<float>(p * 1024 + i);
            }
          });
      ASSERT_THAT(id, IsOk());
      ids_.push_back(*id);
    }
  }

  Result<ParamLease> Acquire(int p) {
    return engine_->Acquire(std::span(&ids_[static_cast<size_t>(p)], 1), lane_);
  }

  void ExpectInitialValues(int p) {
    std::vector<float> values(1024);
    ASSERT_THAT(engine_->ReadParam(ids_[static_cast<size_t>(p)], values),
                IsOk());
    for (int i = 0; i < 1024; ++i) {
      ASSERT_EQ(values[static_cast<size_t>(i)],
                static_cast<float>(p * 1024 + i));
    }
  }

  // Gives every parameter a gradient of ones.
  void Backward(const std::vector<int>& params) {
    for (int p : params) {
      const ParamId id = ids_[static_cast<size_t>(p)];
      Result<void*> grad = engine_->Grad(id, lane_);
      ASSERT_THAT(grad, IsOk());
      lane_.Run([&] {
        for (int i = 0; i < 1024; ++i) static_cast<float*>(*grad)[i] += 1;
        return OkStatus();
      });
      ASSERT_THAT(engine_->GradReady(id, lane_), IsOk());
    }
  }

  std::vector<std::unique_ptr<Communicator>> world_;
  ThreadLane lane_{"compute"};
  std::vector<ParamId> ids_;
  std::unique_ptr<ZeroEngine> engine_;
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_ZERO_ENGINE_FIXTURE_H_
