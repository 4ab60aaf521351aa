// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What one may choose for the example trainer and what changes no weight:
// layouts, homes, links, and a config in place of flags.

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/layout_file.h"
#include "chunk/text/json_value.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/record/record_reader.h"
#include "offload/twin/simulated_link.h"
#include "placement/run_event.h"
#include "placement/tier_model.h"
#include "tests/support/run_program.h"
#include "tests/support/status_matchers.h"
#include "tests/tools/examples/train_gpt_fixture.h"
#include "tools/models/files/param_list.h"

namespace castor {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A layout in chunks of `size` elements, for what --print-model says.
class TrainGptLayoutTest : public TrainGptTest {
 protected:
  std::string WriteLayoutFor(const std::vector<std::string>& args, int world,
                             int64_t size) {
    std::vector<std::string> asked = args;
    asked.push_back("--print-model");
    const ProgramResult listed = RunSmall(asked);
    EXPECT_EQ(listed.exit_code, 0) << listed.err;
    EXPECT_THAT(listed.err, IsEmpty());
    const auto list = ParseTsvList(listed.out);
    EXPECT_THAT(list, IsOk());
    const std::vector<ParamSpec>* const params = &list->params;
    const std::vector<Elements> sizes = {Elements(size)};
    const auto layout = PackChunks(*params, sizes, {.world = world});
    EXPECT_THAT(layout, IsOk());
    const auto text = WriteLayout(*params, *layout);
    EXPECT_THAT(text, IsOk());
    std::ofstream(dir_.File("layout.json")) << *text;
    return dir_.File("layout.json");
  }
};

TEST_F(TrainGptLayoutTest, LayoutsOfEverySortGiveTheSameWeights) {
  const std::pair<const char*, int> runs[] = {{"f32", 1}, {"bf16", 2}};
  for (const auto& [dtype, world] : runs) {
    const std::vector<std::string> base =
        Tight({"--ranks", std::to_string(world), "--dtype", dtype});
    std::vector<std::string> by_size = base;
    by_size.insert(by_size.end(), {"--chunk", "64KiB"});
    const ProgramResult chunked = RunSmall(by_size);
    EXPECT_EQ(chunked.exit_code, 0) << chunked.err;
    EXPECT_THAT(DigestIn(chunked.out), Not(IsEmpty()));
    for (const int64_t size : {4096, 16384, 32768}) {
      std::vector<std::string> args = base;
      args.insert(args.end(), {"--layout", WriteLayoutFor(base, world, size)});
      const ProgramResult run = RunSmall(args);
      EXPECT_EQ(run.exit_code, 0) << run.err;
      EXPECT_EQ(DigestIn(run.out), DigestIn(chunked.out));
    }
  }
  ExpectNothingLeft();
}

TEST_F(TrainGptLayoutTest, RefusesALayoutOfAnotherModelOrWorld) {
  const std::string layout = WriteLayoutFor({}, 1, 16384);
  const ProgramResult deeper = RunSmall({"--layout", layout, "--layers", "2"});
  EXPECT_EQ(deeper.exit_code, 2) << deeper.err;
  EXPECT_THAT(deeper.err, HasSubstr("its parameter 14 is \"ln_f.weight\""));
  const ProgramResult halved =
      RunSmall({"--layout", layout, "--dtype", "bf16"});
  EXPECT_EQ(halved.exit_code, 2) << halved.err;
  EXPECT_THAT(halved.err, HasSubstr("is \"wte.weight\" (F32 [256, 64]), and "
                                    "the one registered is \"wte.weight\" "
                                    "(BF16 [256, 64])"));
  const ProgramResult doubled = RunSmall({"--layout", layout, "--ranks", "2"});
  EXPECT_EQ(doubled.exit_code, 2) << doubled.err;
  EXPECT_THAT(doubled.err, HasSubstr("for 1 ranks and there are 2"));
}

TEST_F(TrainGptTest, HomesAreWhereOneAsksAndChangeNoWeight) {
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.end(),
                {"--ranks", "2", "--json", "--device-budget", "2MiB",
                 "--host-budget", "2MiB", "--nvme", dir_.File("nvme")});
    const ProgramResult result = RunSmall(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return *ParseJson(result.out);
  };
  const JsonValue plain = run({});
  const JsonValue asked = run(
      {"--limit", "param@device=50%", "--limit", "exp_avg@host=0%", "--limit",
       "exp_avg_sq@device=70KiB", "--place", "nvme:wte.weight,state=grad"});
  EXPECT_EQ(asked["weight_digest"].text(), plain["weight_digest"].text());
  const JsonValue& homes = asked["homes"];
  const int64_t params = homes["param"]["device_bytes"].integer() +
                         homes["param"]["host_bytes"].integer();
  EXPECT_LE(homes["param"]["device_bytes"].integer(), params / 2);
  EXPECT_GT(homes["param"]["device_bytes"].integer(), params / 2 - 65536);
  EXPECT_EQ(homes["exp_avg"]["nvme_bytes"], params);
  EXPECT_EQ(homes["exp_avg_sq"]["device_bytes"], 65536);
  EXPECT_EQ(homes["grad"]["nvme_bytes"], 65536);
  EXPECT_EQ(homes["master"]["host_bytes"], 0);
  ASSERT_EQ(asked["placed_by_rules"].size(), 1u);
  EXPECT_EQ(asked["placed_by_rules"][0].text(),
            "chunk 0: grad on nvme by rule 0 (\"wte.weight\": grad on nvme), "
            "which matches \"wte.weight\"");
  EXPECT_FALSE(plain.contains("placed_by_rules"));
  ExpectNothingLeft();
}

