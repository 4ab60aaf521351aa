// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_COLLECTIVES_MEMORY_RANDOM_MEMORY_INPUT_H_
#define CASTOR_TESTS_COLLECTIVES_MEMORY_RANDOM_MEMORY_INPUT_H_

// Random models, layouts and declared moments for tests of the memory plan.
// Values.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/param_spec.h"
#include "collectives/memory/memory_plan.h"
#include "collectives/memory/sharding.h"
#include "collectives/zero_options.h"
#include "placement/placement_rules.h"

namespace castor {

// A layout of up to `most_params` parameters in up to three groups of up to
// three chunk sizes; oversize, empty and frozen ones among them.
inline ChunkLayout RandomLayout(std::mt19937_64& random, int world,
                                size_t most_params) {
  std::vector<ParamSpec> specs;
  const size_t count = 1 + random() % most_params;
  for (size_t p = 0; p < count; ++p) {
    ParamSpec spec;
    spec.name = "p" + std::to_string(p);
    const uint64_t largest = random() % 8 == 0 ? 40'000 : 3'000;
    spec.shape = {static_cast<int64_t>(random() % largest)};
    if (random() % 3 == 0) spec.dtype = DType::kBF16;
    spec.trainable = random() % 5 != 0;
    specs.push_back(std::move(spec));
  }
  PackOptions pack;
  pack.world = world;
  std::vector<Elements> sizes;
  for (size_t g = GroupParams(specs).size(); g > 0; --g) {
    sizes.push_back(ChunkQuantum(world) *
                    static_cast<int64_t>(1 + random() % 40));
  }
  return *PackChunks(specs, sizes, pack);
}

// Moments as a forward and a backward sweep would declare them, with windows of
// random width; gradients of some parameters are left out.
inline std::vector<HeldTogether> RandomHeld(std::mt19937_64& random,
                                            size_t params) {
  std::vector<HeldTogether> held;
  const auto window = [&](size_t at) {
    std::vector<ParamId> ids;
    const size_t width = 1 + random() % 3;
    for (size_t p = at; p < std::min(at + width, params); ++p) {
      ids.push_back(ParamId(static_cast<int32_t>(p)));
    }
    return ids;
  };
  for (size_t p = 0; p < params; ++p) held.push_back({window(p), {}});
  for (size_t p = params; p-- > 0;) {
    HeldTogether moment{window(p), {}};
    if (random() % 6 != 0) {
      moment.grads.push_back(ParamId(static_cast<int32_t>(p)));
    }
    held.push_back(std::move(moment));
  }
  return held;
}

// An input and the layout it points to, and rules where they are asked for.
// Budgets are between nothing and a little more than everything.
struct RandomMemoryInput {
  RandomMemoryInput(std::mt19937_64& random, size_t most_params,
                    bool with_rules = false) {
    constexpr int kWorlds[] = {1, 2, 3, 8};
    input.sharding.world = kWorlds[random() % 4];
    input.sharding.stage = static_cast<int>(random() % 4);
    layout = std::make_unique<ChunkLayout>(
        RandomLayout(random, input.sharding.world, most_params));
    input.layout = layout.get();
    if (random() % 4 != 0) {
      input.declared.held = RandomHeld(random, layout->places().size());
    }
    if (random() % 3 == 0) {
      input.declared.largest_lease =
          Bytes(static_cast<int64_t>(random() % 20'000));
    }
    input.prefetch.depth = static_cast<int>(random() % 4);
    const Bytes most = layout->allocated_bytes() * 6 + KiB(64);
    const auto part = [&] {
      const auto percent = static_cast<int64_t>(
          random() % 4 != 0 ? 10 + random() % 30 : random() % 110);
      return most * percent / 100;
    };
    input.device_budget = part();
    input.host_budget = part();
    if (random() % 3 != 0) {
      input.nvme_budget = random() % 2 == 0 ? most * 2 : part();
    }
    if (random() % 2 == 0) input.norm_bytes = Bytes(552);
    if (with_rules) BindSome(random);
  }

  // Binds every eighth state of a chunk or so, to any tier.
  void BindSome(std::mt19937_64& random) {
    input.bindings.resize(layout->chunks().size());
    for (ChunkBindings& chunk : input.bindings) {
      for (StateBinding& state : chunk) {
        if (random() % 8 != 0) continue;
        state = {0, ParamId(0), kAllTiers[random() % 3]};
      }
    }
  }

  std::unique_ptr<ChunkLayout> layout;
  MemoryPlanInput input;
};

}  // namespace castor

#endif  // CASTOR_TESTS_COLLECTIVES_MEMORY_RANDOM_MEMORY_INPUT_H_
