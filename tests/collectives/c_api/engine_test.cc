// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What the C ABI tells of an engine and lets programs change: parameters and
// their homes, states, numbers of the optimizer, checkpoints, plans.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "chunk/base/units.h"
#include "chunk/text/json_value.h"
#include "collectives/answers/plan_file.h"
#include "collectives/c_api/castor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/record/record_reader.h"
#include "tests/collectives/c_api/c_engine.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/temp_dir.h"
#include "tools/report/statistics/run_statistics.h"

namespace castor {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::Not;

void Train(const CEngine& engine, int steps) {
  int32_t params = 0;
  ASSERT_GIVES(CASTOR_OK, castor_engine_param_count(engine.get(), &params));
  for (int step = 0; step < steps; ++step) {
    ASSERT_GIVES(CASTOR_OK, castor_engine_begin_micro_batch(engine.get(), 1));
    for (int32_t p = params; p-- > 0;) {
      void* grad = nullptr;
      ASSERT_GIVES(CASTOR_OK, castor_engine_grad(engine.get(), p, &grad));
      for (int64_t i = 0; i < CEngine::kElements; ++i) {
        static_cast<float*>(grad)[i] += static_cast<float>(i % 5 - 1);
      }
      ASSERT_GIVES(CASTOR_OK, castor_engine_grad_ready(engine.get(), p));
    }
    ASSERT_GIVES(CASTOR_OK, castor_engine_step(engine.get(), 0.1, nullptr));
  }
}

uint64_t DigestOf(const CEngine& engine) {
  uint64_t digest = 0;
  EXPECT_GIVES(CASTOR_OK, castor_engine_weight_digest(engine.get(), &digest));
  return digest;
}

std::vector<float> Values(const CEngine& engine, int32_t param, int32_t state) {
  std::vector<float> values(CEngine::kElements, -1);
  EXPECT_GIVES(CASTOR_OK,
               castor_engine_read(engine.get(), param, state, values.data(),
                                  CEngine::kElements));
  return values;
}

castor_param_info InfoOf(const CEngine& engine, int32_t param) {
  castor_param_info info = CASTOR_INIT(castor_param_info);
  EXPECT_GIVES(CASTOR_OK, castor_engine_get_param(engine.get(), param, &info));
  return info;
}

TEST(EngineTest, AGradientThatIsGivenIsAsOneThatIsWrittenAndHandedBack) {
  uint64_t digests[2] = {};
  for (const bool given : {false, true}) {
    const CWorld world(1);
    const CEngine engine(world, 0, 3);
    ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
    for (int step = 0; step < 3; ++step) {
      ASSERT_GIVES(CASTOR_OK, castor_engine_begin_micro_batch(engine.get(), 1));
      for (int32_t p = 3; p-- > 0;) {
        std::vector<float> values(CEngine::kElements);
        for (size_t i = 0; i < values.size(); ++i) {
          values[i] = static_cast<float>(static_cast<int>(i % 7) + p - 3);
        }
        const size_t bytes = values.size() * sizeof(float);
        if (given) {
          ASSERT_GIVES(CASTOR_OK, castor_engine_give_grad(
                                      engine.get(), p, values.data(), bytes));
          continue;
        }
        void* grad = nullptr;
        ASSERT_GIVES(CASTOR_OK, castor_engine_grad(engine.get(), p, &grad));
        std::memcpy(grad, values.data(), bytes);
        ASSERT_GIVES(CASTOR_OK, castor_engine_grad_ready(engine.get(), p));
      }
      ASSERT_GIVES(CASTOR_OK, castor_engine_step(engine.get(), 0.1, nullptr));
    }
    digests[given] = DigestOf(engine);
  }
  EXPECT_EQ(digests[0], digests[1]);
}

TEST(EngineTest, ARefusalThatAllRanksKnowLeavesTheWorldToOtherEngines) {
  const CWorld world(2);
  const auto on_both = [](const auto& rank) {
    std::jthread other([&] { rank(1); });
    rank(0);
  };
  on_both([&](int rank) {
    const CEngine small(world, rank, 20,
                        R"({"device_budget_bytes": "12KiB",
                            "host_budget_bytes": "8KiB"})");
    EXPECT_GIVES(CASTOR_INFEASIBLE, castor_engine_seal(small.get(), nullptr));
    castor_engine* second = nullptr;
    EXPECT_GIVES(CASTOR_FAILED_PRECONDITION,
                 castor_engine_create(world.get(), rank, nullptr, kSmallConfig,
                                      &second));
    EXPECT_THAT(castor_last_error(), HasSubstr("has an engine: destroy"));
  });
  std::array<uint64_t, 2> digests = {};
  on_both([&](int rank) {
    const CEngine engine(world, rank, 20,
                         R"({"device_budget_bytes": "5MiB",
                             "host_budget_bytes": "1MiB"})");
    ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
    Train(engine, 2);
    digests[static_cast<size_t>(rank)] = DigestOf(engine);
    EXPECT_GIVES(CASTOR_OK, castor_engine_close(engine.get()));
  });
  EXPECT_EQ(digests[0], digests[1]);
  EXPECT_NE(digests[0], 0u);
}

