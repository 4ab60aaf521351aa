// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What is planned, in a process: from flags to the report.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/dry/dry_run.h"
#include "collectives/dry/simulation_result.h"
#include "offload/kernels/optimizer_options.h"
#include "placement/plan.h"
#include "placement/trace/grads_in_place.h"
#include "placement/trace/trace_file.h"
#include "tests/support/status_matchers.h"
#include "tests/tools/models/model_files.h"
#include "tools/cli/flags.h"
#include "tools/commands/plan/plan_command.h"
#include "tools/commands/simulate/simulate_command.h"
#include "tools/models/files/plan_reader.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class PlanRunTest : public testing::Test {
 protected:
  PlanRunTest() {
    std::string list = "embed.weight\t512,64\tF32\n";
    for (int layer = 0; layer < 6; ++layer) {
      const std::string prefix = "h." + std::to_string(layer) + ".";
      list += prefix + "attn.weight\t64,192\tF32\n";
      list += prefix + "attn.bias\t192\tF32\n";
      list += prefix + "mlp.weight\t64,256\tF32\n";
    }
    list += "head.weight\t512,64\tF32\n";
    model_ = folder_.Write("model.tsv", list);
    flags_.model = model_;
    flags_.read.order = ParamOrder::kFile;
    flags_.device_budget = MiB(2);
    flags_.host_budget = MiB(4);
    flags_.engine.chunk_size = KiB(128);
  }

  Result<PlanReport> Run() {
    return RunPlan(flags_, Console{.out = out_, .err = err_});
  }

  TempFolder folder_;
  std::string model_;
  PlanFlags flags_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(PlanRunTest, EveryByteOfTheDeviceIsAccountedFor) {
  flags_.seq = 32;
  flags_.width = 64;
  flags_.heads = 4;
  flags_.cuda_context = KiB(100);
  flags_.nccl = KiB(28);
  const PlanReport report = Run().value();
  const PlanOutcome& outcome = report.outcome;
  ASSERT_THAT(outcome.fits, IsOk());
  EXPECT_GT(outcome.activations, KiB(64));
  EXPECT_EQ(outcome.device_total(), outcome.seal->table.total(Tier::kDevice) +
                                        outcome.activations + KiB(128));
  EXPECT_EQ(outcome.castor_device, MiB(2) - outcome.activations - KiB(128));
  EXPECT_LE(outcome.seal->table.total(Tier::kDevice), outcome.castor_device);

  flags_.step.recompute = true;
  const PlanReport again = Run().value();
  EXPECT_LT(again.outcome.activations, outcome.activations);
  flags_.borrow = true;
  const PlanReport borrowed = Run().value();
  EXPECT_EQ(borrowed.outcome.castor_device, MiB(2) - KiB(128));
  EXPECT_GE(borrowed.outcome.seal->table.at(ByteClass::kLeases, Tier::kDevice),
            borrowed.outcome.activations);
}

TEST_F(PlanRunTest, OtherStatesOfAnOptimizerTakeHostMemory) {
  flags_.host_budget = MiB(8);
  const PlanOutcome usual = Run().value().outcome;
  flags_.other_states = MiB(1);
  const PlanReport report = Run().value();
  ASSERT_THAT(report.outcome.fits, IsOk());
  EXPECT_EQ(report.outcome.host_total(), usual.host_total() + MiB(1));
  EXPECT_EQ(report.outcome.engine_budget(Tier::kHost), MiB(7));
  EXPECT_THAT(PlanDocument(report).Page(), HasSubstr("states beside chunks"));
  flags_.other_states = MiB(9);
  const PlanReport refused = Run().value();
  EXPECT_THAT(refused.outcome.fits,
              StatusIs(ErrorCode::kInfeasible, HasSubstr("beside chunks")));
  EXPECT_GE(refused.outcome.raises.host, MiB(1));
}

