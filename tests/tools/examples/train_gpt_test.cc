// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The example trainer as a user meets it: what it prints, how it ends, and what
// it leaves behind.

#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/json_value.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/chunk_packer.h"
#include "chunk/layout_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/record/record_reader.h"
#include "offload/simulated_link.h"
#include "placement/run_event.h"
#include "placement/tier_model.h"
#include "placement/trace_file.h"
#include "tests/support/run_program.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tools/models/param_list.h"
#include "tools/models/trace_reader.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class TrainGptTest : public testing::Test {
 protected:
  TrainGptTest() {
    std::filesystem::create_directory(dir_.File("output"));
    std::filesystem::create_directory(dir_.File("nvme"));
    std::ofstream text(dir_.File("text"));
    for (int i = 0; i < 200; ++i) text << "line " << i * i << " of the text\n";
  }

  static bool Has(const std::vector<std::string>& args,
                  const std::string& flag) {
    return std::find(args.begin(), args.end(), flag) != args.end();
  }
  static std::string Program() { return DataPath("tools/examples/train_gpt"); }
  // A model small enough for a blink; what `more` sets, it sets.
  std::vector<std::string> Args(const std::vector<std::string>& more) const {
    const std::pair<std::string, std::string> small[] = {
        {"--text", dir_.File("text")},
        {"--layers", "1"},
        {"--heads", "2"},
        {"--embd", "64"},
        {"--seq", "16"},
        {"--steps", "3"},
        {"--chunk", "128KiB"}};
    std::vector<std::string> args = more;
    for (const auto& [flag, value] : small) {
      if (Has(more, flag)) continue;
      if (flag == "--chunk" && Has(more, "--layout")) continue;
      args.insert(args.end(), {flag, value});
    }
    return args;
  }
  ProgramResult Run(const std::vector<std::string>& args) const {
    return RunProgramToEnd(Program(), args, dir_.File("output"));
  }
  ProgramResult RunSmall(const std::vector<std::string>& more) const {
    return Run(Args(more));
  }
  // Budgets that leave something for the drive.
  std::vector<std::string> Tight(std::vector<std::string> more) const {
    more.insert(more.end(), {"--device-budget", "512KiB", "--host-budget",
                             "640KiB", "--nvme", dir_.File("nvme")});
    return more;
  }
  void ExpectNothingLeft() const {
    EXPECT_TRUE(std::filesystem::is_empty(dir_.File("nvme")));
  }
  static std::string DigestIn(const std::string& out) {
    const std::string label = "weight digest: ";
    const size_t at = out.find(label);
    return at == std::string::npos ? "" : out.substr(at + label.size(), 16);
  }

  TempDir dir_;
};

TEST_F(TrainGptTest, TrainsAndSumsUp) {
  const ProgramResult run =
      RunSmall(Tight({"--ranks", "2", "--digest-at", "2"}));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("step 1/3"), HasSubstr("step 3/3"),
                             HasSubstr("tokens/s"), HasSubstr("free")));
  EXPECT_THAT(run.out, AllOf(HasSubstr("mean loss of the first 3 steps"),
                             HasSubstr("of 512 KiB"), HasSubstr("of 640 KiB"),
                             HasSubstr("stalled"), HasSubstr("between ranks"),
                             HasSubstr("weight digest after step 2: "),
                             HasSubstr("weight digest: ")));
  ExpectNothingLeft();
}

// What budgets do not hold is a few MiB here, so both have a part of it.
TEST_F(TrainGptTest, DrivesShareWhatOneWouldHold) {
  const std::vector<std::string> model = {
      "--embd",          "128",  "--layers",      "3",    "--chunk", "256KiB",
      "--device-budget", "6MiB", "--host-budget", "5MiB", "--nvme"};
  auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> args = model;
    args.insert(args.end(), more.begin(), more.end());
    return RunSmall(args);
  };
  const std::string second = dir_.File("second");
  std::filesystem::create_directory(second);
  const ProgramResult one = with({dir_.File("nvme")});
  const ProgramResult two =
      with({dir_.File("nvme") + ":16MiB", "--nvme", second + ":3MiB"});
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(two.exit_code, 0) << two.err;
  EXPECT_EQ(DigestIn(one.out), DigestIn(two.out));
  EXPECT_THAT(two.err, AllOf(HasSubstr("nvme\""), HasSubstr("second\"")));
  EXPECT_THAT(two.out, AllOf(HasSubstr("of 19 MiB"),
                             HasSubstr("written to nvme in a step: at most")));
  EXPECT_TRUE(std::filesystem::is_empty(second));
  ExpectNothingLeft();
}