TEST(EngineTest, RefusesAGradientThatIsNone) {
  const CWorld world(1);
  const CEngine engine(world, 0, 1);
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  const std::vector<float> values(CEngine::kElements + 1, 1.0f);
  const size_t bytes = (values.size() - 1) * sizeof(float);
  EXPECT_GIVES(CASTOR_FAILED_PRECONDITION,
               castor_engine_give_grad(engine.get(), 0, values.data(), bytes));
  ASSERT_GIVES(CASTOR_OK, castor_engine_begin_micro_batch(engine.get(), 1));
  EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
               castor_engine_give_grad(engine.get(), 0, nullptr, bytes));
  for (const size_t wrong : {bytes + 4, bytes - 4, bytes / 2, size_t{0}}) {
    EXPECT_GIVES(
        CASTOR_INVALID_ARGUMENT,
        castor_engine_give_grad(engine.get(), 0, values.data(), wrong));
  }
  EXPECT_THAT(castor_last_error(), HasSubstr("0 bytes are no gradient of"));
  EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
               castor_engine_give_grad(engine.get(), 1, values.data(), bytes));
  EXPECT_GIVES(CASTOR_OK,
               castor_engine_give_grad(engine.get(), 0, values.data(), bytes));
  EXPECT_GIVES(CASTOR_FAILED_PRECONDITION,
               castor_engine_give_grad(engine.get(), 0, values.data(), bytes));
}

// One call with all gradients, copied or read where they are, gives the weights
// that single calls give.
TEST(EngineTest, TakesManyGradientsInOneCall) {
  std::vector<uint64_t> digests;
  for (const char* const borrows : {"false", "true"}) {
    for (const bool at_once : {false, true}) {
      const CWorld world(1);
      const std::string config =
          std::string(R"({"device_budget_bytes": "1MiB", "borrow_grads": )") +
          borrows + "}";
      const CEngine engine(world, 0, 4, config.c_str());
      castor_held held = {};
      std::vector<int32_t> ids = {0, 1, 2, 3};
      held.params = held.grads = ids.data();
      held.param_count = held.grad_count = ids.size();
      castor_seal_options seal = CASTOR_INIT(castor_seal_options);
      seal.held = &held;
      seal.held_count = 1;
      ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), &seal));
      const AlignedBytes grads(Bytes(4 * CEngine::kElements * 4));
      auto* const floats = reinterpret_cast<float*>(grads.data());
      for (int64_t i = 0; i < 4 * CEngine::kElements; ++i) {
        floats[i] = static_cast<float>(i % 7 - 3);
      }
      std::vector<void*> values;
      for (const int32_t id : ids) {
        values.push_back(floats + id * CEngine::kElements);
      }
      ASSERT_GIVES(CASTOR_OK, castor_engine_begin_micro_batch(engine.get(), 1));
      EXPECT_GIVES(
          CASTOR_INVALID_ARGUMENT,
          castor_engine_give_grads(engine.get(), nullptr, values.data(), 4));
      const int32_t none = 4;
      EXPECT_GIVES(
          CASTOR_INVALID_ARGUMENT,
          castor_engine_give_grads(engine.get(), &none, values.data(), 1));
      if (at_once) {
        ASSERT_GIVES(CASTOR_OK,
                     castor_engine_give_grads(engine.get(), ids.data(),
                                              values.data(), 4));
      } else {
        for (size_t i = 0; i < ids.size(); ++i) {
          ASSERT_GIVES(CASTOR_OK, castor_engine_give_grads(
                                      engine.get(), &ids[i], &values[i], 1));
        }
      }
      const bool has_home = InfoOf(engine, 0).homes[CASTOR_GRAD] >= 0;
      EXPECT_EQ(has_home, std::string(borrows) == "false");
      ASSERT_GIVES(CASTOR_OK, castor_engine_step(engine.get(), 0.1, nullptr));
      digests.push_back(DigestOf(engine));
    }
  }
  EXPECT_THAT(digests, Each(digests.front()));
  EXPECT_NE(digests.front(), 0u);
}

