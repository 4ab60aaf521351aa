// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_COLLECTIVES_C_API_C_ENGINE_H_
#define CASTOR_TESTS_COLLECTIVES_C_API_C_ENGINE_H_

// Worlds and engines of the C ABI that end with their scope, for tests in C++.

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/c_api/castor.h"
#include "gtest/gtest.h"

namespace castor {

#define EXPECT_GIVES(code, call) \
  EXPECT_EQ((call), static_cast<int32_t>(code)) << castor_last_error()
#define ASSERT_GIVES(code, call) \
  ASSERT_EQ((call), static_cast<int32_t>(code)) << castor_last_error()

class CWorld {
 public:
  explicit CWorld(int32_t ranks, int64_t timeout_ms = 0) {
    castor_world_options options = CASTOR_INIT(castor_world_options);
    options.timeout_ms = timeout_ms;
    EXPECT_GIVES(CASTOR_OK, castor_world_create(ranks, &options, &world_));
  }
  ~CWorld() { EXPECT_GIVES(CASTOR_OK, castor_world_destroy(world_)); }
  CWorld(const CWorld&) = delete;
  CWorld& operator=(const CWorld&) = delete;

  castor_world* get() const { return world_; }

 private:
  castor_world* world_ = nullptr;
};

inline constexpr char kSmallConfig[] =
    R"({"chunk": {"bytes": "8KiB"}, "device_budget_bytes": "1MiB",
        "host_budget_bytes": "1MiB",
        "optimizer": {"kind": "adamw", "weight_decay": 0}})";

// One rank's, with parameters p0, p1, ... of 256 fp32 values each.
class CEngine {
 public:
  CEngine(const CWorld& world, int32_t rank, int params = 0,
          const char* config = kSmallConfig, castor_device* device = nullptr)
      : CEngine(world.get(), rank, params, config, device) {}
  CEngine(castor_world* world, int32_t rank, int params, const char* config,
          castor_device* device) {
    EXPECT_GIVES(CASTOR_OK,
                 castor_engine_create(world, rank, device, config, &engine_));
    for (int p = 0; p < params; ++p) Register(p);
  }
  ~CEngine() { EXPECT_GIVES(CASTOR_OK, castor_engine_destroy(engine_)); }
  CEngine(const CEngine&) = delete;
  CEngine& operator=(const CEngine&) = delete;

  castor_engine* get() const { return engine_; }

  static constexpr int64_t kElements = 256;

  void Register(int number) const {
    const std::string name = "p" + std::to_string(number);
    const int64_t dims[] = {kElements};
    castor_tensor tensor = {};
    tensor.name = name.c_str();
    tensor.dims = dims;
    tensor.dim_count = 1;
    tensor.dtype = "F32";
    int32_t param = -1;
    EXPECT_GIVES(CASTOR_OK, castor_engine_register(
                                engine_, &tensor, nullptr,
                                [](void*, int64_t begin, int64_t end,
                                   float* out) -> int32_t {
                                  for (int64_t i = begin; i < end; ++i) {
                                    out[i - begin] = static_cast<float>(i);
                                  }
                                  return CASTOR_OK;
                                },
                                nullptr, &param));
    EXPECT_EQ(param, number);
  }

 private:
  castor_engine* engine_ = nullptr;
};

}  // namespace castor

#endif  // CASTOR_TESTS_COLLECTIVES_C_API_C_ENGINE_H_
