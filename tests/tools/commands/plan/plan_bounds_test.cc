// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// A planned step lies between the bounds that are printed with it: bounds and
// steps count the same bytes for every link and every pass.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/kernels/optimizer_options.h"
#include "placement/machine/tier_model_file.h"
#include "placement/plan.h"
#include "placement/step_traffic.h"
#include "placement/tier_model.h"
#include "tests/collectives/answers/naive_traffic.h"
#include "tests/support/golden/golden.h"
#include "tests/support/status_matchers.h"
#include "tests/tools/models/model_files.h"
#include "tools/commands/plan/plan_outcome.h"
#include "tools/commands/plan/plan_request.h"

namespace castor {
namespace {

using Named = std::pair<std::string, OptimizerOptions>;

std::vector<Named> Optimizers() {
  std::vector<Named> optimizers;
  for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kAdamW,
                                   OptimizerKind::kLion, OptimizerKind::kSgd}) {
    const OptimizerOptions plain = DefaultOptimizerOptions(kind);
    optimizers.emplace_back(OptimizerName(kind), plain);
    OptimizerOptions half = plain;
    half.moment_dtype = DType::kBF16;
    optimizers.emplace_back(fmt::format("{} in bf16", OptimizerName(kind)),
                            half);
  }
  OptimizerOptions blocks;
  blocks.moment_dtype = DType::kBlocks8;
  optimizers.emplace_back("adamw in 8 bits", blocks);
  OptimizerOptions momentum = DefaultOptimizerOptions(OptimizerKind::kSgd);
  momentum.momentum = 0.9;
  optimizers.emplace_back("sgd with momentum", momentum);
  for (const int states : {0, 1, 3}) {
    OptimizerOptions custom = DefaultOptimizerOptions(OptimizerKind::kCustom);
    for (int i = 0; i < states; ++i) {
      custom.states.push_back(fmt::format("state{}", i));
    }
    optimizers.emplace_back(fmt::format("custom of {} states", states), custom);
  }
  return optimizers;
}

// Slow enough that a step of a small model takes time on each resource.
TierModel Machine(int64_t latency_ns) {
  TierModel machine;
  machine.host_to_device = LinkModel{90'000'000, latency_ns};
  machine.device_to_host = LinkModel{80'000'000, latency_ns};
  machine.nvme_read = LinkModel{60'000'000, latency_ns};
  machine.nvme_write = LinkModel{20'000'000, latency_ns};
  machine.all_gather = RingModel{90'000'000, latency_ns};
  machine.reduce_scatter = RingModel{70'000'000, latency_ns};
  machine.optimizer = RateModel{28'000'000};
  return machine;
}

