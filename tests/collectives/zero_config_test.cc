// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/zero_config.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/loss_scaler.h"
#include "collectives/optimizer_groups.h"
#include "collectives/options/option_table.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/kernels/optimizer_options.h"
#include "placement/homes/static_policy.h"
#include "placement/placement_rules.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ZeroConfigTest, NothingIsEveryDefault) {
  const Result<ZeroOptions> read = ReadZeroConfig("{}");
  ASSERT_THAT(read, IsOk());
  const ZeroOptions defaults;
  EXPECT_EQ(read->stage, defaults.stage);
  EXPECT_EQ(read->prefetch.depth, defaults.prefetch.depth);
  EXPECT_EQ(read->min_chunk, defaults.min_chunk);
  EXPECT_FALSE(read->chunk_size.has_value());
  EXPECT_EQ(read->optimizer.kind, defaults.optimizer.kind);
  EXPECT_TRUE(read->groups.empty());
}

// Every key with a value that is not its default.
constexpr char kEveryKey[] = R"({
  "schema": "castor.config/1", "stage": 2, "clip_norm": 0.5,
  "count_norm": true, "average_micro_batches": false,
  "own_lease_ends": true, "poison": true,
  "shard_group": 4, "optimizer_span": "world",
  "keep_copies": false, "prefetch": "deadlines", "step_compute_ns": 5000,
  "policy": "planned", "grad_mode": "fp32", "borrow_grads": true,
  "guess_updates": true,
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
                "stochastic_rounding": false, "seed": 9,
                "states": [{"name": "z"}], "span": "parameter"},
  "groups": [{"name": "norms", "lr_scale": 0.1, "lr": 0.2, "beta1": 0.7,
              "beta2": 0.9, "eps": 1, "weight_decay": 0, "momentum": 0.6,
              "kind": "adam", "span": "parameter", "states": 0}],
  "loss_scale": {"kind": "dynamic", "initial": 1024, "growth": 4,
                 "growth_interval": 10, "backoff": 0.25, "hysteresis": 2,
                 "least": 0.5, "most": 4096}})";

