// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/zero_config.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/loss_scaler.h"
#include "collectives/lr_schedule.h"
#include "collectives/optimizer_groups.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/kernels/optimizer_options.h"
#include "placement/placement_rules.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "placement/static_policy.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

using testing::HasSubstr;

TEST(ZeroConfigTest, NothingIsEveryDefault) {
  const Result<ZeroOptions> read = ReadZeroConfig("{}");
  ASSERT_THAT(read, IsOk());
  const ZeroOptions defaults;
  EXPECT_EQ(read->stage, defaults.stage);
  EXPECT_EQ(read->prefetch_depth, defaults.prefetch_depth);
  EXPECT_EQ(read->min_chunk, defaults.min_chunk);
  EXPECT_FALSE(read->chunk_size.has_value());
  EXPECT_EQ(read->optimizer.kind, defaults.optimizer.kind);
  EXPECT_TRUE(read->groups.empty());
}

TEST(ZeroConfigTest, EveryKeyIsTaken) {
  const Result<ZeroOptions> read = ReadZeroConfig(R"({
    "schema": "castor.config/1", "stage": 2, "clip_norm": 0.5,
    "shard_group": 4, "optimizer_span": "world",
    "prefetch_depth": 0, "prefetch": "deadlines", "step_compute_ns": 5000,
    "policy": "planned", "grad_mode": "fp32",
    "accumulation_order": "last",
    "device_budget_bytes": 1048576, "host_budget_bytes": 2097152,
    "nvme": [{"directory": "/a"}, {"directory": "/b", "size_bytes": 4096}],
    "chunk": {"bytes": 8192, "min_bytes": 1, "max_bytes": 2,
              "align_elements": 128},
    "optimizer": {"kind": "lion", "beta1": 0.8, "beta2": 0.98, "eps": 1e-6,
                  "weight_decay": 1, "momentum": 0.5, "dampening": 0.1,
                  "nesterov": true, "moment_dtype": "BF16",
                  "stochastic_rounding": false, "seed": 9},
    "groups": [{"name": "norms", "lr_scale": 0.1, "weight_decay": 0},
               {"name": "rest", "beta1": 0.7, "beta2": 0.9, "eps": 1}],
    "loss_scale": {"kind": "dynamic", "initial": 1024, "growth": 4,
                   "growth_interval": 10, "backoff": 0.25, "hysteresis": 2,
                   "least": 0.5, "most": 4096}})");
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->stage, 2);
  EXPECT_EQ(read->shard_group, 4);
  EXPECT_EQ(read->optimizer_span, OptimizerSpan::kWorld);
  EXPECT_EQ(read->clip_norm, 0.5);
  EXPECT_EQ(read->prefetch_depth, 0);
  EXPECT_EQ(read->prefetch, PrefetchMode::kDeadlines);
  EXPECT_EQ(read->step_compute_ns, 5000);
  EXPECT_EQ(read->policy, PlanPolicy::kPlanned);
  EXPECT_EQ(read->grad_mode, GradMode::kFp32);
  EXPECT_EQ(read->accumulation, AccumulationOrder::kLast);
  EXPECT_EQ(read->device_budget, MiB(1));
  EXPECT_EQ(read->host_budget, MiB(2));
  ASSERT_EQ(read->nvme.size(), 2u);
  EXPECT_EQ(read->nvme[0].directory, "/a");
  EXPECT_FALSE(read->nvme[0].size.has_value());
  EXPECT_EQ(read->nvme[1].size, KiB(4));
  EXPECT_EQ(read->chunk_size, KiB(8));
  EXPECT_EQ(read->min_chunk, Bytes(1));
  EXPECT_EQ(read->max_chunk, Bytes(2));
  EXPECT_EQ(read->align, Elements(128));
  EXPECT_EQ(read->optimizer.kind, OptimizerKind::kLion);
  EXPECT_EQ(read->optimizer.beta1, 0.8);
  EXPECT_EQ(read->optimizer.beta2, 0.98);
  EXPECT_EQ(read->optimizer.eps, 1e-6);
  EXPECT_EQ(read->optimizer.weight_decay, 1);
  EXPECT_EQ(read->optimizer.momentum, 0.5);
  EXPECT_EQ(read->optimizer.dampening, 0.1);
  EXPECT_TRUE(read->optimizer.nesterov);
  EXPECT_EQ(read->optimizer.moment_dtype, DType::kBF16);
  EXPECT_FALSE(read->optimizer.stochastic_rounding);
  EXPECT_EQ(read->optimizer.seed, 9u);
  ASSERT_EQ(read->groups.size(), 2u);
  EXPECT_EQ(read->groups[0].name, "norms");
  EXPECT_EQ(read->groups[0].lr_scale, 0.1);
  EXPECT_EQ(read->groups[0].weight_decay, 0);
  EXPECT_FALSE(read->groups[0].beta1.has_value());
  EXPECT_EQ(read->groups[1].beta1, 0.7);
  EXPECT_EQ(read->groups[1].beta2, 0.9);
  EXPECT_EQ(read->groups[1].eps, 1);
  EXPECT_EQ(read->loss_scaling.kind, LossScalingKind::kDynamic);
  EXPECT_EQ(read->loss_scaling.initial, 1024);
  EXPECT_EQ(read->loss_scaling.growth, 4);
  EXPECT_EQ(read->loss_scaling.growth_interval, 10);
  EXPECT_EQ(read->loss_scaling.backoff, 0.25);
  EXPECT_EQ(read->loss_scaling.hysteresis, 2);
  EXPECT_EQ(read->loss_scaling.least, 0.5);
  EXPECT_EQ(read->loss_scaling.most, 4096);
}