std::vector<std::pair<std::string, TierModel>> Machines() {
  TierModel plain = Machine(0);
  TierModel waits = Machine(40'000);
  TierModel memory = waits;
  memory.memory = RateModel{100'000'000};
  TierModel slow_memory = plain;
  slow_memory.memory = RateModel{25'000'000};
  TierModel duplex = memory;
  duplex.host_to_device_duplex = LinkModel{30'000'000, 40'000};
  duplex.device_to_host_duplex = LinkModel{25'000'000, 40'000};
  duplex.nvme_mixed = LinkModel{45'000'000, 40'000};
  return {{"no rate of memory", plain},
          {"latencies", waits},
          {"memory", memory},
          {"slow memory", slow_memory},
          {"both directions", duplex}};
}

struct Place {
  Bytes device;
  Bytes host;
  std::optional<Bytes> nvme;
};

const Place kPlaces[] = {{MiB(16), MiB(1), {}},
                         {KiB(700), MiB(16), {}},
                         {MiB(2), MiB(16), {}},
                         {KiB(700), MiB(2), MiB(64)}};

struct Way {
  std::string name;
  void (*set)(PlanFlags& flags);
};

const Way kWays[] = {
    {"one rank", [](PlanFlags&) {}},
    {"two ranks on a host",
     [](PlanFlags& flags) { flags.world = flags.ranks_per_host = 2; }},
    {"four ranks at stage 1",
     [](PlanFlags& flags) {
       flags.world = 4;
       flags.engine.stage = 1;
     }},
    {"updates early",
     [](PlanFlags& flags) {
       flags.update_in_backward = true;
       flags.engine.clip_norm = 0;
     }},
    {"planned at once",
     [](PlanFlags& flags) { flags.engine.policy = PlanPolicy::kPlanned; }},
    {"four micro-batches",
     [](PlanFlags& flags) { flags.step.micro_batches = 4; }},
    {"four micro-batches, sums in fp32, two ranks",
     [](PlanFlags& flags) {
       flags.step.micro_batches = 4;
       flags.engine.grad_mode = GradMode::kFp32;
       flags.world = 2;
     }},
    {"three micro-batches, reduced once",
     [](PlanFlags& flags) {
       flags.step.micro_batches = 3;
       flags.engine.accumulation = AccumulationOrder::kLast;
       flags.world = 2;
     }},
};

class PlanBoundsTest : public testing::Test {
 protected:
  PlanBoundsTest() {
    std::string list = "embed.weight\t512,64\tF32\n";
    for (int layer = 0; layer < 4; ++layer) {
      list += fmt::format(
          "h.{0}.attn.weight\t64,192\tF32\nh.{0}.mlp.weight\t64,256\tF32\n",
          layer);
    }
    list += "head.weight\t512,64\tF32\n";
    model_ = folder_.Write("model.tsv", list);
  }

  PlanFlags Flags(const Place& place, const std::string& dtype,
                  const std::string& machine) const {
    PlanFlags flags;
    flags.model = model_;
    flags.dtype = dtype;
    flags.read.order = ParamOrder::kFile;
    flags.engine.chunk_size = KiB(128);
    flags.device_budget = place.device;
    flags.host_budget = place.host;
    flags.nvme = place.nvme;
    flags.files.machine = machine;
    flags.compute = 20'000'000;
    return flags;
  }

  // Whether it fits.
  bool Check(const PlanFlags& flags) {
    const Result<PlanSubject> subject = ReadPlanSubject(flags);
    EXPECT_THAT(subject, IsOk());
    const Result<PlanOutcome> outcome = MakePlan(*subject, flags);
    EXPECT_THAT(outcome, IsOk());
    if (!outcome.ok() || !outcome->fits.ok()) return false;
    EXPECT_EQ(outcome->traffic(),
              NaiveTrafficOf(*outcome->seal, outcome->request.options,
                             outcome->step, outcome->run->by_chunk));
    const StepTimes& times = outcome->times;
    EXPECT_TRUE(times.least_seconds && outcome->simulated);
    if (!times.least_seconds || !outcome->simulated) return false;
    // A clock of nanoseconds rounds each transfer up. One step may leave a
    // little more to the next step than the step before left to it.
    constexpr double kRounding = 1e-5;
    constexpr double kLeft = 0.005;
    const double step = *outcome->step_seconds();
    EXPECT_LE(*times.least_seconds, step * (1 + kLeft) + kRounding);
    EXPECT_GE(*times.most_seconds + kRounding, step);
    return true;
  }

  TempFolder folder_;
  std::string model_;
};

TEST_F(PlanBoundsTest, HoldForEachOptimizerPlaceMachineAndWay) {
  int planned = 0;
  for (const auto& [machine_name, machine] : Machines()) {
    const std::string file =
        folder_.Write("machine.json", FormatTierModel(machine));
    for (const auto& [name, optimizer] : Optimizers()) {
      for (const Place& place : kPlaces) {
        for (const char* dtype : {"f32", "bf16"}) {
          for (const Way& way : kWays) {
            SCOPED_TRACE(fmt::format("{}, {}, {}, {}, device {}, host {}",
                                     machine_name, name, dtype, way.name,
                                     place.device.count(), place.host.count()));
            PlanFlags flags = Flags(place, dtype, file);
            flags.engine.optimizer = optimizer;
            way.set(flags);
            planned += Check(flags);
          }
        }
      }
    }
  }
  EXPECT_GT(planned, 2000);
}

// A line for each plan: whether it fits, bytes of links, what is sent, peaks,
// a step's time and its bounds.
TEST_F(PlanBoundsTest, PlansAreAsTheyWere) {
  const std::string file =
      folder_.Write("machine.json", FormatTierModel(Machines().back().second));
  std::string text;
  for (const auto& [name, optimizer] : Optimizers()) {
    if (name != "adamw" && name != "sgd" && name != "custom of 3 states") {
      continue;
    }
    for (const Place& place : kPlaces) {
      for (const char* dtype : {"f32", "bf16"}) {
        for (const Way& way : kWays) {
          PlanFlags flags = Flags(place, dtype, file);
          flags.engine.optimizer = optimizer;
          way.set(flags);
          const Result<PlanSubject> subject = ReadPlanSubject(flags);
          ASSERT_THAT(subject, IsOk());
          const Result<PlanOutcome> outcome = MakePlan(*subject, flags);
          ASSERT_THAT(outcome, IsOk());
          text +=
              fmt::format("{}, {}, {}, device {}, host {}\t", name, dtype,
                          way.name, place.device.count(), place.host.count());
          if (!outcome->fits.ok()) {
            text += fmt::format("{}\n", outcome->fits.message());
            continue;
          }
          const StepTraffic& traffic = outcome->traffic();
          const std::array<Bytes, 3>& peak = outcome->run->peak;
          text += "moved";
          for (const auto& from : traffic.moved) {
            for (const LinkTraffic& link : from) {
              text += fmt::format(" {}/{}", link.bytes.count(), link.transfers);
            }
          }
          text += fmt::format(
              " sent {} peaks {} {} {} step {} least {:.6g} most {:.6g}\n",
              traffic.wire_sent().count(), peak[0].count(), peak[1].count(),
              peak[2].count(),
              outcome->simulated ? outcome->simulated->ns() : 0,
              outcome->times.least_seconds.value_or(0),
              outcome->times.most_seconds.value_or(0));
        }
      }
    }
  }
  ExpectGolden("tests/tools/commands/plan/golden/plans.tsv", text);
}

}  // namespace
}  // namespace castor