TEST_F(TrainGptTest, OneRankEqualsTheReference) {
  const ProgramResult castor = RunSmall(Tight({"--accumulate", "2"}));
  const ProgramResult reference =
      RunSmall({"--accumulate", "2", "--reference"});
  EXPECT_EQ(castor.exit_code, 0) << castor.err;
  EXPECT_EQ(reference.exit_code, 0) << reference.err;
  EXPECT_THAT(DigestIn(castor.out), Not(IsEmpty()));
  EXPECT_EQ(DigestIn(castor.out), DigestIn(reference.out));
}

// A layout in chunks of `sizes` elements, for what --print-model says.
class TrainGptLayoutTest : public TrainGptTest {
 protected:
  std::string WriteLayoutFor(const std::vector<std::string>& args, int world,
                             const std::vector<int64_t>& sizes) {
    std::vector<std::string> asked = args;
    asked.push_back("--print-model");
    const ProgramResult listed = RunSmall(asked);
    EXPECT_EQ(listed.exit_code, 0) << listed.err;
    EXPECT_THAT(listed.err, IsEmpty());
    const auto params = ParseTsvList(listed.out);
    EXPECT_THAT(params, IsOk());
    std::vector<std::vector<Elements>> classes(1);
    for (const int64_t size : sizes) classes[0].emplace_back(size);
    const auto layout = PackChunks(*params, classes, {.world = world});
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
    for (const std::vector<int64_t>& sizes :
         {std::vector<int64_t>{16384}, std::vector<int64_t>{32768},
          std::vector<int64_t>{512, 4096, 16384}}) {
      std::vector<std::string> args = base;
      args.insert(args.end(), {"--layout", WriteLayoutFor(base, world, sizes)});
      const ProgramResult run = RunSmall(args);
      EXPECT_EQ(run.exit_code, 0) << run.err;
      EXPECT_EQ(DigestIn(run.out), DigestIn(chunked.out));
      EXPECT_EQ(sizes.size() > 1, run.out.find(" of up to ") != run.out.npos)
          << run.out;
    }
  }
  ExpectNothingLeft();
}