TEST(EngineTest, WhatItTellsOfAParameterStaysWhileOthersCome) {
  const CWorld world(1);
  const CEngine few(world, 0, 1);
  const castor_param_info info = InfoOf(few, 0);
  for (int p = 1; p < 200; ++p) few.Register(p);
  EXPECT_STREQ(info.name, "p0");
  EXPECT_EQ(info.dims[0], CEngine::kElements);
  EXPECT_EQ(InfoOf(few, 0).name, info.name);
}

TEST(EngineTest, TellsOfParametersAndWhyTheyLiveWhereTheyDo) {
  const CWorld world(1);
  const CEngine engine(world, 0, 3,
                       R"({"chunk": {"bytes": "8KiB"},
                           "device_budget_bytes": "64KiB",
                           "host_budget_bytes": "64KiB",
                           "home_rules": [{"tier": "host", "glob": "p*",
                                           "state": "exp_avg"}]})");
  castor_param_info info = InfoOf(engine, 2);
  EXPECT_STREQ(info.name, "p2");
  EXPECT_STREQ(info.dtype, "F32");
  ASSERT_EQ(info.dim_count, 1);
  EXPECT_EQ(info.dims[0], CEngine::kElements);
  EXPECT_EQ(info.elements, CEngine::kElements);
  EXPECT_EQ(info.frozen, 0);
  EXPECT_EQ(info.chunk, -1);
  EXPECT_THAT(info.homes, Each(-1));
  const char* why = nullptr;
  EXPECT_GIVES(CASTOR_FAILED_PRECONDITION,
               castor_engine_explain_home(engine.get(), 2,
                                          CASTOR_OPTIMIZER_STATE, &why));

  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  Train(engine, 2);
  info = InfoOf(engine, 2);
  EXPECT_EQ(info.chunk, 0);
  EXPECT_EQ(info.offset_elements, 2 * CEngine::kElements);
  EXPECT_EQ(info.updates, 2);
  EXPECT_EQ(info.homes[CASTOR_OPTIMIZER_STATE], CASTOR_HOST);
  EXPECT_EQ(info.homes[CASTOR_OPTIMIZER_STATE + 1], CASTOR_DEVICE);
  EXPECT_EQ(info.homes[CASTOR_MASTER], -1) << "fp32 parameters have none";
  ASSERT_GIVES(CASTOR_OK, castor_engine_explain_home(
                              engine.get(), 2, CASTOR_OPTIMIZER_STATE, &why));
  EXPECT_THAT(why, HasSubstr("p*"));
  EXPECT_GIVES(
      CASTOR_INVALID_ARGUMENT,
      castor_engine_explain_home(engine.get(), 2, CASTOR_MASTER, &why));
  EXPECT_THAT(castor_last_error(), HasSubstr("p2\" has no master"));
  EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
               castor_engine_explain_home(engine.get(), 2, 5, &why));
  info.struct_size = sizeof(info);
  EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
               castor_engine_get_param(engine.get(), 3, &info));
  EXPECT_THAT(castor_last_error(), HasSubstr("3 are registered"));
}