// Every key with a value that is not its default.
constexpr char kEveryKey[] = R"({
  "schema": "castor.config/1", "stage": 2, "clip_norm": 0.5,
  "shard_group": 4, "optimizer_span": "world",
  "prefetch_depth": 0, "prefetch": "deadlines", "step_compute_ns": 5000,
  "policy": "planned", "grad_mode": "fp32",
  "accumulation_order": "last",
  "device_budget_bytes": 1048576, "host_budget_bytes": 2097152,
  "nvme": [{"directory": "/b", "size_bytes": 4096}],
  "chunk": {"min_bytes": 1, "max_bytes": 2, "align_elements": 128,
            "layout": "layout.json"},
  "home_limits": [{"state": "exp_avg", "tier": "host", "bytes": 4096},
                  {"fraction": 0.25, "tier": "device", "state": "param"},
                  {"state": "param", "tier": "nvme", "fraction": 1}],
  "home_rules": [{"tier": "nvme", "glob": "*.experts.*", "dtype": "BF16",
                  "least_bytes": 1, "most_bytes": 2, "state": "master"},
                 {"tier": "host"}],
  "machine": "machine.json",
  "optimizer": {"kind": "lion", "beta1": 0.8, "beta2": 0.98, "eps": 1e-6,
                "weight_decay": 1, "momentum": 0.5, "dampening": 0.1,
                "nesterov": true, "moment_dtype": "BF16",
                "stochastic_rounding": false, "seed": 9},
  "groups": [{"name": "norms", "lr_scale": 0.1, "lr": 0.2, "beta1": 0.7,
              "beta2": 0.9, "eps": 1, "weight_decay": 0}],
  "loss_scale": {"kind": "dynamic", "initial": 1024, "growth": 4,
                 "growth_interval": 10, "backoff": 0.25, "hysteresis": 2,
                 "least": 0.5, "most": 4096},
  "learning_rate": {"schedule": "cosine", "peak": 0.5, "floor": 0.25,
                    "warmup_steps": 3, "steps": 7},
  "launch": {"ranks": 4, "rank": 1, "backend": "nccl", "reduce": "native",
             "id_file": "ids", "timeout_seconds": 9},
  "checkpoint": {"directory": "run", "every": 5, "keep": 2, "async": true,
                 "resume": "old", "init": "weights"}})";

