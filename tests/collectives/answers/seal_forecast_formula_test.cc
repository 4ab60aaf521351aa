// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What is foretold, and what an engine then does, against the formulas of ZeRO.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/answers/foretell.h"
#include "collectives/answers/seal_forecast.h"
#include "collectives/memory/held_moments.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/derive/step_model.h"
#include "placement/homes/static_policy.h"
#include "tests/collectives/answers/seal_forecast_fixture.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"

namespace castor {
namespace {

// The engine's own copies are none (defect B2: list collectives copy in and
// out), also around the collectives of what is used in place.
TEST_F(SealForecastTest, WireElementsAreTwoOrThreeTimesTheModels) {
  constexpr int kParams = 6;
  for (const int world : {2, 3, 4}) {
    for (const int stage : {1, 2, 3}) {
      // Each world and each stage, where a sanitizer watches.
      if (TestStride() > 1 && (world + stage) % 3 != 0) continue;
      for (const GradMode mode : {GradMode::kFp32, GradMode::kReuse}) {
        SCOPED_TRACE(testing::Message() << "world " << world << " stage "
                                        << stage << " " << GradModeName(mode));
        const OneByOne made(kParams, DType::kBF16);
        StepShape shape;
        shape.grads_in_place = mode == GradMode::kReuse;
        SealOptions declared;
        declared.held = HeldMomentsOf(made.model.params, made.blocks, shape);
        ZeroOptions options = Roomy(stage);
        options.chunk_size = Bytes(3072);
        options.grad_mode = mode;
        options.prefetch.depth = 0;
        // All homes in host memory, and one slot for parameters.
        options.home_limits = {{{"all", Tier::kDevice, Bytes(0)}}};
        options.device_budget =
            mode == GradMode::kReuse ? Bytes(3072) : Bytes(3 * 3072);
        const std::vector<Outcome> outcomes =
            Train(made.model, made.blocks, shape, declared, options, world);
        for (int rank = 0; rank < world; ++rank) {
          const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
          ASSERT_THAT(outcome.status, IsOk());
          const EngineRequest request = {.params = made.model.params,
                                         .options = options,
                                         .world = world,
                                         .rank = rank,
                                         .communicator_buffers = Bytes(0),
                                         .declared = declared};
          const Result<SealForecast> seal = ForecastSeal(request);
          ASSERT_THAT(seal, IsOk());
          const StepTrace step{outcome.trace, {}, {}};
          const Result<Foretold> told =
              Foretell({.engine = request,
                        .layout = &seal->layout,
                        .steps = std::vector(3, &step)});
          ASSERT_THAT(told, IsOk());
          ASSERT_THAT(told->fits, IsOk());
          const Elements model = seal->layout.allocated(0);
          ASSERT_EQ(model, Elements(kParams * 1536));
          const Bytes sent[3] = {outcome.steady[0].wire_sent,
                                 outcome.steady[1].wire_sent,
                                 outcome.steady[2].wire_sent};
          const Bytes chunks =
              OfAStep(sent) - told->run->steady().traffic.agreement;
          const int64_t share = model.count() / world * (world - 1);
          const int64_t grad_bytes = mode == GradMode::kFp32 ? 4 : 2;
          // Gathered once, to refresh or forward, and once more backward in
          // stage 3; reduced once.
          EXPECT_EQ(chunks.count(),
                    share * (2 * (stage == 3 ? 2 : 1) + grad_bytes));
          if (mode == GradMode::kReuse) {
            EXPECT_EQ(chunks.count() / 2, (stage == 3 ? 3 : 2) * share);
          }
          EXPECT_EQ(outcome.closed.engine_copies, Bytes(0));
        }
      }
    }
  }
}

// Guards against B7: a stage that shards more and peaks higher.
TEST_F(SealForecastTest, WithTheFewestSlotsPeaksFollowTheFormulaDownTheStages) {
  constexpr int kParams = 12;
  const Bytes chunk(3072);
  for (const int world : {2, 3}) {
    Bytes before_device = GiB(1);
    Bytes before_host = GiB(1);
    Bytes before_nvme = GiB(1);
    for (int stage = 0; stage <= 3; ++stage) {
      SCOPED_TRACE(testing::Message()
                   << "world " << world << " stage " << stage);
      const OneByOne made(kParams, DType::kBF16);
      EngineRequest request;
      request.params = made.model.params;
      request.options = Roomy(stage);
      request.options.chunk_size = chunk;
      request.options.prefetch.depth = 0;
      request.world = world;
      request.declared.held =
          HeldMomentsOf(made.model.params, made.blocks, StepShape());
      const int64_t model = kParams * 1536;
      const bool params_whole = stage < 3;
      const int64_t others = stage < 1 ? 1 : world;
      const int64_t states =
          model * 2 / (params_whole ? 1 : world) + model * (2 + 12) / others;

      // All on the device: what is used in place needs a slot for its gradient,
      // what is gathered one more for itself.
      request.options.host_budget = Bytes(0);
      FindLeast(request, &request.options.device_budget, Bytes(512), MiB(4));
      const Bytes device = PeaksOf(request, made)[TierIndex(Tier::kDevice)];
      const Bytes formula = Bytes(states) + chunk * (params_whole ? 1 : 2);
      EXPECT_LE(device, formula + chunk);
      EXPECT_GE(device + chunk, formula);
      EXPECT_LE(device, before_device);
      before_device = device;

      // All in host memory, beside the staging slots that updates take.
      request.options.home_limits = {{{"all", Tier::kDevice, Bytes(0)}}};
      request.options.host_budget = MiB(8);
      FindLeast(request, &request.options.device_budget, Bytes(512), MiB(4));
      const Peaks in_host = PeaksOf(request, made);
      EXPECT_EQ(in_host[TierIndex(Tier::kDevice)], chunk * 2);
      const Bytes host = in_host[TierIndex(Tier::kHost)];
      const Result<SealForecast> seal = ForecastSeal(request);
      const Bytes staging =
          seal->memory
              .host_classes[static_cast<size_t>(seal->memory.staging_class)]
              .slot_bytes *
          seal->memory.staging_slots;
      // Slots of host memory are whole pages.
      Bytes homes;
      for (const auto& of_chunk : seal->memory.states) {
        for (const StatePlace& place : of_chunk) {
          homes += RoundUp(place.bytes, KiB(4));
        }
      }
      EXPECT_EQ(host, homes + staging);
      EXPECT_GE(homes, Bytes(states));
      EXPECT_LE(host, before_host);
      before_host = host;

      // All on the drive, beside the same two slots, and what bytes on their
      // way pass through.
      request.options.home_limits->push_back({"all", Tier::kHost, Bytes(0)});
      request.options.nvme = {{nvme_.path(), {}}};
      FindLeast(request, &request.options.device_budget, Bytes(512), MiB(4));
      FindLeast(request, &request.options.host_budget, KiB(4), MiB(8));
      const Peaks on_nvme = PeaksOf(request, made);
      EXPECT_EQ(on_nvme[TierIndex(Tier::kDevice)], chunk * 2);
      const Bytes nvme = on_nvme[TierIndex(Tier::kNvme)];
      Bytes drive_homes;
      const Result<SealForecast> on_drive = ForecastSeal(request);
      for (const auto& of_chunk : on_drive->memory.states) {
        for (const StatePlace& place : of_chunk) {
          drive_homes += RoundUp(place.bytes, KiB(4));
        }
      }
      EXPECT_EQ(nvme, drive_homes);
      EXPECT_EQ(drive_homes, homes);
      EXPECT_LE(nvme, before_nvme);
      before_nvme = nvme;
      // Of a chunk's states one at a time, each a slot of a page or two.
      const Bytes passing = on_nvme[TierIndex(Tier::kHost)];
      EXPECT_EQ(passing, request.options.host_budget);
      EXPECT_LE(passing, RoundUp(chunk * 2, KiB(4)) * kStateKinds);
    }
  }
}

}  // namespace
}  // namespace castor