TEST_F(TrainGptLayoutTest, RefusesALayoutOfAnotherModelOrWorld) {
  const std::string layout = WriteLayoutFor({}, 1, {16384});
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

TEST_F(TrainGptTest, PrintsOneJsonDocument) {
  const ProgramResult run = RunSmall({"--json", "--dtype", "bf16"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const Result<JsonValue> document = ParseJson(run.out);
  ASSERT_THAT(document, IsOk()) << run.out;
  const JsonValue& json = *document;
  EXPECT_EQ(json["schema"], "castor.train.1");
  EXPECT_EQ(json["losses"].size(), 3u);
  EXPECT_EQ(json["model"]["dtype"], "BF16");
  EXPECT_TRUE(json["tiers"]["device"]["peak_bytes"].is_integer());
}

TEST_F(TrainGptTest, RecordsTheRun) {
  const ProgramResult run =
      RunSmall({"--record", dir_.File("record"), "--ranks", "2"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const auto record = ReadRecord(dir_.File("record"));
  ASSERT_THAT(record, IsOk());
  EXPECT_THAT(record->completeness, IsOk());
  EXPECT_EQ(record->ranks.size(), 2u);
  // Tokens and targets of two sequences of 16, in a page each.
  ASSERT_EQ(record->arenas.size(), 2u);
  for (const RunArenaInfo& arena : record->arenas) {
    EXPECT_EQ(arena.name, "batches");
    EXPECT_THAT(arena.allocator, HasSubstr("jemalloc 5."));
    EXPECT_EQ(arena.buffers, 2);
    EXPECT_EQ(arena.requested_bytes, 2 * 2 * 16 * 4);
    EXPECT_EQ(arena.peak_bytes, 8192);
    EXPECT_EQ(arena.budget_bytes, 8192);
    EXPECT_EQ(arena.live_bytes, 8192);
  }
  EXPECT_THAT(run.out, HasSubstr("pinned batches (jemalloc 5."));
  EXPECT_THAT(record->events, Not(IsEmpty()));
}

TEST_F(TrainGptTest, WritesTheTraceOfTheLastStep) {
  const std::string file = dir_.File("step.json");
  const ProgramResult run =
      RunSmall({"--trace", file, "--ranks", "2", "--json"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const Result<TraceFile> trace = ReadTraceFile(file);
  ASSERT_THAT(trace, IsOk());
  EXPECT_EQ(trace->rank, 0);
  EXPECT_EQ(trace->world, 2);
  // The embeddings first, then the block, the last norm at the end.
  ASSERT_EQ(trace->params.size(), 16u);
  EXPECT_EQ(trace->params.front(), "wte.weight");
  EXPECT_EQ(trace->params.back(), "ln_f.bias");
  const JsonValue said = (*ParseJson(run.out))["trace"];
  EXPECT_EQ(said["file"].text(), file);
  EXPECT_EQ(said["schema"].text(), "castor.trace/1");
  EXPECT_EQ(said["step"], 3);
  EXPECT_EQ(said["chunks"], static_cast<int64_t>(trace->chunks.size()));
  EXPECT_EQ(said["parameters"], 16);
  EXPECT_EQ(said["moments"], static_cast<int64_t>(trace->step.accesses.size()));

  // Again, with other text: the trace does not depend on it, and replaces the
  // one that is there.
  const ProgramResult again = RunSmall(
      {"--trace", file, "--ranks", "2", "--seed", "7", "--steps", "1"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("trace of the last step: "));
  EXPECT_THAT(ReadTraceFile(file), IsOkAndHolds(*trace));
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

TEST_F(TrainGptTest, ASignalEndsItAfterTheStepUnderWay) {
  for (int signal : {SIGINT, SIGTERM}) {
    RunningProgram program(Program(),
                           Args(Tight({"--ranks", "2", "--steps", "1000000",
                                       "--record", dir_.File("record")})),
                           dir_.File("output"));
    ASSERT_TRUE(program.WaitForError("step 5/"));
    program.Signal(signal);
    const ProgramResult run = program.Wait();
    EXPECT_EQ(run.exit_code, 6) << run.err;
    EXPECT_THAT(run.err, HasSubstr("stopped after step"));
    EXPECT_THAT(run.out, HasSubstr("weight digest: "));
    const auto record = ReadRecord(dir_.File("record"));
    ASSERT_THAT(record, IsOk());
    EXPECT_THAT(record->completeness, IsOk());
    ExpectNothingLeft();
  }
}

TEST_F(TrainGptTest, ARunAfterAKilledOneReclaimsItsFiles) {
  RunningProgram program(Program(), Args(Tight({"--steps", "1000000"})),
                         dir_.File("output"));
  ASSERT_TRUE(program.WaitForError("step 1/"));
  program.Signal(SIGKILL);
  EXPECT_EQ(program.Wait().signal, SIGKILL);
  EXPECT_FALSE(std::filesystem::is_empty(dir_.File("nvme")));
  const ProgramResult next = RunSmall(Tight({}));
  EXPECT_EQ(next.exit_code, 0) << next.err;
  ExpectNothingLeft();
}

TEST_F(TrainGptTest, TwoRunsShareAFolder) {
  RunningProgram other(Program(), Args(Tight({"--steps", "20"})),
                       dir_.File("output"));
  const ProgramResult one = RunSmall(Tight({"--steps", "20"}));
  const ProgramResult two = other.Wait();
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(two.exit_code, 0) << two.err;
  EXPECT_EQ(DigestIn(one.out), DigestIn(two.out));
  ExpectNothingLeft();
}

TEST_F(TrainGptTest, HelpNamesEveryFlagOfTheIssue) {
  const ProgramResult run = Run({"--help"});
  EXPECT_EQ(run.exit_code, 0);
  for (const char* flag :
       {"--text",       "--layers",      "--heads",         "--embd",
        "--dtype",      "--batch",       "--seq",           "--lr",
        "--ranks",      "--stage",       "--device-budget", "--host-budget",
        "--nvme",       "--chunk",       "--steps",         "--seed",
        "--accumulate", "--clip",        "--record",        "--reference",
        "--layout",     "--print-model", "--machine",       "--trace",
        "--limit",      "--place",       "--shard-group"}) {
    EXPECT_THAT(run.out, HasSubstr(flag));
  }
}

// A command line that is refused.
struct Refused {
  std::string name;
  std::vector<std::string> args;  // after those of a small run
  int exit_code;
  std::string says;
};

class TrainGptRefusalTest : public TrainGptTest,
                            public testing::WithParamInterface<Refused> {};

TEST_P(TrainGptRefusalTest, SaysWhyAndLeavesNothingBehind) {
  std::ofstream(dir_.File("empty"));
  std::ofstream(dir_.File("short")) << "short";
  std::vector<std::string> args = GetParam().args;
  for (std::string& arg : args) {
    const size_t at = arg.find("DIR");
    if (at != std::string::npos) arg.replace(at, 3, dir_.path().string());
  }
  const ProgramResult run = RunSmall(args);
  EXPECT_EQ(run.exit_code, GetParam().exit_code) << run.err;
  EXPECT_THAT(run.err, HasSubstr(GetParam().says));
  EXPECT_THAT(run.out, IsEmpty());
  EXPECT_THAT(run.err, Not(HasSubstr("step 1/")));
  ExpectNothingLeft();
}

INSTANTIATE_TEST_SUITE_P(
    BadInput, TrainGptRefusalTest,
    testing::Values(
        Refused{"UnknownFlag",
                {"--device-buget", "1GiB"},
                2,
                "did you mean --device-budget?"},
        Refused{"UnknownDtype", {"--dtype", "fp32"}, 2, "f32"},
        Refused{"StageFour", {"--stage", "4"}, 2, "from 0 to 3"},
        Refused{"GroupsOfThree",
                {"--ranks", "4", "--shard-group", "3"},
                2,
                "4 ranks cannot be cut into shard groups of 3"},
        Refused{"NegativeSize", {"--host-budget", "-1"}, 2, "--host-budget"},
        Refused{"AmbiguousSize", {"--host-budget", "1G"}, 2, "1G"},
        Refused{"NoRanks", {"--ranks", "0"}, 2, "from 1 to"},
        Refused{"OddHeads", {"--heads", "5"}, 2, "not a multiple of heads 5"},
        Refused{"BadNvmeSize", {"--nvme", "DIR/nvme:lots"}, 2, "lots"},
        Refused{"OneDriveTwice",
                {"--nvme", "DIR/nvme", "--nvme", "DIR/nvme/:4GiB"},
                2,
                "given before"},
        Refused{"ReferenceOfTwoRanks",
                {"--reference", "--ranks", "2"},
                2,
                "one rank"},
        Refused{"ReferenceRecorded",
                {"--reference", "--record", "DIR/r"},
                2,
                "--record"},
        Refused{"PrefetchBothWays",
                {"--prefetch", "2", "--no-prefetch"},
                2,
                "contradict"},
        Refused{"DigestAfterTheEnd", {"--digest-at", "4"}, 2, "no step 4"},
        Refused{"MoreThanTheMachineHas",
                {"--batch", "65536", "--embd", "65536"},
                5,
                "are available"},
        Refused{"NoSuchText", {"--text", "DIR/nowhere"}, 2, "no such file"},
        Refused{"EmptyText", {"--text", "DIR/empty"}, 4, "holds no text"},
        Refused{"ShortText", {"--text", "DIR/short"}, 4, "a sequence takes 17"},
        Refused{
            "UnreadableText", {"--text", "/proc/self/mem"}, 5, "cannot read"},
        Refused{"DeviceBelowOneChunk",
                {"--device-budget", "64KiB"},
                3,
                "device budget"},
        Refused{"TooLittleAltogether",
                {"--device-budget", "512KiB", "--host-budget", "640KiB"},
                3,
                "budget"},
        Refused{"NvmeTooSmall",
                {"--device-budget", "512KiB", "--host-budget", "640KiB",
                 "--nvme", "DIR/nvme:4KiB"},
                3,
                "nvme"},
        Refused{"NoNvmeFolder",
                {"--device-budget", "512KiB", "--host-budget", "640KiB",
                 "--nvme", "DIR/nowhere"},
                5,
                "nowhere"},
        Refused{"ReadOnlyNvme",
                {"--device-budget", "512KiB", "--host-budget", "640KiB",
                 "--nvme", "/proc"},
                5,
                "/proc"},
        Refused{"LayoutNowhere", {"--layout", "DIR/no"}, 2, "no such file"},
        Refused{"LayoutOfNothing", {"--layout", "DIR/empty"}, 4, "not JSON"},
        Refused{"LayoutAndChunk",
                {"--layout", "DIR/empty", "--chunk", "1MiB"},
                2,
                "exclude each other"},
        Refused{"MachineNowhere", {"--machine", "DIR/no"}, 2, "no such file"},
        Refused{"MachineOfNothing", {"--machine", "DIR/empty"}, 4, "/empty"},
        Refused{"TraceNowhere", {"--trace", "DIR/nowhere/t"}, 2, "--trace"},
        Refused{"TraceOfAReference",
                {"--reference", "--trace", "DIR/t"},
                2,
                "leave --trace away"},
        Refused{"LimitsThatLeaveSomething",
                {"--host-budget", "8MiB", "--limit", "grad@host=1KiB"},
                3,
                "the limits of grad leave"},
        Refused{"LimitsAboveABudget",
                {"--host-budget", "640KiB", "--limit", "grad@host=100%"},
                3,
                "raise the host budget by"},
        Refused{"LimitAndRuleConflict",
                {"--host-budget", "8MiB", "--limit", "param@device=1KiB",
                 "--place", "device:wte.weight,state=param"},
                3,
                "rules put"},
        Refused{"ARuleForNothing",
                {"--place", "host:wte.wieght"},
                2,
                "is \"wte.weight\" meant?"},
        Refused{"RecordNowhere", {"--record", "DIR/nowhere/r"}, 2, "nowhere"}),
    [](const auto& info) { return info.param.name; });

// Ranks that are GPUs need a GPU, and the program says what it lacks.
TEST_F(TrainGptTest, NcclIsForMachinesThatHaveIt) {
  const ProgramResult lacking = RunSmall({"--backend", "nccl"});
  EXPECT_EQ(lacking.exit_code, 5) << lacking.err;
  EXPECT_THAT(lacking.err, HasSubstr("CUDA"));
  EXPECT_THAT(lacking.out, IsEmpty());
  const std::pair<std::vector<std::string>, std::string> wrong[] = {
      {{"--backend", "nccl", "--ranks", "2"}, "a rank in each process"},
      {{"--reduce", "native"}, "--backend nccl"},
      {{"--backend", "ncll"}, "did you mean nccl"},
      {{"--rank", "1"}, "the number of ranks"},
      {{"--rank", "2", "--ranks", "2"}, "rank 2 of 2"}};
  for (const auto& [flags, why] : wrong) {
    const ProgramResult run = RunSmall(flags);
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_THAT(run.err, HasSubstr(why));
  }
}

// Whoever starts a process as the only one of its world, and gives it other
// numbers, contradicts himself; a shell of Slurm's only hands variables on.
TEST_F(TrainGptTest, TheOnlyProcessOfALauncherHasOneRank) {
  const auto run_with =
      [&](const std::vector<std::pair<const char*, const char*>>& variables,
          const std::vector<std::string>& flags) {
        for (const auto& [name, value] : variables) setenv(name, value, 1);
        const ProgramResult run = RunSmall(flags);
        for (const auto& [name, value] : variables) unsetenv(name);
        return run;
      };
  const std::vector<std::string> three = {"--ranks", "3", "--steps", "1"};
  const ProgramResult torch =
      run_with({{"RANK", "0"}, {"WORLD_SIZE", "1"}}, three);
  EXPECT_EQ(torch.exit_code, 2) << torch.err;
  EXPECT_THAT(torch.err, AllOf(HasSubstr("number of ranks was given as 3"),
                               HasSubstr("torchrun"), HasSubstr("says 1")));
  const ProgramResult mpi = run_with(
      {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}, three);
  EXPECT_EQ(mpi.exit_code, 2) << mpi.err;
  EXPECT_THAT(mpi.err, HasSubstr("Open MPI"));
  EXPECT_EQ(run_with({{"RANK", "0"}, {"WORLD_SIZE", "1"}},
                     {"--ranks", "1", "--steps", "1"})
                .exit_code,
            0);
  EXPECT_EQ(
      run_with({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}, three)
          .exit_code,
      0);
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
}

}  // namespace
}  // namespace castor
