// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Calls of the C ABI from several threads, from callbacks and from a fork's
// child, and calls that wait until the program interrupts them.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
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

TEST(TurnTest, AnyThreadMayCallAnEngineOneAtATime) {
  constexpr int kThreads = 4;
  constexpr int kParams = 12;
  const CWorld world(1);
  const CEngine engine(world, 0, kParams);
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  for (int step = 0; step < 3; ++step) {
    ASSERT_GIVES(CASTOR_OK, castor_engine_begin_micro_batch(engine.get(), 1));
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int32_t p = t; p < kParams; p += kThreads) {
          const void* data = nullptr;
          castor_param_lease* lease = nullptr;
          // The slots of two parameters may be on lease to other threads.
          int32_t code = CASTOR_INFEASIBLE;
          while (code == CASTOR_INFEASIBLE) {
            code = castor_engine_acquire(engine.get(), &p, 1, &data, &lease);
          }
          ASSERT_GIVES(CASTOR_OK, code);
          void* grad = nullptr;
          ASSERT_GIVES(CASTOR_OK, castor_engine_grad(engine.get(), p, &grad));
          for (int64_t i = 0; i < CEngine::kElements; ++i) {
            static_cast<float*>(grad)[i] += 1;
          }
          EXPECT_GIVES(CASTOR_OK, castor_param_lease_release(lease));
          EXPECT_GIVES(CASTOR_OK, castor_engine_grad_ready(engine.get(), p));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    castor_step made = CASTOR_INIT(castor_step);
    ASSERT_GIVES(CASTOR_OK, castor_engine_step(engine.get(), 0.5, &made));
    EXPECT_EQ(made.step, step + 1);
  }
  // Adam moves each element by the rate where gradients are all alike.
  std::vector<float> values(CEngine::kElements);
  for (int32_t p = 0; p < kParams; ++p) {
    ASSERT_GIVES(CASTOR_OK,
                 castor_engine_read(engine.get(), p, CASTOR_PARAM,
                                    values.data(), CEngine::kElements));
    EXPECT_NEAR(values[7], 7 - 3 * 0.5, 1e-3) << p;
  }
}

TEST(TurnTest, ACallbackMayNotCallTheEngineItServes) {
  const CWorld world(1);
  const CEngine engine(world, 0);
  const int64_t dims[] = {8};
  castor_tensor tensor = {};
  tensor.name = "w";
  tensor.dims = dims;
  tensor.dim_count = 1;
  tensor.dtype = "F32";
  int32_t param = -1;
  ASSERT_GIVES(CASTOR_OK,
               castor_engine_register(
                   engine.get(), &tensor, nullptr,
                   [](void* context, int64_t, int64_t, float*) -> int32_t {
                     int32_t found = -1;
                     const int32_t code = castor_engine_find(
                         static_cast<castor_engine*>(context), "w", &found);
                     castor_set_error(castor_last_error());
                     return code;
                   },
                   engine.get(), &param));
  EXPECT_GIVES(CASTOR_FAILED_PRECONDITION,
               castor_engine_seal(engine.get(), nullptr));
  EXPECT_THAT(castor_last_error(), HasSubstr("comes from a callback"));
}

TEST(TurnTest, AForksChildIsRefused) {
  const CWorld world(1);
  const CEngine engine(world, 0, 2);
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    uint64_t digest = 0;
    castor_engine* another = nullptr;
    castor_lane* lane = nullptr;
    const bool refused =
        castor_engine_weight_digest(engine.get(), &digest) ==
            CASTOR_FAILED_PRECONDITION &&
        std::string(castor_last_error()).find("forked") != std::string::npos &&
        castor_engine_create(world.get(), 0, nullptr, "{}", &another) ==
            CASTOR_FAILED_PRECONDITION &&
        castor_lane_create(world.get(), nullptr, &lane) ==
            CASTOR_FAILED_PRECONDITION &&
        castor_engine_destroy(engine.get()) == CASTOR_FAILED_PRECONDITION &&
        castor_world_destroy(world.get()) == CASTOR_FAILED_PRECONDITION;
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  uint64_t digest = 0;
  EXPECT_GIVES(CASTOR_OK, castor_engine_weight_digest(engine.get(), &digest));
}

