// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Callbacks of a program in C++ that throw: the call that a callback is for
// fails with what was thrown, and the process goes on.

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>

#include "collectives/c_api/castor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/c_api/c_engine.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// What a callback throws, by way of its context.
struct Thrown {
  std::function<void()> now;
  std::string words;
};
const Thrown kError = {[] { throw std::runtime_error("the sampler broke"); },
                       "threw: the sampler broke"};
const Thrown kNumber = {[] { throw 7; }, "an exception of no known kind"};
const Thrown kMemory = {[] { throw std::bad_alloc(); },
                        "threw: std::bad_alloc"};

int32_t Throw(void* context) {
  static_cast<const Thrown*>(context)->now();
  return CASTOR_OK;
}

class ThrowingCallbacksTest : public testing::TestWithParam<const Thrown*> {
 protected:
  static void* context() { return const_cast<Thrown*>(GetParam()); }
  static void ExpectSaid(const char* callback) {
    EXPECT_THAT(castor_last_error(),
                AllOf(HasSubstr(std::string("the callback ") + callback),
                      HasSubstr(GetParam()->words)));
  }
};

TEST_P(ThrowingCallbacksTest, AnInitializerFailsTheSeal) {
  const CWorld world(1);
  const CEngine engine(world, 0);
  const int64_t dims[] = {8};
  castor_tensor tensor = {};
  tensor.name = "w";
  tensor.dims = dims;
  tensor.dim_count = 1;
  tensor.dtype = "F32";
  int32_t param = -1;
  ASSERT_GIVES(CASTOR_OK, castor_engine_register(
                              engine.get(), &tensor, nullptr,
                              [](void* thrown, int64_t, int64_t,
                                 float*) -> int32_t { return Throw(thrown); },
                              context(), &param));
  EXPECT_GIVES(CASTOR_ABORTED, castor_engine_seal(engine.get(), nullptr));
  ExpectSaid("initializer");
}

TEST_P(ThrowingCallbacksTest, AnUpdateFailsTheStep) {
  constexpr char kConfig[] =
      R"({"chunk": {"bytes": "4KiB"}, "device_budget_bytes": "1MiB",
          "host_budget_bytes": "1MiB", "optimizer": {"kind": "custom"}})";
  const CWorld world(1);
  const CEngine engine(world, 0, 1, kConfig);
  ASSERT_GIVES(CASTOR_OK,
               castor_engine_set_update(
                   engine.get(),
                   [](void* thrown, const castor_update*) -> int32_t {
                     return Throw(thrown);
                   },
                   context()));
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  ASSERT_GIVES(CASTOR_OK, castor_engine_begin_micro_batch(engine.get(), 1));
  const float zeros[CEngine::kElements] = {};
  ASSERT_GIVES(CASTOR_OK,
               castor_engine_give_grad(engine.get(), 0, zeros, sizeof(zeros)));
  EXPECT_GIVES(CASTOR_ABORTED, castor_engine_step(engine.get(), 0.5, nullptr));
  ExpectSaid("update");
}

TEST_P(ThrowingCallbacksTest, WorkFailsItsLane) {
  const CWorld world(1);
  castor_lane* lane = nullptr;
  ASSERT_GIVES(CASTOR_OK, castor_lane_create(world.get(), nullptr, &lane));
  ASSERT_GIVES(CASTOR_OK, castor_lane_run(lane, Throw, context()));
  EXPECT_GIVES(CASTOR_ABORTED, castor_lane_drain(lane));
  ExpectSaid("work");
  EXPECT_GIVES(CASTOR_OK, castor_lane_destroy(lane));
}

TEST_P(ThrowingCallbacksTest, AnAllocatorFailsWhatNeedsTheMemory) {
  const CWorld world(1);
  castor_device* device = nullptr;
  ASSERT_GIVES(CASTOR_OK,
               castor_device_open_simulated(world.get(), 1 << 20, &device));
  castor_allocator allocator = {};
  allocator.struct_size = sizeof(allocator);
  allocator.context = context();
  allocator.allocate = [](void* thrown, int64_t, void**) -> int32_t {
    return Throw(thrown);
  };
  allocator.release = [](void*, void*) {};
  ASSERT_GIVES(CASTOR_OK, castor_device_set_allocator(device, &allocator));
  {
    const CEngine engine(world, 0, 1, kSmallConfig, device);
    EXPECT_GIVES(CASTOR_ABORTED, castor_engine_seal(engine.get(), nullptr));
    ExpectSaid("allocate");
  }
  EXPECT_GIVES(CASTOR_OK, castor_device_destroy(device));
}

TEST_P(ThrowingCallbacksTest, ALogLosesNoStep) {
  castor_world_options options = {};
  options.struct_size = sizeof(options);
  options.log = [](void* thrown, int32_t, const char*) { Throw(thrown); };
  options.log_context = context();
  castor_world* world = nullptr;
  ASSERT_GIVES(CASTOR_OK, castor_world_create(1, &options, &world));
  testing::internal::CaptureStderr();
  {
    const CEngine engine(world, 0, 2, kSmallConfig, nullptr);
    // Which warns of the chunk size.
    EXPECT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  }
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      AllOf(HasSubstr("the callback log"), HasSubstr(GetParam()->words)));
  EXPECT_GIVES(CASTOR_OK, castor_world_destroy(world));
}

TEST_P(ThrowingCallbacksTest, CollectivesEndTheWorld) {
  castor_callbacks calls = {};
  calls.struct_size = sizeof(calls);
  calls.context = context();
  calls.all_gather = [](void* thrown, uint64_t, const void*, void*,
                        int64_t) -> int32_t { return Throw(thrown); };
  calls.all_to_all = [](void* thrown, uint64_t, const void*, const int64_t*,
                        void*,
                        const int64_t*) -> int32_t { return Throw(thrown); };
  calls.barrier = [](void* thrown, uint64_t) -> int32_t {
    return Throw(thrown);
  };
  calls.abort = [](void* thrown, const char*) { Throw(thrown); };
  calls.release = [](void* thrown) { Throw(thrown); };
  castor_world* world = nullptr;
  EXPECT_GIVES(CASTOR_ABORTED,
               castor_world_create_callbacks(0, 2, &calls, nullptr, &world));
  EXPECT_THAT(castor_last_error(), HasSubstr(GetParam()->words));
  EXPECT_EQ(world, nullptr);
}

INSTANTIATE_TEST_SUITE_P(Kinds, ThrowingCallbacksTest,
                         testing::Values(&kError, &kNumber, &kMemory),
                         [](const auto& info) {
                           return info.param == &kError    ? "Error"
                                  : info.param == &kNumber ? "Number"
                                                           : "Memory";
                         });

}  // namespace
}  // namespace castor