// Structures are taken apart by all of their members' names here, so that one
// that is new does not compile before it is looked at: it is in the document,
// or is no part of one.
TEST(ZeroConfigTest, NoOptionIsForgotten) {
  std::vector<std::string> said;
  const Result<ZeroConfig> read = ParseTrainerConfig(kEveryKey, {}, &said);
  ASSERT_THAT(read, IsOk());
  const ZeroOptions none;
  const auto& [engine, layout_file, machine_file, rate, launch, checkpoint] =
      *read;
  EXPECT_EQ(layout_file, "layout.json");
  EXPECT_EQ(machine_file, "machine.json");
  {
    const auto& [stage, shard_group, optimizer_span, optimizer, groups,
                 clip_norm, loss_scaling, grad_mode, accumulation, layout,
                 align, chunk_size, min_chunk, max_chunk, device_budget,
                 host_budget, nvme, home_limits, home_rules, prefetch_depth,
                 prefetch, step_compute_ns, machine, policy, executor, device,
                 make_nvme_queue, nvme_checksums, workers, recorder, log,
                 clock] = engine;
    EXPECT_NE(stage, none.stage);
    EXPECT_NE(shard_group, none.shard_group);
    EXPECT_NE(optimizer_span, none.optimizer_span);
    EXPECT_NE(optimizer.kind, none.optimizer.kind);
    EXPECT_FALSE(groups.empty());
    EXPECT_NE(clip_norm, none.clip_norm);
    EXPECT_NE(loss_scaling.kind, none.loss_scaling.kind);
    EXPECT_NE(grad_mode, none.grad_mode);
    EXPECT_NE(accumulation, none.accumulation);
    EXPECT_EQ(layout, nullptr);  // layout_file
    EXPECT_NE(align, none.align);
    EXPECT_FALSE(chunk_size.has_value());  // not with a layout
    EXPECT_NE(min_chunk, none.min_chunk);
    EXPECT_NE(max_chunk, none.max_chunk);
    EXPECT_NE(device_budget, none.device_budget);
    EXPECT_NE(host_budget, none.host_budget);
    EXPECT_FALSE(nvme.empty());
    EXPECT_TRUE(home_limits.has_value());
    EXPECT_EQ(home_rules.size(), 2u);
    EXPECT_NE(prefetch_depth, none.prefetch_depth);
    EXPECT_NE(prefetch, none.prefetch);
    EXPECT_NE(step_compute_ns, none.step_compute_ns);
    EXPECT_FALSE(machine.has_value());  // machine_file
    EXPECT_NE(policy, none.policy);
    // Collaborators are objects of the program.
    EXPECT_EQ(executor, nullptr);
    EXPECT_EQ(device, nullptr);
    EXPECT_EQ(make_nvme_queue, nullptr);
    EXPECT_EQ(nvme_checksums, nullptr);
    EXPECT_EQ(workers, nullptr);
    EXPECT_EQ(recorder, nullptr);
    EXPECT_EQ(log, nullptr);
    EXPECT_EQ(clock, nullptr);
  }
  {
    const auto& [kind, lr, beta1, beta2, eps, weight_decay, momentum, dampening,
                 nesterov, moment_dtype, stochastic_rounding, seed] =
        engine.optimizer;
    EXPECT_EQ(kind, OptimizerKind::kLion);
    // Step is given the rate.
    EXPECT_EQ(lr, DefaultOptimizerOptions(OptimizerKind::kLion).lr);
    EXPECT_EQ(beta1, 0.8);
    EXPECT_EQ(beta2, 0.98);
    EXPECT_EQ(eps, 1e-6);
    EXPECT_EQ(weight_decay, 1);
    EXPECT_EQ(momentum, 0.5);
    EXPECT_EQ(dampening, 0.1);
    EXPECT_TRUE(nesterov);
    EXPECT_EQ(moment_dtype, DType::kBF16);
    EXPECT_FALSE(stochastic_rounding);
    EXPECT_EQ(seed, 9u);
  }
  {
    const auto& [name, lr_scale, lr, beta1, beta2, eps, weight_decay] =
        engine.groups[0];
    EXPECT_EQ(name, "norms");
    EXPECT_EQ(lr_scale, 0.1);
    EXPECT_EQ(lr, 0.2);
    EXPECT_EQ(beta1, 0.7);
    EXPECT_EQ(beta2, 0.9);
    EXPECT_EQ(eps, 1);
    EXPECT_EQ(weight_decay, 0);
  }
  {
    const auto& [kind, initial, growth, growth_interval, backoff, hysteresis,
                 least, most] = engine.loss_scaling;
    EXPECT_EQ(kind, LossScalingKind::kDynamic);
    EXPECT_EQ(initial, 1024);
    EXPECT_EQ(growth, 4);
    EXPECT_EQ(growth_interval, 10);
    EXPECT_EQ(backoff, 0.25);
    EXPECT_EQ(hysteresis, 2);
    EXPECT_EQ(least, 0.5);
    EXPECT_EQ(most, 4096);
  }
  {
    const auto& [directory, size] = engine.nvme[0];
    EXPECT_EQ(directory, "/b");
    EXPECT_EQ(size, KiB(4));
  }
  {
    const auto& [glob, dtype, least, most, state, tier, decide] =
        engine.home_rules[0];
    EXPECT_EQ(glob, "*.experts.*");
    EXPECT_EQ(dtype, DType::kBF16);
    EXPECT_EQ(least, Bytes(1));
    EXPECT_EQ(most, Bytes(2));
    EXPECT_EQ(state, StateKind::kMaster);
    EXPECT_EQ(tier, Tier::kNvme);
    EXPECT_EQ(decide, nullptr);  // a function of the program
    EXPECT_EQ(engine.home_rules[1].tier, Tier::kHost);
    EXPECT_EQ(engine.home_rules[1].glob, "*");
  }
  {
    const auto& [device, host, nvme] =
        (*engine.home_limits)[static_cast<size_t>(StateKind::kParam)];
    EXPECT_EQ(device, StateLimit(0.25));
    EXPECT_FALSE(host.has_value());
    EXPECT_EQ(nvme, StateLimit(1.0));
    EXPECT_EQ(
        (*engine.home_limits)[static_cast<size_t>(StateKind::kExpAvg)].host,
        StateLimit(KiB(4)));
  }
  {
    const auto& [schedule, peak, floor, warmup_steps, steps] = rate;
    // What a schedule has, a document does too.
    const auto& [shape, its_peak, its_floor, warmup, its_steps] =
        LrSchedule{*schedule, *peak, *floor, *warmup_steps, *steps};
    EXPECT_EQ(shape, LrShape::kCosine);
    EXPECT_EQ(its_peak, 0.5);
    EXPECT_EQ(its_floor, 0.25);
    EXPECT_EQ(warmup, 3);
    EXPECT_EQ(its_steps, 7);
  }
  {
    const auto& [ranks, rank_of_this, backend, reduce, id_file,
                 timeout_seconds] = launch;
    EXPECT_EQ(ranks, 4);
    EXPECT_EQ(rank_of_this, 1);
    EXPECT_EQ(backend, "nccl");
    EXPECT_EQ(reduce, "native");
    EXPECT_EQ(id_file, "ids");
    EXPECT_EQ(timeout_seconds, 9);
  }
  {
    const auto& [directory, every, keep, async, resume, init] = checkpoint;
    EXPECT_EQ(directory, "run");
    EXPECT_EQ(every, 5);
    EXPECT_EQ(keep, 2);
    EXPECT_EQ(async, true);
    EXPECT_EQ(resume, "old");
    EXPECT_EQ(init, "weights");
  }
  // All keys are above, but for the one that a layout excludes.
  std::vector<std::string> keys = ConfigKeys();
  std::erase(keys, "chunk.bytes");
  std::sort(said.begin(), said.end());
  said.erase(std::unique(said.begin(), said.end()), said.end());
  EXPECT_EQ(said, keys);
}