TEST(EngineTest, StatesAndNumbersAreThoseOfTheTraining) {
  const CWorld world(1);
  const CWorld other(1);
  const CEngine first(world, 0, 4);
  const CEngine second(other, 0, 4);
  for (const CEngine* engine : {&first, &second}) {
    ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine->get(), nullptr));
  }
  Train(first, 2);
  for (int32_t p = 0; p < 4; ++p) {
    for (const int32_t state : {0 + CASTOR_PARAM, 0 + CASTOR_OPTIMIZER_STATE,
                                CASTOR_OPTIMIZER_STATE + 1}) {
      ASSERT_GIVES(CASTOR_OK,
                   castor_engine_write(second.get(), p, state,
                                       Values(first, p, state).data(),
                                       CEngine::kElements));
    }
    ASSERT_GIVES(CASTOR_OK, castor_engine_set_updates(
                                second.get(), p, InfoOf(first, p).updates));
  }
  castor_hyper_parameters numbers = CASTOR_INIT(castor_hyper_parameters);
  numbers.fields = CASTOR_SET_LR | CASTOR_SET_BETA1;
  numbers.lr = 0.5;
  numbers.beta1 = 0.5;
  const uint64_t before = DigestOf(first);
  EXPECT_EQ(DigestOf(second), before);
  for (const CEngine* engine : {&first, &second}) {
    ASSERT_GIVES(CASTOR_OK, castor_engine_set_hyper_parameters(
                                engine->get(), nullptr, &numbers));
    Train(*engine, 2);
  }
  EXPECT_EQ(DigestOf(second), DigestOf(first));
  EXPECT_NE(DigestOf(first), before);
  EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
               castor_engine_set_hyper_parameters(first.get(), "x", &numbers));
  numbers.fields = 64;
  EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
               castor_engine_set_hyper_parameters(first.get(), "", &numbers));
  numbers.fields = CASTOR_SET_BETA1;
  numbers.beta1 = 1.5;
  EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
               castor_engine_set_hyper_parameters(first.get(), "", &numbers));
}

TEST(EngineTest, ASchedulesRateIsThatOfTheStep) {
  castor_schedule schedule = CASTOR_INIT(castor_schedule);
  schedule.peak = 1;
  schedule.floor = 0.5;
  schedule.warmup = 4;
  schedule.steps = 8;
  schedule.shape = CASTOR_LINEAR;
  double rate = 0;
  ASSERT_GIVES(CASTOR_OK, castor_schedule_rate(&schedule, 2, &rate));
  EXPECT_EQ(rate, 0.5);
  ASSERT_GIVES(CASTOR_OK, castor_schedule_rate(&schedule, 6, &rate));
  EXPECT_EQ(rate, 0.75);
  ASSERT_GIVES(CASTOR_OK, castor_schedule_rate(&schedule, 100, &rate));
  EXPECT_EQ(rate, 0.5);
  EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
               castor_schedule_rate(&schedule, 0, &rate));
  schedule.warmup = 9;
  EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
               castor_schedule_rate(&schedule, 1, &rate));
  schedule.shape = 3;
  EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
               castor_schedule_rate(&schedule, 1, &rate));
}

TEST(EngineTest, TheLossScaleIsKeptByTheProgram) {
  const CWorld world(1);
  const CEngine engine(world, 0, 1,
                       R"({"chunk": {"bytes": "8KiB"},
                           "device_budget_bytes": "1MiB",
                           "host_budget_bytes": "1MiB",
                           "loss_scale": {"kind": "dynamic", "initial": 64,
                                          "growth_interval": 2}})");
  castor_loss_scale scale = CASTOR_INIT(castor_loss_scale);
  ASSERT_GIVES(CASTOR_OK, castor_engine_get_loss_scale(engine.get(), &scale));
  EXPECT_EQ(scale.scale, 64);
  scale.scale = 128;
  scale.clean_steps = 1;
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  ASSERT_GIVES(CASTOR_OK, castor_engine_set_loss_scale(engine.get(), &scale));
  Train(engine, 1);
  ASSERT_GIVES(CASTOR_OK, castor_engine_get_loss_scale(engine.get(), &scale));
  EXPECT_EQ(scale.scale, 256) << "two steps without an overflow";
  scale.scale = -1;
  EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
               castor_engine_set_loss_scale(engine.get(), &scale));
}

TEST(EngineTest, TakesOtherBudgetsBetweenSteps) {
  uint64_t digests[2] = {};
  for (const bool reseals : {false, true}) {
    const CWorld world(1);
    const CEngine engine(world, 0, 12,
                         R"({"chunk": {"bytes": "4KiB"},
                             "device_budget_bytes": "32KiB",
                             "host_budget_bytes": "64KiB"})");
    ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
    Train(engine, 1);
    if (reseals) {
      EXPECT_EQ(InfoOf(engine, 11).homes[CASTOR_OPTIMIZER_STATE], CASTOR_HOST);
      castor_reseal_options options = CASTOR_INIT(castor_reseal_options);
      options.device_budget_bytes = 1024;
      EXPECT_GIVES(CASTOR_INFEASIBLE,
                   castor_engine_reseal(engine.get(), &options));
      options.device_budget_bytes = 1 << 20;
      ASSERT_GIVES(CASTOR_OK, castor_engine_reseal(engine.get(), &options));
      EXPECT_EQ(InfoOf(engine, 11).homes[CASTOR_OPTIMIZER_STATE],
                CASTOR_DEVICE);
      options.device_budget_bytes = -1;
      EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
                   castor_engine_reseal(engine.get(), &options));
    }
    Train(engine, 2);
    digests[reseals ? 1 : 0] = DigestOf(engine);
  }
  EXPECT_EQ(digests[0], digests[1]);
}

