// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// How the C ABI learns what a program's step holds at once: a dry step, and
// slots that grow.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/c_api/castor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/c_api/c_engine.h"

namespace castor {
namespace {

using testing::HasSubstr;

constexpr int kParams = 24;

// Chunks of two parameters, budgets as given.
std::string Config(const char* device, int stage) {
  return R"({"chunk": {"bytes": "2KiB"}, "prefetch": 0, "stage": )" +
         std::to_string(stage) + R"(, "device_budget_bytes": ")" + device +
         R"(", "host_budget_bytes": "1MiB"})";
}

// One step of a program that holds `together` parameters at a time on its way
// forward, and one on its way back.
int32_t Step(castor_engine* engine, int together, castor_step* step = nullptr) {
  int32_t code = castor_engine_begin_micro_batch(engine, 1);
  for (int32_t p = 0; code == CASTOR_OK && p < kParams; p += together) {
    std::vector<int32_t> params;
    for (int32_t i = p; i < std::min(p + together, kParams); ++i) {
      params.push_back(i);
    }
    std::vector<const void*> data(params.size());
    castor_param_lease* lease = nullptr;
    code = castor_engine_acquire(engine, params.data(), params.size(),
                                 data.data(), &lease);
    if (code == CASTOR_OK) code = castor_param_lease_release(lease);
  }
  for (int32_t p = kParams; code == CASTOR_OK && p-- > 0;) {
    const void* weight = nullptr;
    castor_param_lease* lease = nullptr;
    code = castor_engine_acquire(engine, &p, 1, &weight, &lease);
    if (code != CASTOR_OK) break;
    void* grad = nullptr;
    code = castor_engine_grad(engine, p, &grad);
    if (code == CASTOR_OK) {
      for (int64_t i = 0; i < CEngine::kElements; ++i) {
        static_cast<float*>(grad)[i] +=
            static_cast<const float*>(weight)[i] / 16 + 1;
      }
      code = castor_engine_grad_ready(engine, p);
    }
    EXPECT_GIVES(CASTOR_OK, castor_param_lease_release(lease));
  }
  return code == CASTOR_OK ? castor_engine_step(engine, 0.1, step) : code;
}

castor_engine_stats StatsOf(const CEngine& engine) {
  castor_engine_stats stats = CASTOR_INIT(castor_engine_stats);
  EXPECT_GIVES(CASTOR_OK, castor_engine_get_stats(engine.get(), &stats));
  return stats;
}

uint64_t DigestOf(const CEngine& engine) {
  uint64_t digest = 0;
  EXPECT_GIVES(CASTOR_OK, castor_engine_weight_digest(engine.get(), &digest));
  return digest;
}

uint64_t ResidentDigest(int steps) {
  const CWorld world(1);
  const CEngine engine(world, 0, kParams, Config("1MiB", 3).c_str());
  EXPECT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  for (int i = 0; i < steps; ++i) {
    EXPECT_GIVES(CASTOR_OK, Step(engine.get(), 2));
  }
  return DigestOf(engine);
}

TEST(WorkingSetTest, ADryStepSaysWhatIsHeldAtOnce) {
  const CWorld world(1);
  const CEngine engine(world, 0, kParams, Config("20KiB", 3).c_str());
  ASSERT_GIVES(CASTOR_OK, castor_engine_begin_dry_step(engine.get()));
  EXPECT_GIVES(CASTOR_FAILED_PRECONDITION,
               castor_engine_begin_dry_step(engine.get()));
  EXPECT_GIVES(CASTOR_FAILED_PRECONDITION,
               castor_engine_seal(engine.get(), nullptr));
  castor_step step = CASTOR_INIT(castor_step);
  ASSERT_GIVES(CASTOR_OK, Step(engine.get(), 8, &step));
  EXPECT_EQ(step.applied, 0);
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  for (int i = 0; i < 3; ++i) {
    ASSERT_GIVES(CASTOR_OK, Step(engine.get(), 8));
  }
  EXPECT_EQ(StatsOf(engine).grown_slots, 0);
  EXPECT_EQ(DigestOf(engine), ResidentDigest(3));
  EXPECT_GIVES(CASTOR_FAILED_PRECONDITION,
               castor_engine_begin_dry_step(engine.get()));
}

TEST(WorkingSetTest, WhatNobodySaidIsRefused) {
  const CWorld world(1);
  const CEngine engine(world, 0, kParams, Config("20KiB", 3).c_str());
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  EXPECT_GIVES(CASTOR_INFEASIBLE, Step(engine.get(), kParams));
  EXPECT_THAT(castor_last_error(), HasSubstr("declare"));
}

TEST(WorkingSetTest, SlotsGrowWithinTheBudgetUntilAllIsPlacedAnew) {
  const CWorld world(1);
  const CEngine engine(world, 0, kParams, Config("36KiB", 3).c_str());
  castor_seal_options options = CASTOR_INIT(castor_seal_options);
  options.grow = 1;
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), &options));
  castor_param_info info = CASTOR_INIT(castor_param_info);
  ASSERT_GIVES(CASTOR_OK, castor_engine_get_param(engine.get(), 0, &info));
  EXPECT_EQ(info.homes[CASTOR_OPTIMIZER_STATE], CASTOR_HOST);
  ASSERT_GIVES(CASTOR_OK, Step(engine.get(), 12));
  EXPECT_GE(StatsOf(engine).grown_slots, 1);
  EXPECT_LE(StatsOf(engine).device_peak_bytes, 36 << 10);

  castor_reseal_options reseal = CASTOR_INIT(castor_reseal_options);
  reseal.device_budget_bytes = 48 << 10;
  reseal.seal = &options;
  ASSERT_GIVES(CASTOR_OK, castor_engine_reseal(engine.get(), &reseal));
  for (int i = 0; i < 2; ++i) {
    ASSERT_GIVES(CASTOR_OK, Step(engine.get(), 12));
  }
  EXPECT_EQ(StatsOf(engine).grown_slots, 0) << "the last step said it";
  EXPECT_EQ(DigestOf(engine), ResidentDigest(3));

  // All at once is more than the budget has.
  reseal.device_budget_bytes = 36 << 10;
  ASSERT_GIVES(CASTOR_OK, castor_engine_reseal(engine.get(), &reseal));
  EXPECT_GIVES(CASTOR_INFEASIBLE, Step(engine.get(), kParams));
  EXPECT_THAT(castor_last_error(), HasSubstr("raise the device budget"));
  // The number is enough.
  ASSERT_EQ(castor_last_raises(nullptr, 5), 1u);
  castor_raise raise = {};
  ASSERT_EQ(castor_last_raises(&raise, 1), 1u);
  EXPECT_EQ(raise.host, 0);
  EXPECT_EQ(raise.nvme, 0);
  ASSERT_GIVES(CASTOR_OK, castor_engine_abandon(engine.get()));
  reseal.device_budget_bytes += raise.device;
  ASSERT_GIVES(CASTOR_OK, castor_engine_reseal(engine.get(), &reseal));
  EXPECT_GIVES(CASTOR_OK, Step(engine.get(), kParams));
  // A failure that names none has none.
  EXPECT_GIVES(CASTOR_INVALID_ARGUMENT, castor_engine_reseal(nullptr, &reseal));
  EXPECT_EQ(castor_last_raises(&raise, 1), 0u);
}

}  // namespace
}  // namespace castor
