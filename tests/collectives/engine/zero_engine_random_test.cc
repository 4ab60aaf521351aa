// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Draws models and configurations at random and holds the engine to the bits of
// plain arrays, while the work behind it runs in shuffled order.

#include <algorithm>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/checkpoint/checkpoint_options.h"
#include "collectives/loss_scaler.h"
#include "collectives/optimizer_groups.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gtest/gtest.h"
#include "offload/lanes/executor.h"
#include "tests/support/fakes/shuffling_executor.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"
#include "tests/support/toys/toy_trainer.h"

namespace castor {
namespace {

// What is drawn for one training.
struct Draw {
  ToyModel model;
  ToyRun run;
  int world = 1;
  ZeroOptions options;
  bool tight = false;
  Bytes slack;  // of the device, above what it needs at least
  Bytes spare;  // of the host, likewise
  bool nvme = false;
  bool shuffled = false;
  bool evaluates = false;
  bool abandons = false;
  bool saves = false;  // in the background, while the next step is made
  uint64_t seed = 0;
};

std::ostream& operator<<(std::ostream& out, const Draw& draw) {
  const ZeroOptions& o = draw.options;
  out << "seed " << draw.seed << ": world " << draw.world << ", stage "
      << o.stage << ", chunk "
      << (o.chunk_size ? std::to_string(o.chunk_size->count()) : "searched")
      << ", align " << o.align.count() << ", clip " << o.clip_norm
      << ", prefetch " << o.prefetch.depth << ", device "
      << o.device_budget.count() << ", host " << o.host_budget.count()
      << ", nvme " << draw.nvme << ", tight " << draw.tight << ", slack "
      << draw.slack.count() << ", steps " << draw.run.steps
      << ", micro-batches " << draw.run.micro_batches << ", skipped "
      << draw.run.skipped << ", left open " << draw.run.left_open << ", tied "
      << draw.run.tied.size() << ", lanes " << draw.run.worker_lanes
      << ", declares " << draw.run.declares << ", updates early "
      << draw.run.updates_early << ", guesses " << draw.run.guesses
      << ", saves " << draw.saves << ", spare " << draw.spare.count()
      << ", evaluates " << draw.evaluates << ", abandons " << draw.abandons
      << ", shuffled " << draw.shuffled << ", gradients "
      << static_cast<int>(o.grad_mode) << " added "
      << static_cast<int>(o.accumulation) << ", scaled "
      << static_cast<int>(o.loss_scaling.kind) << ", groups " << o.groups.size()
      << ", shard group " << o.shard_group << " spanning the "
      << OptimizerSpanName(o.optimizer_span) << ", moments "
      << DTypeName(o.optimizer.moment_dtype) << "; parameters";
  for (const ParamSpec& spec : draw.model.params) {
    out << " " << DTypeName(spec.dtype) << (spec.trainable ? ":" : " frozen:")
        << toy::SizeOf(spec);
  }
  return out;
}

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() %
                                      static_cast<uint64_t>(high - low + 1));
  }
  bool OneIn(int64_t n) { return Between(1, n) == 1; }

 private:
  std::mt19937_64 random_;
};

ToyModel DrawModel(Dice& dice) {
  ToyModel model;
  const bool mixed = dice.OneIn(3);
  const DType dtype = dice.OneIn(2) ? DType::kBF16 : DType::kF32;
  const bool freezes = dice.OneIn(3);
  const int64_t largest = dice.OneIn(4) ? 6000 : 1500;
  const int64_t count =
      dice.OneIn(10) ? dice.Between(0, 2) : dice.Between(3, 18);
  for (int64_t p = 0; p < count; ++p) {
    ParamSpec spec;
    spec.name = "p" + std::to_string(p);
    spec.dtype = dtype;
    if (mixed && dice.OneIn(2)) {
      spec.dtype = dtype == DType::kF32 ? DType::kBF16 : DType::kF32;
    }
    spec.trainable = !(freezes && dice.OneIn(3));
    if (!spec.trainable && dice.OneIn(3)) spec.dtype = DType::kU8;
    switch (dice.Between(0, 9)) {
      case 0:
        spec.shape = {3, 0};
        break;
      case 1:
        spec.shape = {};
        break;
      case 2:
        spec.shape = {dice.Between(1, 70)};
        break;
      case 3:
        spec.shape = {dice.Between(1, 8), dice.Between(1, largest / 8)};
        break;
      default:
        spec.shape = {dice.Between(1, largest)};
    }
    model.params.push_back(std::move(spec));
  }
  return model;
}