TEST_F(PlanRunTest, OtherStatesNeedNoHostBudgetThatNobodyGave) {
  flags_.device_budget.reset();
  flags_.host_budget.reset();
  flags_.other_states = KiB(1);
  const PlanOutcome roomy = Run().value().outcome;
  ASSERT_THAT(roomy.fits, IsOk());
  EXPECT_EQ(roomy.host_total(), KiB(1));
  // What is given may lack for them alone, and the raise is enough.
  flags_.host_budget = Bytes(100);
  const PlanOutcome lacks = Run().value().outcome;
  EXPECT_THAT(lacks.fits, StatusIs(ErrorCode::kInfeasible));
  ASSERT_EQ(lacks.raises.host, KiB(1) - Bytes(100));
  *flags_.host_budget += *lacks.raises.host;
  EXPECT_THAT(Run().value().outcome.fits, IsOk());
  // Nor where the device needs help.
  flags_.host_budget.reset();
  flags_.device_budget = KiB(300);
  const PlanOutcome spread = Run().value().outcome;
  EXPECT_THAT(spread.fits, StatusIs(ErrorCode::kInfeasible));
  ASSERT_TRUE(spread.raises.host);
  flags_.host_budget = *spread.raises.host;
  EXPECT_THAT(Run().value().outcome.fits, IsOk());
}

TEST_F(PlanRunTest, AListTellsWhatAnOptimizerKeepsOfEachParameter) {
  flags_.host_budget = MiB(8);
  flags_.engine.optimizer = DefaultOptimizerOptions(OptimizerKind::kCustom);
  flags_.engine.optimizer.states = {"slow", "fast"};
  const auto with = [&](const std::string& first, const std::string& second) {
    flags_.model = folder_.Write(
        "told.tsv", "a\t256,128\tF32" + first + "\nb\t256,128\tF32" + second);
    return Run();
  };
  const auto kept = [](const PlanReport& report, int state) {
    return report.outcome.seal->table.total(
        static_cast<ByteClass>(OptimizerState(state)));
  };
  const PlanReport both = with("", "").value();
  EXPECT_EQ(kept(both, 0), KiB(256));
  EXPECT_EQ(kept(both, 1), KiB(256));
  const PlanReport one = with("\twhole,states=1", "").value();
  EXPECT_EQ(kept(one, 0), KiB(256));
  EXPECT_EQ(kept(one, 1), KiB(128));
  // A shard of two ranks has half a chunk, in which the matrix is cut.
  flags_.world = 2;
  EXPECT_THAT(with("\twhole,states=1", "").status(),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("whole")));
  flags_.world = 1;
  EXPECT_THAT(with("\tstates=3", "").status(),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("--state")));
  flags_.engine.optimizer = {};
  EXPECT_THAT(
      with("\tstates=1", "").status(),
      StatusIs(ErrorCode::kInvalidArgument, HasSubstr("--optimizer custom")));
  EXPECT_THAT(
      with("\twhole", "").status(),
      StatusIs(ErrorCode::kInvalidArgument, HasSubstr("--optimizer custom")));
}

TEST_F(PlanRunTest, GradientsAreCountedAsTheyAreKept) {
  flags_.dtype = "bf16";
  flags_.step.micro_batches = 3;
  flags_.world = 2;
  const PlanOutcome usual = Run().value().outcome;
  flags_.engine.grad_mode = GradMode::kFp32;
  const PlanOutcome fp32 = Run().value().outcome;
  flags_.engine.accumulation = AccumulationOrder::kLast;
  const PlanReport whole = Run().value();
  for (const PlanOutcome* each : {&usual, &fp32, &whole.outcome}) {
    ASSERT_THAT(each->fits, IsOk());
  }
  const auto grads = [](const PlanOutcome& outcome) {
    return outcome.seal->table.total(ByteClass::kGrads);
  };
  EXPECT_EQ(grads(fp32), grads(usual) * 2);
  EXPECT_EQ(fp32.traffic().reduce_scatter.bytes,
            usual.traffic().reduce_scatter.bytes * 2);
  // Reduced once, and all on the device until then.
  EXPECT_EQ(whole.outcome.traffic().reduce_scatter.bytes * 3,
            fp32.traffic().reduce_scatter.bytes);
  EXPECT_GT(
      whole.outcome.seal->table.at(ByteClass::kGathered, Tier::kDevice),
      fp32.seal->table.at(ByteClass::kGathered, Tier::kDevice) + grads(fp32));
  EXPECT_THAT(PlanDocument(whole).Page(), HasSubstr("gradients reduced once"));
}

