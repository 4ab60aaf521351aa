// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The promise of the ZeRO engine: for a given number of ranks, losses and
// weights have the same bits whatever the stage, the chunk size, the budgets
// the prefetch depth and the policy; and with one rank, the bits of a trainer
// that knows nothing of Castor.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/plan.h"
#include "tests/integration/plain_training.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tools/examples/gpt/model/gpt_params.h"
#include "tools/examples/gpt/text_data.h"
#include "tools/examples/gpt/train_options.h"
#include "tools/examples/gpt/trainer.h"

namespace castor::gpt {
namespace {

// Words of a small language: text enough, on any machine.
TextData SmallText() {
  std::vector<uint8_t> bytes;
  for (uint64_t word = 0; bytes.size() < 20'000; ++word) {
    const uint64_t bits = RandomBits(1, 2, word);
    for (uint64_t letter = 0; letter < 2 + bits % 5; ++letter) {
      bytes.push_back(
          static_cast<uint8_t>('a' + (bits >> (8 * letter + 8)) % 7));
    }
    bytes.push_back(' ');
  }
  return TextData(std::move(bytes));
}

// About a million parameters, accumulation, and a clip that bites.
TrainOptions SmallRun(DType dtype, int ranks) {
  TrainOptions options;
  options.model = {
      .vocab = 256, .context = 16, .layers = 2, .heads = 4, .embd = 192};
  options.dtype = dtype;
  options.batch = 2;
  options.accumulate = 2;
  options.ranks = ranks;
  options.steps = 3;
  options.lr = 1e-3;
  options.engine.clip_norm = 0.7;
  return options;
}

// What must not depend on where anything is.
struct Bits {
  std::vector<double> losses;
  std::vector<double> norms;
  uint64_t digest = 0;

  friend bool operator==(const Bits&, const Bits&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Bits& bits) {
    out << "digest " << std::hex << bits.digest << std::dec << ", losses";
    for (double loss : bits.losses) out << ' ' << loss;
    out << ", norms";
    for (double norm : bits.norms) out << ' ' << norm;
    return out;
  }
};

Bits BitsOf(const TrainOutcome& outcome) {
  Bits bits;
  for (const StepReport& step : outcome.steps.last()) {
    bits.losses.push_back(step.loss);
    bits.norms.push_back(step.grad_norm);
  }
  bits.digest = outcome.final_digest;
  return bits;
}

struct World {
  int ranks;
  DType dtype;
};

std::string WorldName(const testing::TestParamInfo<World>& info) {
  return std::string(DTypeName(info.param.dtype)) + "With" +
         std::to_string(info.param.ranks) +
         (info.param.ranks == 1 ? "Rank" : "Ranks");
}

class ZeroEquivalenceTest : public testing::TestWithParam<World> {
 protected:
  TrainOptions Options() const {
    return SmallRun(GetParam().dtype, GetParam().ranks);
  }
  Bits MustTrain(const TrainOptions& options) {
    const Result<TrainOutcome> outcome = Train(options, text_, {});
    EXPECT_THAT(outcome, IsOk());
    if (!outcome.ok()) return {};
    for (const EngineStats& rank : outcome->ranks) {
      for (const TierUse& tier : rank.tiers) EXPECT_LE(tier.peak, tier.budget);
      EXPECT_EQ(rank.tiers[TierIndex(Tier::kNvme)].peak > Bytes(0),
                !options.engine.nvme.empty());
    }
    return BitsOf(*outcome);
  }
  // The same with room for little more than what the step holds at once on the
  // device, and than what is on its way in host memory; the rest is on NVMe.
  TrainOptions Tight(TrainOptions options) const {
    const int64_t width = DTypeBits(options.dtype) / 8;
    constexpr int64_t kLargestWeight = 192 * 768;
    const int64_t elements =
        std::max(options.engine.chunk_size->count() / width, kLargestWeight);
    options.engine.device_budget = Bytes(4 * elements * width);
    // Staging: five times the largest shard, of fp32 states or of parameters.
    int64_t staged =
        options.engine.stage == 0 ? elements * 4 : elements * 4 / options.ranks;
    if (options.engine.stage < 3) staged = std::max(staged, elements * width);
    options.engine.host_budget = Bytes(5 * staged) + KiB(512);
    options.engine.nvme = {{.directory = dir_.path(), .size = {}}};
    return options;
  }