ToyRun DrawRun(Dice& dice, const ToyModel& model) {
  ToyRun run;
  run.steps = static_cast<int>(dice.Between(1, 4));
  run.micro_batches = static_cast<int>(dice.Between(1, 3));
  run.seed = static_cast<uint64_t>(dice.Between(0, 1 << 30));
  if (dice.OneIn(3)) run.skipped = 0.2;
  if (dice.OneIn(4)) run.left_open = 0.2;
  if (dice.OneIn(2)) run.worker_lanes = static_cast<int>(dice.Between(1, 3));
  for (size_t p = 0; p < model.params.size(); ++p) {
    if (!model.params[p].trainable) continue;
    if (dice.OneIn(8)) run.tied.push_back(static_cast<int>(p));
    if (dice.OneIn(12)) run.unused.push_back(static_cast<int>(p));
  }
  return run;
}

Draw DrawTraining(uint64_t seed) {
  Dice dice(seed);
  Draw draw;
  draw.seed = seed;
  draw.model = DrawModel(dice);
  draw.run = DrawRun(dice, draw.model);
  draw.world = static_cast<int>(dice.Between(1, 4));
  ZeroOptions& options = draw.options;
  options.stage = static_cast<int>(dice.Between(0, 3));
  options.align = Elements(64 * dice.Between(1, 3));
  if (dice.OneIn(4)) {
    options.min_chunk = KiB(2);
    options.max_chunk = KiB(16);
  } else {
    options.chunk_size = KiB(2) * dice.Between(1, 8);
  }
  const double clips[] = {0, 0.02, 1e6};
  options.clip_norm = clips[dice.Between(0, 2)];
  options.prefetch.depth = static_cast<int>(dice.Between(0, 4));
  options.optimizer.weight_decay = dice.OneIn(2) ? 0 : 0.1;
  options.device_budget = MiB(4);
  options.host_budget = MiB(4);
  draw.tight = dice.OneIn(2);
  if (dice.OneIn(2)) draw.slack = KiB(dice.Between(1, 64));
  draw.nvme = dice.OneIn(3);
  if (draw.tight) {
    options.device_budget = options.chunk_size ? KiB(1) : KiB(64);
  } else {
    // With so much room, nothing needs to be declared.
    draw.run.declares = toy::Irregular(draw.run) || dice.OneIn(2);
  }
  draw.shuffled = !dice.OneIn(4);
  draw.evaluates = draw.run.declares && dice.OneIn(4);
  draw.abandons = dice.OneIn(4);
  const uint64_t salt = draw.run.seed;
  if (draw.evaluates) {
    draw.run.evaluates = [salt](const ToyMoment& at) {
      return (salt + at.param * 7 + static_cast<uint64_t>(at.step) +
              static_cast<uint64_t>(at.point)) %
                 11 ==
             0;
    };
  }
  if (draw.abandons) {
    draw.run.abandons = [salt](const ToyMoment& at) {
      return at.attempt < 2 && (salt + at.param * 5 +
                                static_cast<uint64_t>(at.step + at.attempt) +
                                static_cast<uint64_t>(at.point)) %
                                       13 ==
                                   0;
    };
  }
  return draw;
}

// What moments are kept in, drawn apart from the rest; in 8 bits are those of
// large parameters.
void DrawMoments(Draw& draw) {
  Dice dice(draw.seed ^ uint64_t{0x8b17} << 40);
  if (!dice.OneIn(3)) return;
  draw.options.optimizer.moment_dtype =
      dice.OneIn(3) ? DType::kBF16 : DType::kBlocks8;
  draw.options.optimizer.seed = draw.seed;
  for (ParamSpec& spec : draw.model.params) {
    if (dice.OneIn(3)) spec.shape = {dice.Between(4000, 9000)};
  }
  // Gradients of large tied parameters are begun at once.
  if (!draw.run.tied.empty()) draw.run.declares = true;
}