TEST(ZeroConfigTest, TheFilesItNamesAreRead) {
  const TempDir dir;
  std::ofstream(dir.File("machine.json")) << R"({"schema": "castor.machine/1",
             "memory": {"bytes_per_second": 7}})";
  const auto with = [&](const std::string& key, const std::string& file) {
    return ReadZeroConfig("{" + key + ": \"" + dir.File(file) + "\"" +
                          (key.find('{') == key.npos ? "}" : "}}"));
  };
  const Result<ZeroOptions> read = with("\"machine\"", "machine.json");
  ASSERT_THAT(read, IsOk());
  ASSERT_TRUE(read->machine.has_value());
  EXPECT_EQ(read->machine->memory->bytes_per_second, 7);
  EXPECT_THAT(with("\"machine\"", "none.json"),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("none.json")));
  EXPECT_THAT(with("\"machine\"", ""), StatusIs(ErrorCode::kInvalidArgument));
  // A machine is no layout.
  EXPECT_THAT(with("\"chunk\": {\"layout\"", "machine.json"),
              StatusIs(ErrorCode::kMalformed, HasSubstr("machine.json")));
}

TEST(ZeroConfigTest, AnOptimizersNumbersBeginWithThoseOfItsKind) {
  const Result<ZeroOptions> read =
      ReadZeroConfig(R"({"optimizer": {"kind": "lion", "beta1": 0.5}})");
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->optimizer.beta1, 0.5);
  EXPECT_EQ(read->optimizer.beta2,
            DefaultOptimizerOptions(OptimizerKind::kLion).beta2);
}

