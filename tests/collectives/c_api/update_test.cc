// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// An optimizer of the program's own, through the C ABI.

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/c_api/castor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/c_api/c_engine.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kConfig[] =
    R"({"chunk": {"bytes": "8KiB"}, "device_budget_bytes": "1MiB",
        "host_budget_bytes": "1MiB",
        "optimizer": {"kind": "custom", "states": [{"name": "momentum_buffer"},
                                                   {"name": "sum"}]}})";

struct Momentum {
  int32_t answer = CASTOR_OK;
  const char* words = nullptr;
  int64_t calls = 0;
  double lr = 0;
};

int32_t UpdateByMomentum(void* context, const castor_update* update) {
  auto* own = static_cast<Momentum*>(context);
  ++own->calls;
  if (own->answer != CASTOR_OK) {
    castor_set_error(own->words);
    return own->answer;
  }
  EXPECT_STREQ(update->grad_dtype, "F32");
  EXPECT_EQ(update->grad_factor, 1);
  EXPECT_EQ(update->on_device, 0);
  for (int64_t r = 0; r < update->run_count; ++r) {
    const castor_update_run& run = update->runs[r];
    own->lr = run.lr;
    EXPECT_EQ(run.states[2], nullptr);
    const auto* grad = static_cast<const float*>(run.grad);
    for (int64_t i = 0; i < run.elements; ++i) {
      run.states[0][i] = 0.5f * run.states[0][i] + grad[i];
      run.states[1][i] += static_cast<float>(run.step);
      run.values[i] -= static_cast<float>(run.lr) * run.states[0][i];
    }
  }
  return CASTOR_OK;
}

int32_t StepWithOnes(const CEngine& engine) {
  EXPECT_GIVES(CASTOR_OK, castor_engine_begin_micro_batch(engine.get(), 1));
  const std::vector<float> ones(CEngine::kElements, 1.0f);
  for (int32_t p = 3; p-- > 0;) {
    EXPECT_GIVES(CASTOR_OK,
                 castor_engine_give_grad(engine.get(), p, ones.data(),
                                         ones.size() * sizeof(float)));
  }
  return castor_engine_step(engine.get(), 0.25, nullptr);
}

std::vector<float> Read(const CEngine& engine, int32_t param, int32_t state) {
  std::vector<float> values(CEngine::kElements, -1);
  EXPECT_GIVES(CASTOR_OK,
               castor_engine_read(engine.get(), param, state, values.data(),
                                  CEngine::kElements));
  return values;
}

TEST(UpdateTest, AProgramsMomentumUpdatesValuesAndStates) {
  const CWorld world(1);
  const CEngine engine(world, 0, 3, kConfig);
  Momentum momentum;
  ASSERT_GIVES(CASTOR_OK, castor_engine_set_update(
                              engine.get(), UpdateByMomentum, &momentum));
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  for (int step = 0; step < 2; ++step) {
    ASSERT_GIVES(CASTOR_OK, StepWithOnes(engine));
  }
  EXPECT_GT(momentum.calls, 0);
  EXPECT_EQ(momentum.lr, 0.25);
  for (int32_t p = 0; p < 3; ++p) {
    const std::vector<float> values = Read(engine, p, CASTOR_PARAM);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], static_cast<float>(i) - 0.25f - 0.375f);
    }
    EXPECT_THAT(Read(engine, p, 3), testing::Each(1.5f));
    EXPECT_THAT(Read(engine, p, 4), testing::Each(3.0f));
  }
}

TEST(UpdateTest, ARefusalComesWithItsWordsAndTrainingGoesOn) {
  const CWorld world(1);
  const CEngine engine(world, 0, 3, kConfig);
  Momentum momentum;
  momentum.answer = CASTOR_FAILED_PRECONDITION;
  momentum.words = "the rate is below zero";
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  ASSERT_GIVES(CASTOR_OK, castor_engine_set_update(
                              engine.get(), UpdateByMomentum, &momentum));
  EXPECT_EQ(StepWithOnes(engine), CASTOR_FAILED_PRECONDITION);
  EXPECT_THAT(castor_last_error(),
              AllOf(HasSubstr("the callback update failed: the rate is below"),
                    HasSubstr("before it changed anything")));
  momentum.answer = CASTOR_OK;
  ASSERT_GIVES(CASTOR_OK, StepWithOnes(engine));
  EXPECT_EQ(Read(engine, 1, CASTOR_PARAM)[5], 4.75f);
}

struct Peek {
  castor_engine* engine = nullptr;
  int32_t answer = CASTOR_OK;
  std::string words;
};

TEST(UpdateTest, ThatCallsTheEngineIsToldSo) {
  const CWorld world(1);
  const CEngine engine(world, 0, 3, kConfig);
  Peek peek;
  peek.engine = engine.get();
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  ASSERT_GIVES(CASTOR_OK,
               castor_engine_set_update(
                   engine.get(),
                   [](void* context, const castor_update*) -> int32_t {
                     auto* own = static_cast<Peek*>(context);
                     own->answer = castor_engine_begin_evaluation(own->engine);
                     own->words = castor_last_error();
                     return CASTOR_OK;
                   },
                   &peek));
  EXPECT_GIVES(CASTOR_OK, StepWithOnes(engine));
  EXPECT_EQ(peek.answer, CASTOR_FAILED_PRECONDITION);
  EXPECT_THAT(peek.words, HasSubstr("the call comes from a callback"));
}

TEST(UpdateTest, IsAskedForBeforeAStep) {
  const CWorld world(1);
  const CEngine engine(world, 0, 3, kConfig);
  EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
               castor_engine_set_update(engine.get(), nullptr, nullptr));
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  EXPECT_EQ(StepWithOnes(engine), CASTOR_FAILED_PRECONDITION);
  EXPECT_THAT(castor_last_error(), HasSubstr("castor_engine_set_update"));
}

}  // namespace
}  // namespace castor