// How gradients come together and what they are updated with, drawn apart from
// the rest.
void DrawSemantics(Draw& draw) {
  Dice dice(draw.seed ^ uint64_t{0x5eed} << 40);
  ZeroOptions& options = draw.options;
  if (dice.OneIn(3)) options.grad_mode = GradMode::kFp32;
  if (dice.OneIn(3)) options.accumulation = AccumulationOrder::kLast;
  if (dice.OneIn(3)) {
    options.loss_scaling.kind = LossScalingKind::kStatic;
    options.loss_scaling.initial = 256;
  }
  if (dice.OneIn(4)) {
    for (ParamSpec& spec : draw.model.params) {
      if (spec.dtype == DType::kBF16) spec.dtype = DType::kF16;
    }
  }
  if (dice.OneIn(3)) {
    do {
      options.shard_group = static_cast<int>(dice.Between(1, draw.world));
    } while (draw.world % options.shard_group != 0);
    if (options.stage > 0 && dice.OneIn(2)) {
      options.optimizer_span = OptimizerSpan::kWorld;
    }
  }
  if (!dice.OneIn(3)) return;
  options.groups = {{.name = "slow", .lr_scale = 0.5, .weight_decay = 0.2},
                    {.name = "other", .beta1 = 0.5, .beta2 = 0.9, .eps = 1e-3}};
  for (size_t p = 0; p < draw.model.params.size(); ++p) {
    const char* const names[] = {"", "slow", "other"};
    draw.model.groups.push_back(names[dice.Between(0, 2)]);
  }
}

// Gradients written over their parameters, with all that the mode goes together
// with: one micro-batch of parameters that have masters, are used once and not
// evaluated afterwards. Drawn apart, too.
void DrawReuse(Draw& draw) {
  Dice dice(draw.seed ^ uint64_t{0x3e05e} << 40);
  if (!dice.OneIn(3)) return;
  draw.options.grad_mode = GradMode::kReuse;
  draw.options.accumulation = AccumulationOrder::kEach;
  draw.run.micro_batches = 1;
  draw.run.tied.clear();
  const DType dtype = dice.OneIn(3) ? DType::kF16 : DType::kBF16;
  for (ParamSpec& spec : draw.model.params) {
    if (spec.trainable && spec.dtype == DType::kF32) spec.dtype = dtype;
  }
  if (draw.evaluates) {
    draw.run.evaluates = [evaluates = draw.run.evaluates](const ToyMoment& at) {
      return at.point == ToyPoint::kForward && evaluates(at);
    };
  }
}

// Chunks are updated before the step ends. No norm, scale or abandoned step
// needs all gradients first, and nobody looks at a parameter after its gradient
// was handed back.
void DrawEarlyUpdates(Draw& draw) {
  Dice dice(draw.seed ^ uint64_t{0xea51} << 40);
  const ZeroOptions& options = draw.options;
  if (options.clip_norm > 0 || draw.abandons || draw.evaluates ||
      options.loss_scaling.kind != LossScalingKind::kNone) {
    return;
  }
  draw.run.updates_early = !dice.OneIn(4);
}

// Updates that begin before the step ends, whatever it may bring.
void DrawGuesses(Draw& draw) {
  Dice dice(draw.seed ^ uint64_t{0x6e55} << 40);
  if (draw.run.updates_early || dice.OneIn(3)) return;
  draw.run.guesses = draw.options.guess_updates = true;
  draw.spare = KiB(dice.Between(0, draw.nvme ? 100 : 800));
  draw.saves = dice.OneIn(3);
}

class ZeroEngineRandomTest : public testing::Test {
 protected:
  // Trains; where a budget is refused, again with what the refusal asks for.
  ToyResult Train(Draw& draw) {
    ThreadPool pool(2);
    ShufflingExecutor shuffling(draw.seed);
    draw.options.executor = &pool;
    if (draw.shuffled) draw.options.executor = &shuffling;
    draw.options.log = &log_;
    if (draw.nvme) draw.options.nvme = {{nvme_.path(), std::nullopt}};
    if (!draw.tight) return Once(draw);
    // First what the device needs while the host has room, then the host.
    ToyResult result = Once(draw);
    if (RaiseAsAsked(result.status, draw.options)) result = Once(draw);
    if (!result.status.ok()) return result;
    draw.options.device_budget += draw.slack;
    if (draw.nvme) {
      draw.options.host_budget = KiB(1);
      result = Once(draw);
      if (RaiseAsAsked(result.status, draw.options)) result = Once(draw);
      if (!result.status.ok() || draw.spare == Bytes(0)) return result;
    } else if (draw.slack + draw.spare == Bytes(0)) {
      return result;
    }
    draw.options.host_budget += draw.spare;
    return Once(draw);
  }