TEST(EngineTest, InitialValuesMayBeThereAlready) {
  const CWorld world(1);
  const CEngine engine(world, 0);
  std::vector<float> values(300);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = 0.5f * static_cast<float>(i);
  }
  const int64_t dims[] = {300};
  castor_tensor tensor = {};
  tensor.name = "w";
  tensor.dims = dims;
  tensor.dim_count = 1;
  tensor.dtype = "F32";
  int32_t param = -1;
  ASSERT_GIVES(CASTOR_OK, castor_engine_register(engine.get(), &tensor, nullptr,
                                                 castor_initialize_from,
                                                 values.data(), &param));
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  std::vector<float> read(300);
  ASSERT_GIVES(CASTOR_OK, castor_engine_read(engine.get(), param, CASTOR_PARAM,
                                             read.data(), 300));
  EXPECT_EQ(read, values);
}

TEST(EngineTest, CheckpointsAreListedVerifiedAndLoadedByStep) {
  TempDir folder;
  const CWorld world(1);
  const CEngine engine(world, 0, 3);
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  castor_save_options save = CASTOR_INIT(castor_save_options);
  save.keep = 2;
  uint64_t digests[4] = {};
  for (const int step : {1, 2, 3}) {
    Train(engine, 1);
    digests[step] = DigestOf(engine);
    save.background = step == 3 ? 1 : 0;
    ASSERT_GIVES(CASTOR_OK, castor_engine_save(engine.get(),
                                               folder.path().c_str(), &save));
  }
  const char* path = nullptr;
  ASSERT_GIVES(CASTOR_OK, castor_engine_finish_save(engine.get(), &path));
  EXPECT_THAT(path, HasSubstr("step-00000003"));
  EXPECT_GIVES(CASTOR_FAILED_PRECONDITION,
               castor_engine_finish_save(engine.get(), nullptr));

  int64_t steps[1] = {};
  size_t count = 0;
  ASSERT_GIVES(CASTOR_OK,
               castor_checkpoint_list(folder.path().c_str(), steps, 1, &count));
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(steps[0], 2);
  castor_load_options load = CASTOR_INIT(castor_load_options);
  load.one_step = 1;
  load.step = 2;
  int64_t loaded = 0;
  // A look at what the trainer saved takes nothing.
  const auto before = DigestOf(engine);
  load.trainer_only = 1;
  ASSERT_GIVES(
      CASTOR_OK,
      castor_engine_load(engine.get(), folder.path().c_str(), &load, &loaded));
  EXPECT_EQ(loaded, 2);
  EXPECT_EQ(DigestOf(engine), before);
  EXPECT_NE(DigestOf(engine), digests[2]);
  load.trainer_only = 0;
  ASSERT_GIVES(
      CASTOR_OK,
      castor_engine_load(engine.get(), folder.path().c_str(), &load, &loaded));
  EXPECT_EQ(loaded, 2);
  EXPECT_EQ(DigestOf(engine), digests[2]);
  EXPECT_EQ(InfoOf(engine, 0).updates, 2);
  load.weights_only = 1;
  ASSERT_GIVES(
      CASTOR_OK,
      castor_engine_load(engine.get(), folder.path().c_str(), &load, nullptr));
  EXPECT_EQ(InfoOf(engine, 0).updates, 0);
  load.step = 1;
  EXPECT_GIVES(
      CASTOR_INVALID_ARGUMENT,
      castor_engine_load(engine.get(), folder.path().c_str(), &load, nullptr));

  EXPECT_GIVES(CASTOR_OK,
               castor_checkpoint_verify(folder.path().c_str(), nullptr));
  const int64_t third = 3;
  const std::string weights =
      folder.path().string() + "/step-00000003/model.safetensors";
  {
    std::fstream file(weights, std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(file.is_open()) << weights;
    file.seekp(-4, std::ios::end);
    file.write("tick", 4);
  }
  EXPECT_GIVES(CASTOR_DATA_LOSS,
               castor_checkpoint_verify(folder.path().c_str(), &third));
  EXPECT_THAT(castor_last_error(), HasSubstr("p2"));
  const int64_t second = 2;
  EXPECT_GIVES(CASTOR_OK,
               castor_checkpoint_verify(folder.path().c_str(), &second));
}

TEST(EngineTest, APlanIsForTheParametersItWasMadeFor) {
  TempDir folder;
  const std::string path = folder.path().string() + "/plan.json";
  const auto write = [&](int64_t tensors, int world) {
    PlanFile plan;
    plan.model = "m";
    plan.tensors = tensors;
    plan.elements = Elements(tensors * CEngine::kElements);
    plan.world = world;
    plan.engine.chunk_size = KiB(8);
    plan.engine.device_budget = KiB(80);
    plan.engine.host_budget = KiB(48);
    std::ofstream(path) << WritePlan(plan);
  };
  const std::string config = "{\"plan\": \"" + path + "\"}";
  write(3, 1);
  {
    const CWorld world(1);
    const CEngine engine(world, 0, 3, config.c_str());
    ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
    castor_engine_stats stats = CASTOR_INIT(castor_engine_stats);
    ASSERT_GIVES(CASTOR_OK, castor_engine_get_stats(engine.get(), &stats));
    EXPECT_EQ(stats.device_budget_bytes, KiB(80).count());
    EXPECT_EQ(stats.chunk_bytes, KiB(8).count());
  }
  {
    const CWorld world(1);
    const CEngine engine(world, 0, 4, config.c_str());
    EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
                 castor_engine_seal(engine.get(), nullptr));
    EXPECT_THAT(castor_last_error(), HasSubstr("3"));
  }
  const CWorld world(1);
  castor_engine* none = nullptr;
  const std::string both =
      "{\"plan\": \"" + path + "\", \"device_budget_bytes\": 4096}";
  EXPECT_GIVES(
      CASTOR_INVALID_ARGUMENT,
      castor_engine_create(world.get(), 0, nullptr, both.c_str(), &none));
  EXPECT_THAT(castor_last_error(),
              HasSubstr("device_budget_bytes is said by the plan"));
  EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
               castor_engine_create(world.get(), 0, nullptr,
                                    R"({"plan": "absent.json"})", &none));
  EXPECT_THAT(castor_last_error(), HasSubstr("absent.json"));
}