TEST_F(PlanRunTest, GradientsInThePlaceOfParametersNeedFewerSlots) {
  flags_.dtype = "bf16";
  flags_.world = 2;
  const PlanOutcome usual = Run().value().outcome;
  flags_.engine.grad_mode = GradMode::kReuse;
  const PlanOutcome reuse = Run().value().outcome;
  const auto slots = [](const PlanOutcome& outcome) {
    int64_t sum = 0;
    for (int64_t each : outcome.seal->memory.needed_slots) sum += each;
    return sum;
  };
  ASSERT_THAT(reuse.fits, IsOk());
  EXPECT_LT(slots(reuse), slots(usual));
  EXPECT_EQ(reuse.traffic().reduce_scatter.bytes,
            usual.traffic().reduce_scatter.bytes);
  flags_.step.micro_batches = 3;
  EXPECT_THAT(Run(), StatusIs(ErrorCode::kInvalidArgument,
                              HasSubstr("3 micro-batches")));
  flags_.step.micro_batches = 1;
  flags_.dtype = "f32";
  EXPECT_THAT(
      Run(), StatusIs(ErrorCode::kInvalidArgument, HasSubstr("has no master")));
}

TEST_F(PlanRunTest, TimesAreBytesOverWhatTheMachineDoes) {
  flags_.files.machine = folder_.Write(
      "machine.json",
      R"({"schema": "castor.machine/1", "links": {)"
      R"("host_to_device": {"bytes_per_second": 1000000, "latency_ns": 0},)"
      R"("device_to_host": {"bytes_per_second": 1000000, "latency_ns": 1000}},)"
      R"("optimizer": {"bytes_per_second": 28000000}})");
  flags_.device_budget = KiB(700);
  flags_.compute = 2'000'000'000;
  const PlanReport report = Run().value();
  ASSERT_THAT(report.outcome.fits, IsOk());
  const StepTraffic& traffic = report.outcome.traffic();
  double sum = 0;
  for (const ResourceTime& time : report.outcome.times.resources) {
    ASSERT_TRUE(time.seconds) << time.name;
    sum += *time.seconds;
    if (time.name == "host_to_device") {
      EXPECT_DOUBLE_EQ(
          *time.seconds,
          static_cast<double>(
              traffic.on(Tier::kHost, Tier::kDevice).bytes.count()) /
              1e6);
    }
    if (time.name == "optimizer") {
      EXPECT_DOUBLE_EQ(
          *time.seconds,
          static_cast<double>(traffic.updated_on_host.count()) / 1e6);
    }
  }
  EXPECT_EQ(report.outcome.times.resources.size(), 4u);
  // The sum of squares comes from the device, too.
  const double norm = static_cast<double>(traffic.norm.count()) / 1e6 + 1e-6;
  EXPECT_DOUBLE_EQ(*report.outcome.times.most_seconds, sum + norm);
  // The step itself lies between the bounds, and after steps enough does not
  // change any more.
  ASSERT_TRUE(report.outcome.simulated);
  const double least = *report.outcome.times.least_seconds;
  EXPECT_GE(*report.outcome.step_seconds(), least * 0.999);
  EXPECT_LE(*report.outcome.step_seconds(), sum * 1.001);
  const EngineRequest engine = EngineRequestOf(report.subject, report.outcome);
  const std::vector<const StepTrace*> steps(6, &report.outcome.step);
  DryRunRequest run;
  run.params = engine.params;
  run.options = engine.options;
  run.declared = engine.declared;
  run.layout = &report.outcome.layout;
  run.steps = steps;
  run.machine = *report.subject.machine;
  const Result<SimulationResult> longer = DryRun(run);
  ASSERT_THAT(longer, IsOk());
  EXPECT_EQ(longer->steady().ns(), report.outcome.simulated->ns());
  EXPECT_EQ(longer->steady().traffic, traffic);
  EXPECT_THAT(
      PlanDocument(report).Page(),
      AllOf(HasSubstr("Time        a step takes "), HasSubstr("if nothing did"),
            HasSubstr("the trainer waits for")));
  EXPECT_EQ(PlanDocument(report).Json()["times"]["simulated"]["ns"].integer(),
            report.outcome.simulated->ns());
  for (const PlanVariant& variant : report.alternatives) {
    EXPECT_TRUE(variant.figures.step_seconds) << variant.what;
  }
  EXPECT_TRUE(
      std::is_sorted(report.alternatives.begin(), report.alternatives.end(),
                     [](const PlanVariant& a, const PlanVariant& b) {
                       return *a.figures.step_seconds < *b.figures.step_seconds;
                     }));

  flags_.nvme = MiB(4);
  flags_.host_budget = MiB(1);
  const PlanReport drives = Run().value();
  ASSERT_THAT(drives.outcome.fits, IsOk());
  EXPECT_EQ(drives.outcome.times.most_seconds, std::nullopt);
  EXPECT_FALSE(drives.outcome.simulated);
  EXPECT_THAT(drives.outcome.times.unknown, testing::Contains("nvme_read"));
  EXPECT_THAT(PlanDocument(drives).Page(),
              HasSubstr("unknown: the machine file has no nvme_read"));
  EXPECT_TRUE(PlanDocument(drives).Json()["times"]["simulated"].is_null());
}