  const TextData text_ = SmallText();
  TempDir dir_;
};

TEST_P(ZeroEquivalenceTest, WeightsDependOnNothingButWorldAndData) {
  const Bits expected = MustTrain(Options());
  ASSERT_EQ(expected.losses.size(), 3u);
  for (double norm : expected.norms) EXPECT_GT(norm, 0.7) << "the clip bites";
  const Bytes chunks[] = {KiB(160), KiB(640), MiB(2)};
  for (int stage = 0; stage <= 3; ++stage) {
    for (int c = 0; c < 3; ++c) {
      for (bool tight : {false, true}) {
        TrainOptions options = Options();
        options.engine.stage = stage;
        options.engine.chunk_size = chunks[c];
        // Each with every level of each of the others, and in half of all
        // combinations.
        options.engine.prefetch.depth = (stage + c + tight) % 2 == 0 ? 3 : 0;
        options.engine.policy =
            (stage / 2 + c) % 2 == 0 ? PlanPolicy::kAuto : PlanPolicy::kPlanned;
        if (tight) options = Tight(options);
        SCOPED_TRACE(testing::Message()
                     << "stage " << stage << ", chunks of " << chunks[c]
                     << (tight ? ", tight budgets" : ", all resident")
                     << ", prefetch " << options.engine.prefetch.depth
                     << ", policy " << PlanPolicyName(options.engine.policy));
        EXPECT_EQ(MustTrain(options), expected);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, ZeroEquivalenceTest,
    testing::Values(World{1, DType::kF32}, World{1, DType::kBF16},
                    World{2, DType::kF32}, World{2, DType::kBF16},
                    World{3, DType::kF32}, World{3, DType::kBF16}),
    WorldName);

// Plain training has one rank.
class PlainEquivalenceTest : public ZeroEquivalenceTest {};

TEST_P(PlainEquivalenceTest, OneRankEqualsPlainTraining) {
  for (double clip : {0.0, 0.7, 1e9}) {
    for (int accumulate : {1, 2, 3}) {
      TrainOptions options = Options();
      options.engine.clip_norm = clip;
      options.accumulate = accumulate;
      const Result<PlainOutcome> plain = TrainPlainly(options, text_);
      ASSERT_THAT(plain, IsOk());
      EXPECT_EQ(MustTrain(options),
                (Bits{plain->losses, plain->norms, plain->digest}))
          << "clip " << clip << ", accumulate " << accumulate;
    }
  }
}

TEST_P(PlainEquivalenceTest, SchedulesDecayAndScalesAreThoseOfPlainTraining) {
  TrainOptions options = Options();
  options.schedule = LrShape::kCosine;
  options.warmup = 2;
  options.steps = 4;
  options.engine.groups = {VectorsWithoutDecay()};
  const Result<PlainOutcome> plain = TrainPlainly(options, text_);
  ASSERT_THAT(plain, IsOk());
  options.engine.loss_scaling.kind = LossScalingKind::kDynamic;
  options.engine.loss_scaling.initial = 1024;
  EXPECT_EQ(MustTrain(options).digest, plain->digest);
  options.engine.groups.clear();
  EXPECT_NE(MustTrain(options).digest, plain->digest);
}

INSTANTIATE_TEST_SUITE_P(Worlds, PlainEquivalenceTest,
                         testing::Values(World{1, DType::kF32},
                                         World{1, DType::kBF16}),
                         WorldName);

}  // namespace
}  // namespace castor::gpt