// Gemini swallows what it does not know, clipping for one (defect D14).
TEST(ZeroConfigTest, WhatIsWrongIsNamedWithItsPlace) {
  struct Case {
    std::string text;
    std::string why;
  };
  const std::vector<Case> cases = {
      {"{\n  \"stage\": 2,\n  \"optimzer\": {}\n}",
       "unknown key \"optimzer\"; did you mean optimizer?"},
      {"{\n  \"stage\": 2,\n  \"optimzer\": {}\n}", "(line 3, column 3)"},
      {R"({"shard_group": -2})", "shard_group"},
      {R"({"optimizer_span": "node"})", "\"group\" or \"world\""},
      {R"({"optimizer": {"beta3": 1}})",
       R"("optimizer" holds the unknown key "beta3")"},
      {R"({"optimizer": {"beta3": 1}})", "(line 1, column 16)"},
      {R"({"stage": 4})", "\"stage\" is 4 where a whole number from 0 to 3"},
      {R"({"stage": true})", "\"stage\" is true where"},
      {R"({"stage": 2.0})", "\"stage\" is 2.0 where a whole number"},
      {R"({"stage": 2e0})", "\"stage\" is 2e0 where a whole number"},
      {R"({"stage": {}})", "\"stage\" is an object where a value belongs"},
      {R"({"optimizer": 3})", "\"optimizer\" is 3 where an object belongs"},
      {R"({"nvme": {}})", "\"nvme\" is an object where an array belongs"},
      {R"({"nvme": [3]})", "where an object belongs"},
      {R"({"nvme": [{}]})", "has no \"directory\""},
      {R"({"groups": [{"lr_scale": 1}]})", "has no \"name\""},
      {R"({"groups": [[]]})", "where an object belongs"},
      {R"({"policy": "best"})", R"("best" where "auto" or "planned" belongs)"},
      {R"({"clip_norm": "1"})", "where a number belongs"},
      {R"({"device_budget_bytes": -1})", "where a whole number from 0"},
      {R"({"schema": "castor.config/2"})", "this version reads"},
      {R"({"stage": 1, "stage": 1})", "twice"},
      {R"({"home_limit": []})", "did you mean home_limits?"},
      {R"({"update_order": "forward"})", "\"update_order\" is gone"},
      {R"({"home_limits": [{"state": "exp_avg", "bytes": 1}]})",
       "has no \"tier\""},
      {R"({"home_limits": [{"tier": "host", "bytes": 1}]})",
       "has no \"state\""},
      {R"({"home_limits": [{"state": "exp_avg", "tier": "host"}]})",
       "has neither \"bytes\" nor \"fraction\""},
      {R"({"home_limits": [{"state": "param", "tier": "host", "bytes": 1,
                            "fraction": 1}]})",
       "has both \"bytes\" and \"fraction\""},
      {R"({"home_limits": [{"state": "param", "tier": "host", "bytes": 1},
                           {"state": "param", "tier": "host", "bytes": 2}]})",
       "gives param on host a limit, which has one"},
      {R"({"home_limits": [{"state": "exp", "tier": "host", "bytes": 1}]})",
       "\"exp\", which is none"},
      {R"({"home_rules": [{"glob": "*"}]})", "has no \"tier\""},
      {R"({"home_rules": [{"tier": "hots"}]})", "did you mean host?"},
      {R"({"home_rules": [{"tier": "host", "dtype": "F99"}]})",
       "a type such as BF16"},
      {R"({"chunk": {"bytes": 4096, "layout": "a"}})", "exclude each other"},
      // An engine by itself has no rates, ranks and folders to save to.
      {R"({"launch": {"ranks": 2}})", "unknown key \"launch\""},
      {"[]", "the document is an array where an object belongs"},
      {"7", "the document is 7 where an object belongs"},
      {"{\n \"a\": }", "(line 2, column 7)"},
      {"", "(line 1, column 1)"},
  };
  for (const Case& wrong : cases) {
    EXPECT_THAT(ReadZeroConfig(wrong.text),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr(wrong.why)))
        << wrong.text;
  }
  const std::vector<Case> of_trainers = {
      {R"({"launch": {"rank_s": 2}})",
       R"("launch" holds the unknown key "rank_s"; did you mean ranks?)"},
      {R"({"launch": {"ranks": 0}})", "whole number from 1"},
      {R"({"launch": {"backend": "mpi"}})", R"("host" or "nccl")"},
      {R"({"learning_rate": 0.1})", "is 0.1 where an object belongs"},
      {R"({"learning_rate": {"schedule": "step"}})", R"("linear" or "cosine")"},
      {R"({"checkpoint": {"async": 1}})", "true or false"},
      {"{\n \"checkpoint\": {\n  \"evry\": 1}}", "(line 3, column 3)"}};
  for (const Case& wrong : of_trainers) {
    std::vector<std::string> said;
    EXPECT_THAT(ParseTrainerConfig(wrong.text, {}, &said),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr(wrong.why)))
        << wrong.text;
  }
}

}  // namespace
}  // namespace castor