// Rank 1 never comes, and nobody waits for the world's timeout.
TEST(TurnTest, AnInterruptEndsACallThatWaits) {
  const CWorld world(2);
  const CEngine waiting(world, 0, 2);
  const CEngine absent(world, 1, 2);
  std::atomic<int> asked = 0;
  castor_set_interrupt(
      [](void* context) -> int32_t {
        return ++*static_cast<std::atomic<int>*>(context) >= 3 ? 1 : 0;
      },
      &asked);
  EXPECT_GIVES(CASTOR_ABORTED, castor_engine_seal(waiting.get(), nullptr));
  EXPECT_THAT(castor_last_error(), HasSubstr("interrupted a call"));
  castor_set_interrupt(nullptr, nullptr);
  EXPECT_EQ(asked, 3);
  EXPECT_GIVES(CASTOR_ABORTED, castor_engine_seal(absent.get(), nullptr));
}

// Work of the machine's own ends by itself: the program is asked, and the call
// goes on.
TEST(TurnTest, AnInterruptLetsACallOfAnOnlyRankGoOn) {
  const CWorld world(1);
  castor_lane* lane = nullptr;
  ASSERT_GIVES(CASTOR_OK, castor_lane_create(world.get(), nullptr, &lane));
  {
    const CEngine engine(world, 0, 2);
    ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
    std::atomic<int> asked = 0;
    castor_set_interrupt(
        [](void* context) -> int32_t {
          ++*static_cast<std::atomic<int>*>(context);
          return 1;
        },
        &asked);
    for (int step = 1; step <= 2; ++step) {
      asked = 0;
      ASSERT_GIVES(CASTOR_OK, castor_engine_begin_micro_batch(engine.get(), 1));
      ASSERT_GIVES(CASTOR_OK, castor_engine_use_lane(engine.get(), lane));
      const int32_t param = 1;
      const void* data = nullptr;
      void* grad = nullptr;
      castor_param_lease* lease = nullptr;
      ASSERT_GIVES(CASTOR_OK, castor_engine_acquire(engine.get(), &param, 1,
                                                    &data, &lease));
      ASSERT_GIVES(CASTOR_OK, castor_engine_grad(engine.get(), param, &grad));
      ASSERT_GIVES(CASTOR_OK,
                   castor_lane_run(
                       lane,
                       [](void* context) -> int32_t {
                         // Until a wait has asked the program.
                         while (*static_cast<std::atomic<int>*>(context) == 0) {
                           std::this_thread::yield();
                         }
                         return CASTOR_OK;
                       },
                       &asked));
      ASSERT_GIVES(CASTOR_OK, castor_param_lease_release(lease));
      ASSERT_GIVES(CASTOR_OK, castor_engine_grad_ready(engine.get(), param));
      castor_step made = CASTOR_INIT(castor_step);
      ASSERT_GIVES(CASTOR_OK, castor_engine_step(engine.get(), 0.5, &made));
      EXPECT_EQ(made.step, step);
      EXPECT_GE(asked, 1);
    }
    castor_set_interrupt(nullptr, nullptr);
  }
  EXPECT_GIVES(CASTOR_OK, castor_lane_destroy(lane));
}

// A call that waits for another call on the same engine ends as well.
TEST(TurnTest, AnInterruptEndsAWaitForTheTurn) {
  const CWorld world(2);
  const CEngine busy(world, 0, 2);
  const CEngine absent(world, 1, 2);
  static std::atomic<std::thread::id> interrupted;
  interrupted = std::this_thread::get_id();
  std::thread first(
      [&] { EXPECT_NE(castor_engine_seal(busy.get(), nullptr), CASTOR_OK); });
  castor_set_interrupt(
      [](void*) -> int32_t {
        return std::this_thread::get_id() == interrupted.load() ? 1 : 0;
      },
      nullptr);
  int32_t param = -1;
  // Until the other thread has the turn.
  int32_t code = CASTOR_OK;
  while (code != CASTOR_ABORTED) {
    code = castor_engine_find(busy.get(), "p1", &param);
    ASSERT_TRUE(code == CASTOR_OK || code == CASTOR_ABORTED);
  }
  EXPECT_THAT(castor_last_error(), HasSubstr("another one on the same engine"));
  castor_set_interrupt(nullptr, nullptr);
  EXPECT_GIVES(CASTOR_OK, castor_world_abort(world.get(), "enough"));
  first.join();
}

}  // namespace
}  // namespace castor