TEST_F(PlanRunTest, UpdatesInTheBackwardSendNoGradientToTheDrive) {
  flags_.nvme = MiB(8);
  flags_.host_budget = MiB(1);
  flags_.engine.clip_norm = 0;  // its words take room, too
  const PlanReport after = Run().value();
  ASSERT_THAT(after.outcome.fits, IsOk());
  EXPECT_TRUE(
      std::ranges::any_of(after.alternatives, [](const PlanVariant& variant) {
        return variant.what == "--update-in-backward";
      }));
  flags_.update_in_backward = true;
  const PlanReport within = Run().value();
  ASSERT_THAT(within.outcome.fits, IsOk());
  // A chunk that is used in place is held while its gradient arrives, so its
  // update waits for the step.
  const MemoryPlan& memory = after.outcome.seal->memory;
  Bytes grads;
  int in_place = 0;
  for (size_t c = 0; c < memory.states.size(); ++c) {
    const StatePlace& grad =
        memory.states[c][static_cast<size_t>(StateKind::kGrad)];
    if (grad.bytes == Bytes(0) || grad.home != Tier::kNvme) continue;
    if (memory.problem.param_class[c] == kNoSlotClass) {
      ++in_place;
    } else {
      grads += grad.bytes;
    }
  }
  ASSERT_GT(grads, Bytes(0));
  ASSERT_GT(in_place, 0);
  const auto moved = [](const PlanReport& report, Tier from, Tier to) {
    return report.outcome.traffic().on(from, to).bytes;
  };
  for (const auto& [from, to] : {std::pair(Tier::kHost, Tier::kNvme),
                                 std::pair(Tier::kNvme, Tier::kHost)}) {
    EXPECT_EQ(moved(after, from, to) - moved(within, from, to), grads)
        << TierName(from);
  }
  EXPECT_THAT(PlanDocument(within).Page(),
              HasSubstr("updates in the backward"));
  EXPECT_TRUE(
      std::ranges::none_of(within.alternatives, [](const PlanVariant& variant) {
        return variant.what == "--update-in-backward";
      }));
  flags_.engine.clip_norm = 0.5;
  EXPECT_THAT(Run().status(), StatusIs(ErrorCode::kInvalidArgument,
                                       HasSubstr("--clip 0.5 clips by it")));
}

TEST_F(PlanRunTest, ChangesAreTheLeastThatFit) {
  flags_.device_budget = MiB(1);
  flags_.host_budget = MiB(1);
  const PlanReport report = Run().value();
  EXPECT_THAT(report.outcome.fits, StatusIs(ErrorCode::kInfeasible));
  EXPECT_FALSE(report.outcome.seal.has_value());
  bool host = false;
  for (const PlanVariant& change : report.changes) {
    const PlanFlags& changed = change.figures.flags;
    const PlanFlags asked = flags_;
    flags_ = changed;
    EXPECT_THAT(Run()->outcome.fits, IsOk()) << change.what;
    flags_ = asked;
    if (changed.host_budget == flags_.host_budget) continue;
    host = true;
    flags_ = changed;
    *flags_.host_budget -= MiB(1);
    EXPECT_THAT(Run()->outcome.fits, StatusIs(ErrorCode::kInfeasible));
    flags_ = asked;
  }
  EXPECT_TRUE(host);
  EXPECT_GE(report.changes.size(), 3u);
  EXPECT_TRUE(report.alternatives.empty());
  const std::string page = PlanDocument(report).Page();
  EXPECT_THAT(page, HasSubstr("Fits        no"));
  EXPECT_THAT(page, HasSubstr("castor plan "));
}