TEST(CEngineStatsTest, TellsAllFiguresAsJson) {
  const CWorld world(1);
  const CEngine engine(world, 0, 3);
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  Train(engine, 2);
  castor_engine_stats stats = CASTOR_INIT(castor_engine_stats);
  ASSERT_GIVES(CASTOR_OK, castor_engine_get_stats(engine.get(), &stats));
  const char* text = nullptr;
  ASSERT_GIVES(CASTOR_OK, castor_engine_stats_json(engine.get(), &text));
  const JsonValue json = ParseJson(text).value();
  const JsonValue& device = json["tiers"]["device"];
  const JsonValue& host = json["tiers"]["host"];
  const JsonValue& links = json["links"];
  EXPECT_EQ(device["budget_bytes"], stats.device_budget_bytes);
  EXPECT_EQ(device["peak_bytes"], stats.device_peak_bytes);
  EXPECT_EQ(host["budget_bytes"], stats.host_budget_bytes);
  EXPECT_EQ(host["peak_bytes"], stats.host_peak_bytes);
  EXPECT_EQ(json["tiers"]["nvme"]["peak_bytes"], stats.nvme_peak_bytes);
  EXPECT_EQ(links["host_to_device_bytes"], stats.host_to_device_bytes);
  EXPECT_EQ(links["device_to_host_bytes"], stats.device_to_host_bytes);
  EXPECT_EQ(links["nvme_to_device_bytes"].integer() +
                links["nvme_to_host_bytes"].integer(),
            stats.nvme_read_bytes);
  EXPECT_EQ(links["device_to_nvme_bytes"].integer() +
                links["host_to_nvme_bytes"].integer(),
            stats.nvme_written_bytes);
  EXPECT_EQ(links["wire_sent_bytes"], stats.wire_sent_bytes);
  EXPECT_EQ(json["gathers"], stats.gathers);
  EXPECT_EQ(json["prefetched_gathers"], stats.prefetched_gathers);
  EXPECT_EQ(json["divergences"], stats.divergences);
  EXPECT_EQ(json["stall_ns"], stats.stall_ns);
  EXPECT_EQ(json["tier_allocations"], stats.tier_allocations);
  EXPECT_EQ(json["chunks"], stats.chunks);
  EXPECT_EQ(json["chunk_bytes"], stats.chunk_bytes);
  // A state's homes are somewhere, and all of them are the tier's.
  for (const char* tier : {"device", "host", "nvme"}) {
    const JsonValue& its = json["tiers"][tier];
    int64_t states = 0;
    for (const char* state :
         {"param", "grad", "master", "exp_avg", "exp_avg_sq"}) {
      states += its[std::string(state) + "_bytes"].integer();
    }
    EXPECT_EQ(states, its["home_bytes"].integer()) << tier;
  }
  EXPECT_GT(device["home_bytes"].integer() + host["home_bytes"].integer(), 0);
}