// The keys of all that a document may say.
std::vector<std::string> KeysOf(const OptionTable& table) {
  std::vector<std::string> keys;
  for (const Option& row : table.rows()) {
    if (row.key.empty()) continue;
    if (!row.open) keys.push_back(row.key);
    const OptionTable of_element = row.open ? row.open() : OptionTable();
    for (const std::string& key : KeysOf(of_element)) {
      keys.push_back(row.key + "[]." + key);
    }
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

// Structures are taken apart by all of their members' names here, so that one
// that is new does not compile before it is looked at: it is in the document,
// or is no part of one.
TEST(ZeroConfigTest, NoOptionIsForgotten) {
  ZeroOptions engine;
  EngineFiles files;
  const OptionTable table = EngineOptions(&engine, &files);
  Result<std::vector<std::string>> said = ReadConfig(kEveryKey, table);
  ASSERT_THAT(said, IsOk());
  const ZeroOptions none;
  const auto& [layout_file, machine_file] = files;
  EXPECT_EQ(layout_file, "layout.json");
  EXPECT_EQ(machine_file, "machine.json");
  {
    const auto& [stage, shard_group, optimizer_span, optimizer, groups,
                 clip_norm, count_norm, average_micro_batches, own_lease_ends,
                 loss_scaling, grad_mode, borrow_grads, guess_updates,
                 accumulation, layout, align, chunk_size, min_chunk, max_chunk,
                 device_budget, host_budget, nvme, home_limits, home_rules,
                 poison, keep_copies, prefetch, step_compute_ns, machine,
                 policy, values_piece, executor, device, make_device_slab,
                 make_nvme_queue, nvme_checksums, workers, host_passes, dry,
                 recorder, log, clock] = engine;
    EXPECT_NE(stage, none.stage);
    EXPECT_NE(shard_group, none.shard_group);
    EXPECT_NE(optimizer_span, none.optimizer_span);
    EXPECT_NE(optimizer.kind, none.optimizer.kind);
    EXPECT_FALSE(groups.empty());
    EXPECT_NE(clip_norm, none.clip_norm);
    EXPECT_NE(count_norm, none.count_norm);
    EXPECT_NE(average_micro_batches, none.average_micro_batches);
    EXPECT_NE(own_lease_ends, none.own_lease_ends);
    EXPECT_NE(poison, none.poison);
    EXPECT_NE(loss_scaling.kind, none.loss_scaling.kind);
    EXPECT_NE(grad_mode, none.grad_mode);
    EXPECT_NE(borrow_grads, none.borrow_grads);
    EXPECT_NE(guess_updates, none.guess_updates);
    EXPECT_NE(accumulation, none.accumulation);
    EXPECT_EQ(layout, nullptr);  // a file
    EXPECT_NE(align, none.align);
    EXPECT_FALSE(chunk_size.has_value());  // not with a layout
    EXPECT_NE(min_chunk, none.min_chunk);
    EXPECT_NE(max_chunk, none.max_chunk);
    EXPECT_NE(device_budget, none.device_budget);
    EXPECT_NE(host_budget, none.host_budget);
    EXPECT_FALSE(nvme.empty());
    EXPECT_NE(keep_copies, none.keep_copies);
    EXPECT_TRUE(home_limits.has_value());
    EXPECT_EQ(home_rules.size(), 2u);
    EXPECT_NE(prefetch, none.prefetch);
    EXPECT_NE(step_compute_ns, none.step_compute_ns);
    EXPECT_FALSE(machine.has_value());  // a file
    EXPECT_NE(policy, none.policy);
    // Collaborators are objects of the program.
    EXPECT_EQ(executor, nullptr);
    EXPECT_EQ(device, nullptr);
    EXPECT_EQ(make_nvme_queue, nullptr);
    EXPECT_EQ(values_piece, none.values_piece);
    EXPECT_EQ(nvme_checksums, nullptr);
    EXPECT_EQ(workers, nullptr);
    EXPECT_EQ(host_passes, nullptr);
    EXPECT_FALSE(dry.has_value());  // what the program's objects are
    EXPECT_EQ(recorder, nullptr);
    EXPECT_EQ(log, nullptr);
    EXPECT_EQ(clock, nullptr);
  }
  {
    const auto& [kind, lr, beta1, beta2, eps, weight_decay, momentum, dampening,
                 nesterov, moment_dtype, stochastic_rounding, seed, states,
                 span] = engine.optimizer;
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
    EXPECT_THAT(states, ElementsAre("z"));
    EXPECT_EQ(span, UpdateSpan::kParameter);
  }
  {
    const auto& [name, lr_scale, lr, beta1, beta2, eps, weight_decay, momentum,
                 kind, span, states] = engine.groups[0];
    EXPECT_EQ(name, "norms");
    EXPECT_EQ(lr_scale, 0.1);
    EXPECT_EQ(lr, 0.2);
    EXPECT_EQ(beta1, 0.7);
    EXPECT_EQ(beta2, 0.9);
    EXPECT_EQ(eps, 1);
    EXPECT_EQ(weight_decay, 0);
    EXPECT_EQ(momentum, 0.6);
    EXPECT_EQ(kind, OptimizerKind::kAdam);
    EXPECT_EQ(span, UpdateSpan::kParameter);
    EXPECT_EQ(states, 0);
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
    EXPECT_EQ(state, "master");
    EXPECT_EQ(tier, Tier::kNvme);
    EXPECT_EQ(decide, nullptr);  // a function of the program
    EXPECT_EQ(engine.home_rules[1].tier, Tier::kHost);
    EXPECT_EQ(engine.home_rules[1].glob, "*");
  }
  EXPECT_THAT(*engine.home_limits,
              testing::ElementsAre(HomeLimit{"exp_avg", Tier::kHost, KiB(4)},
                                   HomeLimit{"param", Tier::kDevice, 0.25},
                                   HomeLimit{"param", Tier::kNvme, 1.0}));
  // All keys are above, but for the one that a layout excludes.
  std::vector<std::string> keys = KeysOf(table);
  std::erase(keys, "chunk.bytes");
  std::erase(*said, "schema");
  std::sort(said->begin(), said->end());
  said->erase(std::unique(said->begin(), said->end()), said->end());
  EXPECT_EQ(*said, keys);
  EXPECT_EQ(ReadZeroConfig(R"({"chunk": {"bytes": 8192}})")->chunk_size,
            KiB(8));
  // What is written is read back as it was.
  ZeroOptions again;
  EngineFiles its_files;
  const OptionTable back = EngineOptions(&again, &its_files);
  const std::string text = WriteOptions(table).Dump();
  ASSERT_THAT(ReadConfig(text, back), IsOk());
  EXPECT_EQ(WriteOptions(back).Dump(), text);
}

TEST(ZeroConfigTest, RanksCompareAllButWhatIsARanksOwn) {
  ZeroOptions engine, none;
  EngineFiles files, no_files;
  const OptionTable table = EngineOptions(&engine, &files);
  ASSERT_THAT(ReadConfig(kEveryKey, table), IsOk());
  engine.chunk_size = KiB(8);
  const auto compared = SharedOptions(table);
  const auto defaults = SharedOptions(EngineOptions(&none, &no_files));
  ASSERT_EQ(compared.size(), defaults.size());
  std::set<std::string> names;
  for (size_t i = 0; i < compared.size(); ++i) {
    names.insert(compared[i].first);
    EXPECT_EQ(compared[i].first, defaults[i].first);
    EXPECT_NE(compared[i].second, defaults[i].second) << compared[i].first;
  }
  std::set<std::string> own;
  for (const Option& row : table.rows()) {
    if (!row.key.empty() && !names.contains(row.key)) own.insert(row.key);
  }
  EXPECT_THAT(own,
              ElementsAre("chunk.layout", "device_budget_bytes",
                          "host_budget_bytes", "machine", "nvme", "poison"));
}

TEST(ZeroConfigTest, RanksCompareARowThatIsNew) {
  const auto hash_of_new = [](int value) {
    ZeroOptions engine;
    EngineFiles files;
    OptionTable table = EngineOptions(&engine, &files);
    table.Whole("new", &value, 0, 9);
    const auto compared = SharedOptions(table);
    EXPECT_EQ(compared.back().first, "new");
    return compared.back().second;
  };
  EXPECT_EQ(hash_of_new(1), hash_of_new(1));
  EXPECT_NE(hash_of_new(1), hash_of_new(2));
}

// A row without a flag is of documents only.
TEST(ZeroConfigTest, EveryRowSaysWhoseItIs) {
  ZeroOptions engine;
  EngineFiles files;
  std::set<std::string> names;
  const OptionTable table = EngineOptions(&engine, &files);
  for (const Option& row : table.rows()) {
    EXPECT_TRUE(row.key.empty() || names.insert(row.key).second) << row.key;
    if (row.flag.empty()) continue;
    EXPECT_TRUE(names.insert(row.flag).second) << row.flag;
    EXPECT_FALSE(row.text.empty()) << row.flag;
    EXPECT_NE(row.uses & (kTrainFlag | kPlanFlag | kSimulateFlag), 0u)
        << row.flag;
  }
}

TEST(ZeroConfigTest, PrefetchAndLossScaleHaveFormsOfTheirOwn) {
  ZeroOptions engine;
  EngineFiles files;
  OptionTable table = EngineOptions(&engine, &files);
  const Option& prefetch = table.OfFlag("--prefetch");
  for (const int depth : {0, 8, 1024}) {
    EXPECT_THAT(ParseOption(prefetch, std::to_string(depth)), IsOk());
    EXPECT_EQ(engine.prefetch.depth, depth);
    EXPECT_EQ(engine.prefetch.mode, PrefetchMode::kDepth);
    EXPECT_THAT(OptionWords(prefetch),
                testing::ElementsAre(std::to_string(depth)));
  }
  EXPECT_THAT(ParseOption(prefetch, "deadlines"), IsOk());
  EXPECT_EQ(engine.prefetch.mode, PrefetchMode::kDeadlines);
  EXPECT_THAT(OptionWords(prefetch), testing::ElementsAre("deadlines"));
  for (const char* text : {"", "-1", "1025", "3x", " 3", "deadline", "1e3",
                           "99999999999999999999"}) {
    EXPECT_THAT(ParseOption(prefetch, text),
                StatusIs(ErrorCode::kInvalidArgument,
                         HasSubstr("from 0 to 1024 nor deadlines")))
        << text;
  }
  const Option& scale = table.OfFlag("--loss-scale");
  EXPECT_THAT(ParseOption(scale, "512"), IsOk());
  EXPECT_EQ(engine.loss_scaling.kind, LossScalingKind::kStatic);
  EXPECT_EQ(engine.loss_scaling.initial, 512);
  for (const char* text : {"-1", "0", "big", "2x"}) {
    EXPECT_THAT(ParseOption(scale, text),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr("dynamic")));
  }
}

TEST(ZeroConfigTest, TheFilesItNamesAreRead) {
  const TempDir dir;
  std::ofstream(dir.File("machine.json")) << R"({"schema": "castor.machine/1",
             "memory": {"bytes_per_second": 7000000}})";
  const auto with = [&](const std::string& key, const std::string& file) {
    return ReadZeroConfig("{" + key + ": \"" + dir.File(file) + "\"" +
                          (key.find('{') == key.npos ? "}" : "}}"));
  };
  const Result<ZeroOptions> read = with("\"machine\"", "machine.json");
  ASSERT_THAT(read, IsOk());
  ASSERT_TRUE(read->machine.has_value());
  EXPECT_EQ(read->machine->memory->bytes_per_second, 7000000);
  EXPECT_THAT(with("\"machine\"", "none.json"),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("none.json")));
  EXPECT_THAT(with("\"machine\"", ""), StatusIs(ErrorCode::kInvalidArgument));
  // A machine is no layout.
  EXPECT_THAT(with("\"chunk\": {\"layout\"", "machine.json"),
              StatusIs(ErrorCode::kMalformed, HasSubstr("machine.json")));
}