  ToyResult Once(const Draw& draw) {
    ToyRun run = draw.run;
    if (draw.saves) {
      SaveOptions save;
      save.directory = (saved_.path() / std::to_string(saving_++)).string();
      save.wait = false;
      // Each is finished before the engine closes.
      run.between_steps = [save, steps = run.steps](ZeroEngine& engine,
                                                    int step) -> Status {
        if (step % 2 == 1) return engine.FinishSave().status();
        return step + 2 < steps ? engine.Save(save).status() : OkStatus();
      };
    }
    return TrainToy(draw.model, run, draw.world, draw.options);
  }

  void ExpectSameBits(Draw& draw) {
    const ToyResult got = Train(draw);
    ASSERT_THAT(got.status, IsOk());
    const ToyResult want =
        TrainToyReference(draw.model, draw.run, draw.world, draw.options);
    for (size_t p = 0; p < want.weights.size(); ++p) {
      ASSERT_EQ(got.weights[p], want.weights[p]) << "parameter " << p;
    }
    ASSERT_EQ(got.norms, want.norms);
    ASSERT_EQ(got.seen.size(), want.seen.size());
    for (size_t i = 0; i < got.seen.size(); ++i) {
      if (got.seen[i] == 0) continue;
      ASSERT_EQ(got.seen[i], want.seen[i])
          << "parameter " << i % draw.model.params.size() << " as seen in step "
          << i / draw.model.params.size();
    }
    for (Tier tier : kAllTiers) {
      const TierUse& use = got.stats.tiers[TierIndex(tier)];
      EXPECT_LE(use.peak, use.budget) << TierName(tier);
    }
    from_host_ +=
        got.stats.moved[TierIndex(Tier::kHost)][TierIndex(Tier::kDevice)] >
        Bytes(0);
    from_nvme_ +=
        got.stats.moved[TierIndex(Tier::kNvme)][TierIndex(Tier::kHost)] >
        Bytes(0);
    prefetching_ += got.stats.prefetched_gathers > 0;
    diverging_ += got.stats.divergences > 0;
    updating_early_ += got.stats.early_updates > 0;
    guessing_right_ += got.stats.right_guesses > 0;
    guessing_wrong_ += got.stats.right_guesses < got.stats.guesses;
    if (draw.options.grad_mode == GradMode::kReuse) {
      over_homes_ += got.stats.gathered_slots == 0;
      over_copies_ += got.stats.gathered_slots > 0;
    }
  }

  Log log_{[](LogLevel, std::string_view) {}};
  TempDir nvme_;
  TempDir saved_;
  // Trainings that did so.
  int64_t from_host_ = 0;
  int64_t from_nvme_ = 0;
  int64_t prefetching_ = 0;
  int64_t diverging_ = 0;
  int64_t updating_early_ = 0;
  int64_t saving_ = 0;
  int64_t guessing_right_ = 0;
  int64_t guessing_wrong_ = 0;
  // Gradients were written over parameters: over all of those at home, or over
  // some gathered parameters.
  int64_t over_homes_ = 0;
  int64_t over_copies_ = 0;
};

TEST_F(ZeroEngineRandomTest, AnyConfigurationEqualsPlainArraysBitByBit) {
  const uint64_t seed = TestSeed(20);
  // Where a sanitizer watches, as many as it takes to meet each kind.
  const int trainings = TestStride() > 1 ? 30 : 160;
  for (int i = 0; i < trainings; ++i) {
    Draw draw = DrawTraining(seed + static_cast<uint64_t>(i));
    DrawSemantics(draw);
    DrawMoments(draw);
    DrawReuse(draw);
    DrawEarlyUpdates(draw);
    DrawGuesses(draw);
    ExpectSameBits(draw);
    if (HasFatalFailure()) {
      FAIL() << draw;
    }
  }
  // The draw is worth something only while all of it happens.
  EXPECT_GT(from_host_, trainings / 12);
  EXPECT_GT(from_nvme_, trainings / 12);
  EXPECT_GT(prefetching_, trainings / 12);
  EXPECT_GT(diverging_, trainings / 12);
  EXPECT_GT(updating_early_, trainings / 48);
  EXPECT_GT(saving_, trainings / 48);
  EXPECT_GT(guessing_right_, trainings / 48);
  EXPECT_GT(guessing_wrong_, trainings / 48);
  EXPECT_GT(over_homes_, trainings / 48);
  EXPECT_GT(over_copies_, trainings / 12);
}

}  // namespace
}  // namespace castor