TEST_F(PlanRunTest, PlansARecordedStepToo) {
  PlanReport derived = Run().value();
  TraceFile trace;
  trace.chunks = TraceChunks(derived.outcome.layout);
  trace.step = derived.outcome.step;
  trace.step.leases = {{0, KiB(40)}, {3, Bytes(0)}};
  flags_.trace = folder_.Write("step.json", WriteTrace(trace));
  const PlanReport recorded = Run().value();
  ASSERT_THAT(recorded.outcome.fits, IsOk());
  EXPECT_EQ(recorded.outcome.activations, KiB(40));
  EXPECT_EQ(recorded.outcome.seal->table.at(ByteClass::kLeases, Tier::kDevice),
            KiB(40));
  flags_.engine.chunk_size = KiB(64);
  EXPECT_THAT(Run().status(),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("--chunk")));
}

// Of gradients in places of their own, as it were over parameters.
TEST_F(PlanRunTest, PlansARecordedStepInAnotherGradientMode) {
  flags_.dtype = "bf16";
  const PlanReport derived = Run().value();
  TraceFile trace;
  trace.chunks = TraceChunks(derived.outcome.layout);
  trace.step = derived.outcome.step;
  flags_.engine.grad_mode = GradMode::kReuse;
  const PlanReport wanted = Run().value();
  flags_.trace = folder_.Write("step.json", WriteTrace(trace));
  const PlanReport recorded = Run().value();
  ASSERT_THAT(wanted.outcome.fits, IsOk());
  ASSERT_THAT(recorded.outcome.fits, IsOk());
  EXPECT_FALSE(GradsInPlace(trace.step.accesses));
  EXPECT_TRUE(GradsInPlace(recorded.outcome.step.accesses));
  EXPECT_EQ(recorded.outcome.seal->memory.needed_slots,
            wanted.outcome.seal->memory.needed_slots);
  EXPECT_EQ(recorded.outcome.traffic().reduce_scatter.bytes,
            wanted.outcome.traffic().reduce_scatter.bytes);
}

TEST_F(PlanRunTest, ATraceSaysThatChunksAreUpdatedInTheBackward) {
  flags_.update_in_backward = true;
  const PlanReport asked = Run().value();
  ASSERT_THAT(asked.outcome.fits, IsOk());
  TraceFile trace;
  trace.chunks = TraceChunks(asked.outcome.layout);
  trace.step = asked.outcome.step;
  ASSERT_TRUE(trace.step.updates_early);
  flags_.update_in_backward = false;
  flags_.trace = folder_.Write("step.json", WriteTrace(trace));
  const PlanReport recorded = Run().value();
  ASSERT_THAT(recorded.outcome.fits, IsOk());
  EXPECT_TRUE(recorded.outcome.step.updates_early);
  EXPECT_EQ(recorded.outcome.request.options.clip_norm, 0);
  EXPECT_EQ(recorded.outcome.traffic().moved, asked.outcome.traffic().moved);
  const auto refuses = StatusIs(
      ErrorCode::kInvalidArgument,
      HasSubstr("the trace updates before the norm is known, and --clip 0.5"));
  flags_.engine.clip_norm = 0.5;
  EXPECT_THAT(Run(), refuses);
  SimulateFlags simulated;
  simulated.trace_file = flags_.trace;
  simulated.files.machine = folder_.Write(
      "machine.json",
      R"({"schema": "castor.machine/1", "links": {)"
      R"("host_to_device": {"bytes_per_second": 1000000, "latency_ns": 0}}})");
  simulated.device_budget = MiB(2);
  simulated.host_budget = MiB(8);
  const Console console{.out = out_, .err = err_};
  EXPECT_THAT(RunSimulate(simulated, console), IsOk());
  simulated.engine.clip_norm = 0.5;
  EXPECT_THAT(RunSimulate(simulated, console), refuses);
}

