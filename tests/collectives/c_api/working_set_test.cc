// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// How the C ABI learns what a program's step holds at once: a dry step, slots
// that grow, leases that end when they end.

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
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
  return R"({"chunk": {"bytes": "2KiB"}, "prefetch_depth": 0, "stage": )" +
         std::to_string(stage) + R"(, "device_budget_bytes": ")" + device +
         R"(", "host_budget_bytes": "1MiB"})";
}

// What a rank's program does with leases that it need not hold any more.
class Holder {
 public:
  Holder(int32_t rank, double keeps) : chance_(rank + 1), keeps_(keeps) {}
  ~Holder() { ReleaseAll(); }
  void Done(castor_param_lease* lease) {
    std::erase_if(held_, [&](castor_param_lease* one) {
      if (!std::bernoulli_distribution(0.3)(chance_)) return false;
      EXPECT_GIVES(CASTOR_OK, castor_param_lease_release(one));
      return true;
    });
    if (std::bernoulli_distribution(keeps_)(chance_)) {
      held_.push_back(lease);
    } else {
      EXPECT_GIVES(CASTOR_OK, castor_param_lease_release(lease));
    }
  }
  void ReleaseAll() {
    for (castor_param_lease* one : held_) {
      EXPECT_GIVES(CASTOR_OK, castor_param_lease_release(one));
    }
    held_.clear();
  }

 private:
  std::mt19937 chance_;
  const double keeps_;
  std::vector<castor_param_lease*> held_;
};

// One step of a program that holds `together` parameters at a time on its way
// forward, and one on its way back.
int32_t Step(castor_engine* engine, int together, Holder& holder,
             castor_step* step = nullptr) {
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
    if (code == CASTOR_OK) holder.Done(lease);
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
    holder.Done(lease);
  }
  return code == CASTOR_OK ? castor_engine_step(engine, 0.1, step) : code;
}

castor_engine_stats StatsOf(const CEngine& engine) {
  castor_engine_stats stats = {};
  stats.struct_size = sizeof(stats);
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
  Holder holder(0, 0);
  for (int i = 0; i < steps; ++i) {
    EXPECT_GIVES(CASTOR_OK, Step(engine.get(), 2, holder));
  }
  return DigestOf(engine);
}

TEST(WorkingSetTest, ADryStepSaysWhatIsHeldAtOnce) {
  const CWorld world(1);
  const CEngine engine(world, 0, kParams, Config("20KiB", 3).c_str());
  Holder holder(0, 0);
  ASSERT_GIVES(CASTOR_OK, castor_engine_begin_dry_step(engine.get()));
  EXPECT_GIVES(CASTOR_FAILED_PRECONDITION,
               castor_engine_begin_dry_step(engine.get()));
  EXPECT_GIVES(CASTOR_FAILED_PRECONDITION,
               castor_engine_seal(engine.get(), nullptr));
  castor_step step = {};
  step.struct_size = sizeof(step);
  ASSERT_GIVES(CASTOR_OK, Step(engine.get(), 8, holder, &step));
  EXPECT_EQ(step.applied, 0);
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  for (int i = 0; i < 3; ++i) {
    ASSERT_GIVES(CASTOR_OK, Step(engine.get(), 8, holder));
  }
  EXPECT_EQ(StatsOf(engine).grown_slots, 0);
  EXPECT_EQ(DigestOf(engine), ResidentDigest(3));
  EXPECT_GIVES(CASTOR_FAILED_PRECONDITION,
               castor_engine_begin_dry_step(engine.get()));
}

TEST(WorkingSetTest, WhatNobodySaidIsRefused) {
  const CWorld world(1);
  const CEngine engine(world, 0, kParams, Config("20KiB", 3).c_str());
  Holder holder(0, 0);
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  EXPECT_GIVES(CASTOR_INFEASIBLE, Step(engine.get(), kParams, holder));
  EXPECT_THAT(castor_last_error(), HasSubstr("declare"));
}

TEST(WorkingSetTest, SlotsGrowWithinTheBudgetUntilAllIsPlacedAnew) {
  const CWorld world(1);
  const CEngine engine(world, 0, kParams, Config("36KiB", 3).c_str());
  Holder holder(0, 0);
  castor_seal_options options = {};
  options.struct_size = sizeof(options);
  options.grow = 1;
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), &options));
  castor_param_info info = {};
  info.struct_size = sizeof(info);
  ASSERT_GIVES(CASTOR_OK, castor_engine_get_param(engine.get(), 0, &info));
  EXPECT_EQ(info.homes[CASTOR_EXP_AVG], CASTOR_HOST);
  ASSERT_GIVES(CASTOR_OK, Step(engine.get(), 12, holder));
  EXPECT_GE(StatsOf(engine).grown_slots, 1);
  EXPECT_LE(StatsOf(engine).device_peak_bytes, 36 << 10);

  castor_reseal_options reseal = {};
  reseal.struct_size = sizeof(reseal);
  reseal.device_budget_bytes = 48 << 10;
  reseal.seal = &options;
  ASSERT_GIVES(CASTOR_OK, castor_engine_reseal(engine.get(), &reseal));
  for (int i = 0; i < 2; ++i) {
    ASSERT_GIVES(CASTOR_OK, Step(engine.get(), 12, holder));
  }
  EXPECT_EQ(StatsOf(engine).grown_slots, 0) << "the last step said it";
  EXPECT_EQ(DigestOf(engine), ResidentDigest(3));

  // All at once is more than the budget has.
  reseal.device_budget_bytes = 36 << 10;
  ASSERT_GIVES(CASTOR_OK, castor_engine_reseal(engine.get(), &reseal));
  EXPECT_GIVES(CASTOR_INFEASIBLE, Step(engine.get(), kParams, holder));
  EXPECT_THAT(castor_last_error(), HasSubstr("raise the device budget"));
}

TEST(WorkingSetTest, LeasesMayEndAtRandomOnEveryRank) {
  constexpr int kRanks = 3;
  uint64_t digests[2][kRanks] = {};
  int64_t extra = 0;
  for (const int keeps : {0, 1}) {
    const CWorld world(kRanks);
    std::vector<std::thread> ranks;
    std::vector<int64_t> extra_slots(kRanks);
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        const CEngine engine(world, rank, kParams, Config("160KiB", 3).c_str());
        Holder holder(rank, keeps * 0.4);
        castor_seal_options options = {};
        options.struct_size = sizeof(options);
        options.grow = 1;
        ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), &options));
        for (int i = 0; i < 6; ++i) {
          ASSERT_GIVES(CASTOR_OK, Step(engine.get(), 4, holder));
        }
        digests[keeps][rank] = DigestOf(engine);
        extra_slots[static_cast<size_t>(rank)] = StatsOf(engine).extra_slots;
        EXPECT_EQ(StatsOf(engine).divergences, 0);
        holder.ReleaseAll();
        EXPECT_GIVES(CASTOR_OK, castor_engine_close(engine.get()));
      });
    }
    for (std::thread& rank : ranks) rank.join();
    for (const int64_t slots : extra_slots) extra += keeps * slots;
  }
  EXPECT_GT(extra, 0) << "some outlived their use";
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(digests[1][rank], digests[0][0]);
  }
}

}  // namespace
}  // namespace castor