TEST(ZeroConfigTest, ACustomOptimizerNamesItsStates) {
  constexpr char kText[] =
      R"({"optimizer": {"kind": "custom", "states": [{"name": "z"},
          {"name": "exp_avg_sq"}], "span": "parameter"}})";
  ZeroOptions options;
  EngineFiles files;
  const OptionTable table = EngineOptions(&options, &files);
  ASSERT_THAT(ReadConfig(kText, table), IsOk());
  EXPECT_EQ(options.optimizer.kind, OptimizerKind::kCustom);
  EXPECT_THAT(options.optimizer.states, ElementsAre("z", "exp_avg_sq"));
  EXPECT_EQ(options.optimizer.span, UpdateSpan::kParameter);
  const Result<ZeroOptions> again = ReadZeroConfig(WriteConfig(table));
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->optimizer.states, options.optimizer.states);
  EXPECT_EQ(again->optimizer.span, options.optimizer.span);
}

TEST(ZeroConfigTest, AnOptimizersNumbersBeginWithThoseOfItsKind) {
  const Result<ZeroOptions> read =
      ReadZeroConfig(R"({"optimizer": {"kind": "lion", "beta1": 0.5}})");
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->optimizer.beta1, 0.5);
  EXPECT_EQ(read->optimizer.beta2,
            DefaultOptimizerOptions(OptimizerKind::kLion).beta2);
}