TEST_F(PlanRunTest, ClassesOfBytesAddUpToWhatIsPlanned) {
  flags_.world = 2;
  flags_.device_budget = KiB(700);
  const PlanReport report = Run().value();
  ASSERT_THAT(report.outcome.fits, IsOk());
  const JsonValue json = PlanDocument(report).Json();
  for (const JsonValue& tier : json["tiers"]) {
    int64_t sum = 0;
    for (const JsonValue& bytes : tier["classes"]) sum += bytes.integer();
    EXPECT_EQ(sum, tier["planned_bytes"].integer());
  }
  EXPECT_FALSE(json["alternatives"].empty());
  EXPECT_EQ(json["one_more_gib"].size(), 2u);
  EXPECT_LE(json["certificate"]["lower_bound"].real(),
            json["certificate"]["fetch_cost"].real());
}

TEST_F(PlanRunTest, ProvedPlansSayWhatASlotIsWorth) {
  flags_.device_budget = KiB(700);
  const JsonValue none = PlanDocument(Run().value()).Json();
  EXPECT_EQ(none["certificate"]["unit"].text(), "links");
  EXPECT_TRUE(none["certificate"]["slots"].is_null());

  flags_.engine.policy = PlanPolicy::kPlanned;
  const PlanReport report = Run().value();
  ASSERT_THAT(report.outcome.fits, IsOk());
  const PlanProblem& problem = report.outcome.seal->memory.problem;
  const JsonValue slots = PlanDocument(report).Json()["certificate"]["slots"];
  ASSERT_EQ(slots.size(), problem.slots.size());
  double cost = 0;
  bool worth = false;
  for (size_t k = 0; k < slots.size(); ++k) {
    EXPECT_EQ(slots[k]["slots"].integer(), problem.slots[k]);
    EXPECT_EQ(slots[k]["slot_bytes"].integer(),
              report.outcome.seal->memory.device_classes[k].slot_bytes.count());
    cost += slots[k]["cost"].real();
    worth |= slots[k]["one_more_saves"].real() > 0;
  }
  EXPECT_DOUBLE_EQ(cost, report.outcome.forecast->fetch_cost);
  EXPECT_TRUE(worth);
}

TEST_F(PlanRunTest, RefusesFlagsThatContradictEachOther) {
  const PlanFlags good = flags_;
  flags_.files.layout = "layout.json";
  EXPECT_THAT(Run().status(), Not(IsOk()));
  flags_ = good;
  flags_.min = KiB(4);
  EXPECT_THAT(Run().status(),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("--min")));
  flags_ = good;
  flags_.batch = 4;
  EXPECT_THAT(Run().status(),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("--seq")));
  flags_.seq = 16;
  EXPECT_THAT(Run().status(),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("--width")));
  flags_ = good;
  flags_.engine.optimizer.momentum = 0.9;
  EXPECT_THAT(Run().status(),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("sgd")));
}

TEST(PlanFlagsTest, WritesItselfAsACommand) {
  const auto parsed = [](const std::vector<std::string>& args) {
    CommandLine line("castor plan", "Plans.");
    PlanFlags flags;
    DeclarePlanFlags(line.app(), &flags);
    EXPECT_THAT(ParseFlags(line.app(), args), IsOk());
    return PlanCommandText(flags);
  };
  EXPECT_EQ(parsed({"m"}), "castor plan m");
  EXPECT_EQ(parsed({"m", "--world", "4", "--json", "-o", "x"}),
            "castor plan m --world 4");
  const std::vector<std::string> args = {"m.json",
                                         "--dtype",
                                         "bf16",
                                         "--freeze",
                                         "a*",
                                         "--world",
                                         "4",
                                         "--stage",
                                         "1",
                                         "--shard-group",
                                         "2",
                                         "--optimizer-span",
                                         "world",
                                         "--min",
                                         "32MiB",
                                         "--max",
                                         "64MiB",
                                         "--policy",
                                         "planned",
                                         "--grad-mode",
                                         "fp32",
                                         "--accumulation-order",
                                         "last",
                                         "--limit",
                                         "exp_avg@host=25%",
                                         "--device-budget",
                                         "1536MiB",
                                         "--nccl",
                                         "5B",
                                         "--batch",
                                         "2",
                                         "--seq",
                                         "128",
                                         "--recompute",
                                         "--compute",
                                         "2ms"};
  EXPECT_EQ(parsed(args),
            "castor plan m.json --dtype bf16 --freeze 'a*' --world 4 --stage 1 "
            "--shard-group 2 --optimizer-span world --grad-mode fp32 "
            "--accumulation-order last --device-budget 1536MiB --compute 2ms "
            "--policy planned --limit exp_avg@host=25% --min 32MiB --max 64MiB "
            "--nccl 5B --batch 2 --seq 128 --recompute");
}