TEST(CEngineStatsTest, SaysOfABudgetWithoutEndThatThereIsNone) {
  const CWorld world(1);
  const CEngine engine(world, 0, 3,
                       R"({"chunk": {"bytes": "8KiB"}, "keep_copies": false,
                           "device_budget_bytes": "1MiB",
                           "host_budget_bytes": 2305843009213693951})");
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  castor_engine_stats stats = CASTOR_INIT(castor_engine_stats);
  ASSERT_GIVES(CASTOR_OK, castor_engine_get_stats(engine.get(), &stats));
  EXPECT_EQ(stats.device_budget_bytes, MiB(1).count());
  EXPECT_EQ(stats.host_budget_bytes, INT64_MAX);
  const char* text = nullptr;
  ASSERT_GIVES(CASTOR_OK, castor_engine_stats_json(engine.get(), &text));
  const JsonValue json = ParseJson(text).value();
  EXPECT_TRUE(json["tiers"]["host"]["budget_bytes"].is_null());
  castor_engine* none = nullptr;
  EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
               castor_engine_create(world.get(), 0, nullptr,
                                    R"({"host_budget_bytes": -1})", &none));
  EXPECT_THAT(castor_last_error(), Not(HasSubstr("2305843009213693951")));
}

TEST(CRecordTest, HoldsAWindowMarksAndHomes) {
  const TempDir dir;
  const std::string path = dir.File("run.rec");
  castor_record_options window = CASTOR_INIT(castor_record_options);
  window.first_step = 2;
  window.last_step = 1;
  {
    const CWorld world(1);
    EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
                 castor_world_record(world.get(), path.c_str(), &window));
    window.last_step = 4;
    ASSERT_GIVES(CASTOR_OK,
                 castor_world_record(world.get(), path.c_str(), &window));
    const CEngine engine(world, 0, 3);
    ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
    Train(engine, 2);
    EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
                 castor_engine_mark(engine.get(), nullptr));
    EXPECT_GIVES(
        CASTOR_INVALID_ARGUMENT,
        castor_engine_mark(engine.get(), std::string(256, 'x').c_str()));
    ASSERT_GIVES(CASTOR_OK, castor_engine_mark(engine.get(), "less room"));
    castor_reseal_options reseal = CASTOR_INIT(castor_reseal_options);
    reseal.device_budget_bytes = KiB(24).count();
    ASSERT_GIVES(CASTOR_OK, castor_engine_reseal(engine.get(), &reseal));
    Train(engine, 3);
    ASSERT_GIVES(CASTOR_OK, castor_engine_close(engine.get()));
  }
  const RunRecord record = ReadRecord(path).value();
  const RunStatistics run = ComputeRunStatistics(record, StepRange());
  EXPECT_TRUE(record.completeness.ok());
  ASSERT_EQ(run.steps.size(), 3u);
  EXPECT_EQ(run.steps.front().step, 2);
  EXPECT_EQ(run.steps.back().step, 4);
  ASSERT_EQ(run.marks.size(), 1u);
  EXPECT_EQ(run.marks[0].words, "less room");
  EXPECT_EQ(run.homes.size(), 2u);
}

}  // namespace
}  // namespace castor