TEST(ZeroConfigTest, MomentsAreIn8BitsWhereAsked) {
  const Result<ZeroOptions> read =
      ReadZeroConfig(R"({"optimizer": {"moment_dtype": "8bit"}})");
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->optimizer.moment_dtype, DType::kBlocks8);
  EXPECT_THAT(
      ReadZeroConfig(R"({"optimizer": {"moment_dtype": "F16"}})"),
      StatusIs(ErrorCode::kInvalidArgument, HasSubstr("is not a known value")));
}

TEST(ZeroConfigTest, SizesAndTimesMayHaveUnits) {
  const Result<ZeroOptions> read = ReadZeroConfig(
      R"({"device_budget_bytes": "1.5GiB", "chunk": {"bytes": "4MB"},
          "nvme": [{"directory": "/tmp", "size_bytes": "1GiB"}],
          "step_compute_ns": "850ms", "host_budget_bytes": 4096})");
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->device_budget, MiB(1536));
  EXPECT_EQ(read->host_budget, KiB(4));
  EXPECT_EQ(read->chunk_size, Bytes(4'000'000));
  EXPECT_EQ(read->step_compute_ns, 850'000'000);
  ASSERT_EQ(read->nvme.size(), 1u);
  EXPECT_EQ(read->nvme[0].size, GiB(1));
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
      {R"({"optimizer_span": "node"})", "known are group, world"},
      {R"({"optimizer": {"beta3": 1}})",
       R"("optimizer" holds the unknown key "beta3")"},
      {R"({"stage": 4})",
       "\"stage\" is 4, which is not a whole number from 0 to 3"},
      {R"({"device_budget_bytes": "4G"})", "device_budget_bytes"},
      {R"({"device_budget_bytes": true})", "or \"4GiB\" belongs"},
      {R"({"nvme": [{}]})", "has no \"directory\""},
      {R"({"groups": [{"lr_scale": 1}]})", "has no \"name\""},
      {R"({"policy": "best"})", "known are auto, planned"},
      {R"({"clip_norm": "1"})", "where a number belongs"},
      {R"({"clip_norm": -1})", "not a number from 0"},
      {R"({"chunk": {"align_elements": 100}})", "multiple of 64"},
      {R"({"optimizer": {"beta1": "1"}})", "where a number belongs"},
      {R"({"schema": "castor.config/2"})", "this version reads"},
      {R"({"home_limit": []})", "did you mean home_limits?"},
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
       "param on host was given a limit before"},
      {R"({"home_limits": [{"state": "exp avg", "tier": "host", "bytes": 1}]})",
       "is no name of a state"},
      {R"({"home_limits": [{"state": "param", "tier": "host",
                            "fraction": 1.5}]})",
       "a number from 0 to 1"},
      {R"({"home_rules": [{"glob": "*"}]})", "has no \"tier\""},
      {R"({"home_rules": [{"tier": "hots"}]})", "did you mean host?"},
      {R"({"home_rules": [{"tier": "host", "dtype": "F99"}]})",
       "is no type, such as BF16"},
      {R"({"chunk": {"bytes": 4096, "layout": "a"}})", "exclude each other"},
      // An engine by itself has no rates, ranks and folders to save to.
      {R"({"launch": {"ranks": 2}})", "unknown key \"launch\""},
      {"{\n \"a\": }", "(line 2, column 7)"},
  };
  for (const Case& wrong : cases) {
    EXPECT_THAT(ReadZeroConfig(wrong.text),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr(wrong.why)))
        << wrong.text;
  }
}

}  // namespace
}  // namespace castor