TEST_F(PlanRunTest, ExplainsWhyStatesAreWhereTheyAre) {
  flags_.explain = "h.0.*";
  const Result<PlanReport> by_budgets = Run();
  ASSERT_THAT(by_budgets, IsOk());
  EXPECT_THAT(PlanDocument(*by_budgets).Json()["explained"][0]["params"],
              testing::Contains(JsonValue("h.0.attn.weight")));
  EXPECT_THAT(PlanDocument(*by_budgets).Page(),
              HasSubstr("by the budgets, which put"));

  flags_.engine.home_rules.emplace_back().tier = Tier::kHost;
  flags_.host_budget = MiB(8);
  const Result<PlanReport> by_rule = Run();
  ASSERT_THAT(by_rule, IsOk());
  const JsonValue explained = PlanDocument(*by_rule).Json()["explained"];
  EXPECT_FALSE(explained.empty());
  for (const JsonValue& one : explained) {
    for (const JsonValue& home : one["homes"]) {
      EXPECT_EQ(home["tier"], "host");
      EXPECT_THAT(home["why"].text(), HasSubstr("rule"));
    }
  }

  flags_.engine.home_rules.clear();
  flags_.explain = "h.0.attn.wieght";
  EXPECT_THAT(Run(), StatusIs(ErrorCode::kInvalidArgument,
                              HasSubstr("\"h.0.attn.weight\"")));
}

TEST_F(PlanRunTest, DeadlinesAreForeseenWhereTimesAreKnown) {
  flags_.engine.prefetch.mode = PrefetchMode::kDeadlines;
  flags_.device_budget = KiB(900);
  const PlanReport unknown = Run().value();
  ASSERT_THAT(unknown.outcome.fits, IsOk());
  EXPECT_FALSE(unknown.outcome.forecast->fetches);
  EXPECT_THAT(PlanDocument(unknown).Page(),
              HasSubstr("not by deadlines: no machine tells how fast"));
  EXPECT_TRUE(PlanDocument(unknown).Json()["prefetch"].is_null());

  flags_.compute = 0;  // as if it were not given
  flags_.files.machine = folder_.Write("machine.json", R"({
    "schema": "castor.machine/1",
    "links": {
      "host_to_device": {"bytes_per_second": 2000000000, "latency_ns": 5000},
      "device_to_host": {"bytes_per_second": 2000000000, "latency_ns": 5000}
    },
    "memory": {"bytes_per_second": 25000000000},
    "optimizer": {"bytes_per_second": 20000000000}
  })");
  const PlanReport untimed = Run().value();
  ASSERT_THAT(untimed.outcome.fits, IsOk());
  EXPECT_FALSE(untimed.outcome.forecast->fetches);
  EXPECT_THAT(PlanDocument(untimed).Page(),
              AllOf(HasSubstr("not by deadlines: no compute time of a step"),
                    Not(HasSubstr("no machine tells"))));

  flags_.compute = 2'000'000;
  flags_.output = folder_.path() + "/plan.json";
  const PlanReport report = Run().value();
  ASSERT_THAT(report.outcome.fits, IsOk());
  ASSERT_TRUE(report.outcome.forecast->fetches);
  EXPECT_THAT(PlanDocument(report).Page(), HasSubstr("by deadlines, at most"));
  const JsonValue json = PlanDocument(report).Json();
  EXPECT_EQ(json["configuration"]["prefetch"].text(), "deadlines");
  EXPECT_EQ(json["prefetch"]["most_ahead"].integer(),
            report.outcome.forecast->fetches->most_ahead);
  EXPECT_EQ(json["prefetch"]["stall_ns"].integer(),
            report.outcome.forecast->fetches->stall_ns);
  EXPECT_THAT(json["command"].text(), HasSubstr("--prefetch deadlines"));
  // A trainer that loads the plan declares the same.
  const Result<PlanFile> plan = ReadPlanFile(flags_.output);
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->engine.prefetch.mode, PrefetchMode::kDeadlines);
  EXPECT_EQ(plan->engine.step_compute_ns, 2'000'000);
}

}  // namespace
}  // namespace castor