TEST_F(TrainGptTest, AMachineSlowsTheCopiesAndChangesNoWeight) {
  struct Link {
    const char* name;
    Tier from;
    Tier to;
    LinkModel model;
  };
  constexpr Link kLinks[] = {
      {"host_to_device", Tier::kHost, Tier::kDevice, {200'000'000, 300'000}},
      {"device_to_host", Tier::kDevice, Tier::kHost, {100'000'000, 500'000}},
      {"nvme_read", Tier::kNvme, Tier::kHost, {150'000'000, 200'000}},
      {"nvme_write", Tier::kHost, Tier::kNvme, {120'000'000, 100'000}}};
  JsonValue models = JsonValue::Object();
  for (const Link& link : kLinks) {
    models[link.name] =
        JsonValue::Object({{"bytes_per_second", link.model.bytes_per_second},
                           {"latency_ns", link.model.latency_ns}});
  }
  std::ofstream(dir_.File("machine"))
      << JsonValue::Object({{"schema", "castor.machine/1"}, {"links", models}})
             .Dump();
  const ProgramResult plain = RunSmall(Tight({"--ranks", "2", "--json"}));
  const ProgramResult slow =
      RunSmall(Tight({"--ranks", "2", "--json", "--machine",
                      dir_.File("machine"), "--record", dir_.File("record")}));
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  ASSERT_EQ(slow.exit_code, 0) << slow.err;
  const JsonValue fast = *ParseJson(plain.out);
  const JsonValue json = *ParseJson(slow.out);
  EXPECT_EQ(json["weight_digest"].text(), fast["weight_digest"].text());
  EXPECT_FALSE(fast.contains("links"));

  const auto record = ReadRecord(dir_.File("record"));
  ASSERT_THAT(record, IsOk());
  for (const Link& link : kLinks) {
    SCOPED_TRACE(link.name);
    int64_t transfers = 0;
    Bytes bytes;
    for (const RunEvent& event : record->events) {
      if (event.kind != RunEventKind::kTransfer || event.from != link.from ||
          event.to != link.to) {
        continue;
      }
      ++transfers;
      bytes += Bytes(event.bytes);
      EXPECT_GE(event.end_ns - event.begin_ns,
                link.model.latency_ns + WireNs(link.model, Bytes(event.bytes)));
    }
    EXPECT_GT(transfers, 5);
    const JsonValue use = json["links"][link.name];
    EXPECT_EQ(use["bytes_per_second"], link.model.bytes_per_second);
    // The norm comes from the device too, a few hundred bytes in every step.
    const int64_t norms = link.from == Tier::kDevice ? 2 * 3 : 0;
    EXPECT_EQ(use["copies"], transfers + norms);
    EXPECT_EQ(use["copied_bytes"], bytes.count() + norms * 552);
  }
  ExpectNothingLeft();
}

// The weights of a config are those of the flags that mean the same.
TEST_F(TrainGptTest, AConfigSaysWhatFlagsDo) {
  std::ofstream(dir_.File("config.json"))
      << R"({"schema": "castor.config/1", "stage": 2, "clip_norm": 0.5,
             "grad_mode": "fp32", "chunk": {"bytes": 131072},
             "groups": [{"name": "vectors", "weight_decay": 0}],
             "learning_rate": {"schedule": "cosine", "warmup_steps": 1},
             "launch": {"ranks": 2}})";
  const std::string digest = "weight digest: ";
  const ProgramResult by_flags =
      RunSmall({"--ranks", "2", "--dtype", "bf16", "--stage", "2", "--clip",
                "0.5", "--grad-mode", "fp32", "--decay", "matrices",
                "--schedule", "cosine", "--warmup", "1"});
  std::vector<std::string> args =
      Args({"--dtype", "bf16", "--config", dir_.File("config.json")});
  const auto chunk = std::find(args.begin(), args.end(), "--chunk");
  args.erase(chunk, chunk + 2);
  const ProgramResult by_config = Run(args);
  ASSERT_EQ(by_flags.exit_code, 0) << by_flags.err;
  ASSERT_EQ(by_config.exit_code, 0) << by_config.err;
  const size_t at = by_flags.out.find(digest);
  ASSERT_NE(at, std::string::npos);
  EXPECT_THAT(by_config.out, HasSubstr(by_flags.out.substr(at)));
  const ProgramResult twice = RunSmall({"--config", dir_.File("config.json")});
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_THAT(twice.err, HasSubstr("--chunk and \"chunk.bytes\""));
  std::ofstream(dir_.File("typo.json")) << "{\n  \"stagee\": 1\n}";
  const ProgramResult typo = RunSmall({"--config", dir_.File("typo.json")});
  EXPECT_EQ(typo.exit_code, 2);
  EXPECT_THAT(typo.err, HasSubstr("did you mean stage?"));
  EXPECT_THAT(typo.err, HasSubstr("(line 2, column 3)"));
}

}  // namespace
}  // namespace castor
