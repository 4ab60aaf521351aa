// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What an engine without bytes does in steps is what engines with bytes do in
// them: bytes per link, peaks of every tier and, on links of declared speeds
// and a clock that is counted, times, all of them exactly.

#include "collectives/dry/dry_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/param_spec.h"
#include "collectives/answers/seal_forecast.h"
#include "collectives/dry/simulation_result.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gtest/gtest.h"
#include "placement/homes/static_policy.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "placement/step_traffic.h"
#include "placement/tier_model.h"
#include "placement/trace/step_trace.h"
#include "tests/support/golden/golden.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_rounds.h"
#include "tests/support/zero_engine_fixture.h"
#include "tools/bench/support/twin_training.h"

namespace castor {
namespace {

// Which budgets: everything on the device, states on the host, all three tiers.
enum class Room { kDevice, kHost, kNvme };

struct Case {
  int stage = 3;
  int world = 1;
  Room room = Room::kHost;
  int number = 0;        // what else differs follows from it
  bool grouped = false;  // ranks share shards two by two
  bool keeps_shards = false;
  bool evaluates = false;
  bool departs = false;  // one step is shorter than the others
  bool asked = false;    // homes are by limits and rules
  bool reuses = false;   // gradients are written over parameters
  bool in_time = false;  // fetches ahead go by deadlines
  bool updates_early = false;
  bool unused = false;     // a trained parameter has no gradient
  bool slow_host = false;  // updates take time
  bool own_ends = false;   // leases end elsewhere in every step
  bool programs = false;   // updates are the program's
  bool guesses = false;    // updates begin before the norm is known
};

std::ostream& operator<<(std::ostream& out, const Case& of) {
  return out << "case " << of.number << ": stage " << of.stage << ", "
             << of.world << " ranks, room " << static_cast<int>(of.room);
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  const Room rooms[] = {Room::kHost, Room::kNvme, Room::kDevice};
  for (int n = 0; n < 30; ++n) {
    cases.push_back({n % 4, 1 + n % 3, rooms[n / 3 % 3], n});
  }
  // In groups of two.
  for (const int n : {30, 31, 32, 33, 34, 35, 36, 38, 40}) {
    cases.push_back({n % 4 == 2 ? 1 : 3, 4, rooms[n % 3], n, true});
  }
  // Planned ones in which copies of shards are worth more than of chunks.
  for (const int n : {32, 34, 38, 40, 46, 48, 52, 54}) {
    cases.push_back({3, 3 + n % 4 / 2, n % 3 == 0 ? Room::kHost : Room::kNvme,
                     n, false, true});
  }
  for (int n = 30; n < 48; ++n) {
    Case more{n % 4, 1 + n % 2 * 2, rooms[n / 4 % 2], n};
    more.evaluates = n % 3 != 1;
    more.departs = n % 3 != 0;
    more.asked = n >= 42;
    cases.push_back(more);
  }
  for (int n = 60; n < 72; ++n) {
    Case more{n % 4, 1 + (n + 1) % 3, rooms[n / 4 % 3], n};
    more.reuses = true;
    more.evaluates = n % 3 == 1;
    more.departs = n % 4 == 3;
    cases.push_back(more);
  }
  for (int n = 72; n < 84; ++n) {
    Case more{n % 4, 1 + n % 3, rooms[n / 4 % 2], n};
    more.in_time = true;
    more.evaluates = n % 5 == 1;
    more.departs = n % 3 == 2;
    cases.push_back(more);
  }
  for (int n = 84; n < 96; ++n) {
    // Where ranks reduce in turns, which chunks are updated early is theirs.
    Case more{n % 4, n % 4 == 3 ? 1 + n / 4 % 3 : 1, rooms[n / 4 % 2], n};
    more.updates_early = true;
    more.evaluates = n % 3 == 1;
    cases.push_back(more);
  }
  // Early updates of some chunks only.
  for (int n = 98; n < 110; ++n) {
    Case more{n % 4, n % 4 == 3 ? 1 + n / 4 % 3 : 1, rooms[n / 4 % 2], n};
    more.updates_early = more.unused = true;
    cases.push_back(more);
  }
  for (int n = 110; n < 122; ++n) {
    Case more{n % 4, 1 + n % 3, rooms[n / 4 % 2], n};
    more.slow_host = true;
    more.updates_early = n % 4 == 3 && n % 3 == 0;
    more.evaluates = n % 5 == 1;
    cases.push_back(more);
  }
  for (int n = 122; n < 152; ++n) {
    Case more{n % 4, 1 + (n + 1) % 3, rooms[n / 4 % 3], n};
    // Three ranks' shards fit the host.
    if (more.stage == 3 && more.world == 3) more.room = Room::kHost;
    more.own_ends = n < 140;
    more.programs = n >= 140;
    more.slow_host = n % 2 == 0;
    more.updates_early = more.programs && more.stage == 3;
    more.evaluates = more.programs && n % 5 == 1;
    cases.push_back(more);
  }
  for (int n = 152; n < 176; ++n) {
    Case more{n % 4, 1 + n % 3, rooms[n / 4 % 2], n};
    more.guesses = true;
    more.slow_host = n % 2 == 0;
    more.evaluates = n % 5 == 1;
    cases.push_back(more);
  }
  return cases;
}

class TwinsTest : public testing::Test {
 protected:
  TwinTraining TrainingOf(const Case& of) {
    TwinTraining training;
    const int n = of.number;
    for (int p = 0; p < 12; ++p) {
      training.params.push_back({"p" + std::to_string(p),
                                 {400 + 397 * ((p * 5 + n) % 7)},
                                 n % 2 == 0 ? DType::kF32 : DType::kBF16,
                                 n % 5 != 4 || p % 6 != 1});
    }
    ZeroOptions& options = training.options;
    options.stage = of.stage;
    options.log = &log_;
    options.chunk_size = n % 7 < 3 ? KiB(16) : KiB(12);
    options.policy = n % 2 == 0 ? PlanPolicy::kPlanned : PlanPolicy::kAuto;
    options.prefetch.depth = 1 + n % 3;
    if (n % 4 != 3) options.clip_norm = 1;
    options.nvme = {{nvme_.path(), MiB(8)}};
    options.device_budget = of.room == Room::kDevice ? MiB(4) : KiB(88);
    options.host_budget = MiB(4);
    const bool shards = of.stage == 3 && of.world > 1;
    if (of.room == Room::kNvme) {
      options.host_budget = shards ? KiB(of.reuses ? 48 : 64)
                                   : *options.chunk_size * 10 + KiB(12);
    }
    if (of.room != Room::kNvme) options.nvme.clear();
    if (n % 6 == 1) {
      options.grad_mode = GradMode::kFp32;
      options.device_budget += KiB(64);
    }
    if (n % 5 == 0 || n == 23) {
      options.accumulation = AccumulationOrder::kLast;
      options.device_budget += of.room == Room::kNvme ? KiB(48) : KiB(192);
    }
    training.world = of.world;
    if (of.grouped) {
      options.shard_group = 2;
      if (n % 2 == 0) options.optimizer_span = OptimizerSpan::kWorld;
    }
    training.steps = of.departs ? 5 : 3;
    if (of.departs) training.short_step = 2;
    training.left_out = 5;
    training.evaluates = of.evaluates;
    training.micro_batches = 1 + n / 5 % 3;
    training.trainer =
        n / 2 % 2 == 0 ? SimTrainer::kStream : SimTrainer::kThread;
    training.compute_ns = [n](size_t param, bool backward) {
      return static_cast<int64_t>(3'000 + 700 * ((param * 3 + n) % 9)) *
             (backward ? 2 : 1);
    };
    if (n / 2 % 3 == 1) training.left_open = 4;
    if (n / 2 % 3 == 2) training.skipped_last = 7;
    if (of.asked) {
      options.home_limits = {{{"all", Tier::kDevice, 0.2}}};
      options.home_rules = {
          {.glob = "p0", .state = "param", .tier = Tier::kHost}};
      options.device_budget += KiB(128);
      if (of.room == Room::kNvme) {
        options.home_rules.push_back({.glob = "p11", .tier = Tier::kNvme});
        options.host_budget = MiB(4);
      }
    }
    if (of.reuses) {
      options.grad_mode = GradMode::kReuse;
      options.accumulation = AccumulationOrder::kEach;
      training.micro_batches = 1;
      for (ParamSpec& param : training.params) param.dtype = DType::kBF16;
    }
    if (of.updates_early) {
      training.updates_early = true;
      options.clip_norm = 0;
    }
    if (of.guesses) {
      options.guess_updates = true;
      options.clip_norm = 1e9;
      if (shards && of.room == Room::kNvme) options.host_budget += KiB(16);
    }
    if (of.unused) training.unused = 5;
    if (of.own_ends) {
      options.own_lease_ends = true;
      training.seal.grow = n % 2 == 0;
      training.outlasts = [n](int step, size_t unit) {
        return (n + step * static_cast<int>(unit + 1)) % 4;
      };
      options.device_budget += KiB(of.room == Room::kNvme ? 48 : 96);
      if (shards && of.world == 2) options.host_budget += KiB(16);
    }
    if (of.programs) options.optimizer.kind = OptimizerKind::kCustom;
    if (n % 4 == 1) {
      training.lease = KiB(3);
      training.seal.largest_lease = KiB(4);
    }
    training.machine.host_to_device = LinkModel{900'000'000, 2'000};
    training.machine.device_to_host = LinkModel{700'000'000, 3'000};
    training.machine.nvme_read = LinkModel{300'000'000, 9'000};
    training.machine.nvme_write = LinkModel{200'000'000, 5'000};
    if (of.slow_host) training.machine.optimizer = RateModel{400'000'000};
    if (of.in_time) {
      options.prefetch.mode = PrefetchMode::kDeadlines;
      options.step_compute_ns = 150'000 * training.micro_batches;
      options.machine = training.machine;
      options.machine->all_gather = RingModel{500'000'000, 2'000};
      if (n % 6 == 1) options.host_budget += KiB(24);
    }
    return training;
  }

  // What the norm's words take on their way from the device.
  static int64_t NormNs(const TwinTraining& training) {
    return kNormBytes.count() * 1'000'000'000 /
               training.machine.device_to_host->bytes_per_second +
           1;
  }

  // Without steps and machine. Both outlive the request.
  static DryRunRequest RequestOf(const TwinTraining& training,
                                 const TwinOutcome& run) {
    DryRunRequest request;
    request.params = training.params;
    request.options = training.options;
    request.declared = training.seal;
    request.world = training.world;
    request.layout = &run.layout;
    return request;
  }
  static Result<SimulationResult> RunDry(const TwinTraining& training,
                                         const TwinOutcome& run) {
    std::vector<const StepTrace*> steps;
    for (const StepTrace& step : run.traces) steps.push_back(&step);
    DryRunRequest request = RequestOf(training, run);
    request.steps = steps;
    request.machine = training.machine;
    request.trainer = training.trainer;
    return DryRun(request);
  }
  // A step that is planned at Seal is as one that follows a step alike.
  static void ExpectSteadyAtOnce(const TwinTraining& training,
                                 const TwinOutcome& run) {
    std::vector<const StepTrace*> steps(3, &run.traces.back());
    DryRunRequest request = RequestOf(training, run);
    request.steps = steps;
    const Result<SimulationResult> after = DryRun(request);
    ASSERT_THAT(after, IsOk());
    steps.resize(1);
    request.steps = steps;
    request.planned_at_seal = true;
    const Result<SimulationResult> at_once = DryRun(request);
    ASSERT_THAT(at_once, IsOk());
    // In a step without a step before, ranks take the turns of no step: a rank
    // that reduces in another order counts as departed.
    const bool turns = training.world > 1 && training.options.stage < 3;
    EXPECT_LE(at_once->steady().divergences, turns ? 1 : 0);
    if (at_once->steady().divergences > 0) return;
    EXPECT_EQ(at_once->steady().traffic, after->steady().traffic);
    EXPECT_EQ(at_once->by_chunk, after->by_chunk);
  }
  // What Seal makes of the same numbers.
  static MemoryPlan MemoryFor(const TwinTraining& training,
                              const TwinOutcome& run) {
    EngineRequest request;
    request.params = training.params;
    request.options = training.options;
    request.world = training.world;
    request.declared = training.seal;
    return ForecastSeal(request, run.layout).value().memory;
  }

  Log log_{[](LogLevel, std::string_view) {}};
  TempDir nvme_;
};

// Lines of one case: of each step bytes of links, what is sent, gathers and
// their like, and the time; and peaks.
std::string LinesOf(int number, const SimulationResult& simulated) {
  std::string text;
  for (size_t s = 0; s < simulated.steps.size(); ++s) {
    const SimulatedStep& step = simulated.steps[s];
    text += fmt::format("case {} step {}\tns {} moved", number, s, step.ns());
    for (const auto& from : step.traffic.moved) {
      for (const LinkTraffic& to : from) {
        text += fmt::format(" {}", to.bytes.count());
      }
    }
    text += fmt::format(
        " sent {} gathers {} fetches {} ahead {} cancelled {} releases {} "
        "departures {} reductions {}\n",
        step.traffic.wire_sent().count(), step.traffic.gathers,
        step.traffic.fetches, step.prefetched_gathers, step.cancelled_gathers,
        step.releases, step.divergences, step.reduce_scatters);
  }
  return text + fmt::format("case {} peaks\t{} {} {}\n", number,
                            simulated.peak[0].count(),
                            simulated.peak[1].count(),
                            simulated.peak[2].count());
}

class DryRunTest : public TwinsTest, public testing::WithParamInterface<Case> {
 protected:
  static void TearDownTestSuite() {
    ExpectGolden("tests/integration/golden/simulations.tsv", lines_,
                 simulated_ == AllCases().size() ? GoldenLines::kAll
                                                 : GoldenLines::kSome);
    if (simulated_ == AllCases().size()) {
      EXPECT_GT(guesses_, 100);
    }
  }
  // Cases of one number differ in what else they do: lines have their places.
  static void Note(const SimulationResult& simulated) {
    const std::string name =
        testing::UnitTest::GetInstance()->current_test_info()->name();
    const int place = std::stoi(name.substr(name.rfind('/') + 1));
    lines_ += LinesOf(place * TestStride(), simulated);
    ++simulated_;
  }

  static std::string lines_;
  static size_t simulated_;
  static int64_t guesses_;
};
std::string DryRunTest::lines_;
size_t DryRunTest::simulated_ = 0;
int64_t DryRunTest::guesses_ = 0;
using RanksThatDifferTest = TwinsTest;

TEST_P(DryRunTest, SaysWhatTheEngineDoes) {
  const TwinTraining training = TrainingOf(GetParam());
  const TwinOutcome run = TrainOnTwins(training);
  ASSERT_THAT(run.status, IsOk());
  const Result<SimulationResult> simulated = RunDry(training, run);
  ASSERT_THAT(simulated, IsOk());
  Note(*simulated);
  // Bytes per link, step by step; what Seal writes is none of a step.
  for (const Tier from : kAllTiers) {
    for (const Tier to : kAllTiers) {
      const size_t f = TierIndex(from);
      const size_t t = TierIndex(to);
      Bytes before = run.sealed.moved[f][t];
      for (size_t s = 0; s < run.after_step.size(); ++s) {
        const Bytes after = run.after_step[s].moved[f][t];
        EXPECT_EQ(after - before, simulated->steps[s].traffic.moved[f][t].bytes)
            << "from " << TierName(from) << " to " << TierName(to)
            << " in step " << s;
        before = after;
      }
    }
  }
  int64_t gathers = 0;
  int64_t fetches = 0;
  int64_t prefetched = 0;
  int64_t cancelled = 0;
  int64_t releases = 0;
  int64_t divergences = 0;
  int64_t reduced = 0;
  Bytes wire_sent;
  for (size_t s = 0; s < run.after_step.size(); ++s) {
    const EngineStats& stats = run.after_step[s];
    const SimulatedStep& step = simulated->steps[s];
    EXPECT_EQ(stats.gathers, gathers += step.traffic.gathers);
    EXPECT_EQ(stats.fetches, fetches += step.traffic.fetches);
    EXPECT_EQ(stats.prefetched_gathers, prefetched += step.prefetched_gathers);
    EXPECT_EQ(stats.cancelled_gathers, cancelled += step.cancelled_gathers);
    EXPECT_EQ(stats.releases, releases += step.releases);
    EXPECT_EQ(stats.divergences, divergences += step.divergences);
    EXPECT_EQ(stats.reduce_scatters, reduced += step.reduce_scatters);
    wire_sent += step.traffic.wire_sent();
  }
  // And words on which ranks agree at Seal, of which rank 0 sums a part.
  const int64_t world = training.world;
  for (const int64_t words : {WordsOfInputs(), int64_t{3}}) {
    if (world == 1) break;
    const int64_t slice = words / world;
    wire_sent += Bytes(8) * (words - slice + slice * (world - 1));
  }
  EXPECT_EQ(run.stats.wire_sent, wire_sent);
  // The departing step, and the next step, which has other accesses again.
  // Where ranks reduce in turns, a step in another order than the first also
  // departs.
  int64_t departures = 0;
  for (size_t s = 1; s < run.traces.size(); ++s) {
    departures += run.traces[s].accesses != run.traces[s - 1].accesses;
  }
  EXPECT_EQ(divergences, departures);
  if (world == 1 || GetParam().stage == 3) {
    EXPECT_EQ(divergences, training.short_step < 0 ? 0 : 2);
  } else {
    EXPECT_GE(divergences, training.short_step < 0 ? 0 : 2);
    EXPECT_LE(divergences, training.short_step < 0 ? 1 : 4);
  }
  for (const Tier tier : kAllTiers) {
    EXPECT_EQ(run.stats.tiers[TierIndex(tier)].peak,
              simulated->peak[TierIndex(tier)])
        << TierName(tier);
  }
  // Times, to the nanosecond. A dry run knows of ranks that come first and
  // last. Where three reduce in another order than the step before, one between
  // them may find the way of the norm's words taken, or free.
  const bool reordered =
      world > 2 && departures > (training.short_step < 0 ? 0 : 2);
  const int64_t apart_ns = reordered ? NormNs(training) : 0;
  for (size_t s = 0; s < run.step_end_ns.size(); ++s) {
    EXPECT_LE(std::abs(run.step_end_ns[s] - simulated->steps[s].end_ns),
              apart_ns)
        << "step " << s;
  }
  int64_t stall_ns = 0;
  for (const SimulatedStep& step : simulated->steps) {
    for (const StallSum& stall : step.stalls) stall_ns += stall.ns;
    EXPECT_GE(step.idle_ns(), 0);
  }
  EXPECT_LE(std::abs(run.stats.stall_ns - stall_ns),
            apart_ns * std::ssize(simulated->steps));
  // A step that holds more than was declared is none to seal with.
  if (!GetParam().own_ends) ExpectSteadyAtOnce(training, run);
  // What the case is meant to show.
  if (GetParam().in_time) {
    EXPECT_FALSE(MemoryFor(training, run).problem.fetch_ns.empty());
    if (GetParam().stage == 3) {
      EXPECT_GT(prefetched, 0);
    }
  }
  if (GetParam().own_ends && divergences == 0) {
    size_t own = 0;
    for (const StepTrace& step : run.traces) own += step.lease_ends.size();
    EXPECT_GT(own, 0u);
    // Leases that outlast their use leave its slot to them.
    if (training.seal.grow) {
      EXPECT_GT(run.stats.grown_slots + run.stats.extra_slots, 0);
    }
  }
  if (GetParam().keeps_shards) {
    EXPECT_LT(fetches, gathers);
  }
  if (GetParam().guesses) {
    EXPECT_EQ(run.stats.guesses, run.stats.right_guesses);
    guesses_ += run.stats.guesses;
  }
  if (GetParam().updates_early) {
    // A home that is held when its gradient is there is updated later.
    const std::vector<bool> missing =
        ChunksMissingGrads(run.traces.back(), run.layout.chunks().size());
    const auto updates =
        static_cast<int64_t>(std::ranges::count(missing, false)) *
        std::ssize(run.after_step);
    if (GetParam().unused) {
      EXPECT_LE(run.stats.early_updates, updates);
    } else {
      EXPECT_GT(run.stats.early_updates, 0);
    }
  }
  if (GetParam().room == Room::kNvme) {
    EXPECT_GT(run.stats.home_bytes[TierIndex(Tier::kNvme)], Bytes(0));
  }
}

// A rank that lacks a gradient holds slots for the gradients that wait, and
// gives zeros.
TEST_F(RanksThatDifferTest, TakeTheSlotsBytesAndTimesOfADryRun) {
  int64_t waited = 0;
  for (const Case& of :
       {Case{0, 2, Room::kHost, 0}, Case{1, 3, Room::kNvme, 4},
        Case{2, 2, Room::kHost, 7}, Case{2, 3, Room::kDevice, 9},
        Case{0, 4, Room::kDevice, 12}}) {
    SCOPED_TRACE(testing::Message() << of);
    TwinTraining training = TrainingOf(of);
    training.left_open = -1;
    training.skipped_last = -1;
    training.steps = 5;
    training.lacks = 8;
    // What waits is held besides.
    training.options.device_budget += KiB(96);
    const TwinOutcome run = TrainOnTwins(training);
    ASSERT_THAT(run.status, IsOk());
    for (const StepTrace& step : run.traces) waited += std::ssize(step.waiting);
    const Result<SimulationResult> simulated = RunDry(training, run);
    ASSERT_THAT(simulated, IsOk());
    const EngineStats* before = &run.sealed;
    const int64_t apart_ns = NormNs(training);
    int64_t run_begin = 0;
    int64_t dry_begin = 0;
    for (size_t s = 0; s < run.after_step.size(); ++s) {
      SCOPED_TRACE(testing::Message() << "step " << s);
      // Ranks that reduce in another order find the way of the norm's words
      // taken, or free.
      EXPECT_LE(std::abs((run.step_end_ns[s] - run_begin) -
                         (simulated->steps[s].end_ns - dry_begin)),
                apart_ns);
      run_begin = run.step_end_ns[s];
      dry_begin = simulated->steps[s].end_ns;
      const EngineStats& after = run.after_step[s];
      const SimulatedStep& step = simulated->steps[s];
      for (const Tier from : kAllTiers) {
        for (const Tier to : kAllTiers) {
          const size_t f = TierIndex(from);
          const size_t t = TierIndex(to);
          EXPECT_EQ(after.moved[f][t] - before->moved[f][t],
                    step.traffic.moved[f][t].bytes)
              << "from " << TierName(from) << " to " << TierName(to);
        }
      }
      EXPECT_EQ(after.gathers - before->gathers, step.traffic.gathers);
      EXPECT_EQ(after.fetches - before->fetches, step.traffic.fetches);
      EXPECT_EQ(after.releases - before->releases, step.releases);
      EXPECT_EQ(after.divergences - before->divergences, step.divergences);
      EXPECT_EQ(after.reduce_scatters - before->reduce_scatters,
                step.reduce_scatters);
      before = &after;
    }
    for (const Tier tier : kAllTiers) {
      EXPECT_EQ(run.stats.tiers[TierIndex(tier)].peak,
                simulated->peak[TierIndex(tier)])
          << TierName(tier);
    }
  }
  EXPECT_GT(waited, 0);
}

// One in eleven where a sanitizer watches.
std::vector<Case> CasesToTry() {
  const std::vector<Case> all = AllCases();
  std::vector<Case> some;
  for (size_t i = 0; i < all.size(); i += TestStride()) some.push_back(all[i]);
  return some;
}

INSTANTIATE_TEST_SUITE_P(Cases, DryRunTest, testing::ValuesIn(CasesToTry()),
                         [](const testing::TestParamInfo<Case>& each) {
                           return std::to_string(each.index);
                         });

}  // namespace
}  // namespace castor
