// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Runs with a bottleneck that was put there, on simulated devices and drives
// and a counted clock: the report names it, and who obeys its proposal has the
// step that was foretold.

#include "tools/report/advice.h"

#include <cstdlib>
#include <functional>
#include <ostream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/record/record_reader.h"
#include "offload/record/record_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tools/bench/support/twin_training.h"
#include "tools/report/run_model.h"
#include "tools/report/statistics/run_setup.h"
#include "tools/report/statistics/run_statistics.h"
#include "tools/report/statistics/step_detail.h"

namespace castor {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// What was put there, and what the sentence begins with.
struct Planted {
  std::string name;
  std::string headline;
  std::function<void(TwinTraining*)> plant;
  // By how much the simulation of the step may be off, though no link's speed
  // was told.
  double off = 0.1;
  // The same of a proposal, in parts of the step before.
  double proposal_off = 0.125;
};

std::ostream& operator<<(std::ostream& out, const Planted& planted) {
  return out << planted.name;
}

// Everything is fast, and there is room for everything on the device.
TwinTraining Roomy() {
  TwinTraining training;
  for (int p = 0; p < 12; ++p) {
    training.params.push_back(
        {"layer." + std::to_string(p), {4096}, DType::kF32, true});
  }
  training.options.chunk_size = KiB(16);
  training.options.device_budget = MiB(4);
  training.options.host_budget = MiB(4);
  training.options.prefetch.depth = 2;
  training.steps = 6;
  training.machine.host_to_device = LinkModel{10'000'000'000, 1'000};
  training.machine.device_to_host = LinkModel{10'000'000'000, 1'000};
  training.machine.nvme_read = LinkModel{5'000'000'000, 5'000};
  training.machine.nvme_write = LinkModel{5'000'000'000, 5'000};
  training.compute_ns = [](size_t, bool backward) {
    return int64_t{20'000} * (backward ? 2 : 1);
  };
  return training;
}

// So little on the device that chunks come and go.
void Tight(TwinTraining* training) {
  training->options.device_budget = KiB(160);
}

const Planted kPlanted[] = {
    {"nothing", "Nothing holds the steps up", [](TwinTraining*) {}},
    {"nothing where chunks come in time", "Nothing holds the steps up",
     [](TwinTraining* t) {
       Tight(t);
       t->compute_ns = [](size_t, bool) { return int64_t{400'000}; };
     }},
    {"a slow link to the device", "host -> device holds the step up",
     [](TwinTraining* t) {
       Tight(t);
       t->machine.host_to_device = LinkModel{300'000'000, 1'000};
     }},
    {"a slow link to the device, in bf16", "host -> device holds the step up",
     [](TwinTraining* t) {
       Tight(t);
       for (ParamSpec& param : t->params) {
         param.shape = {8192};
         param.dtype = DType::kBF16;
       }
       t->machine.host_to_device = LinkModel{200'000'000, 1'000};
     }},
    {"a slow link to the device, two ranks", "host -> device holds the step up",
     [](TwinTraining* t) {
       Tight(t);
       t->world = 2;
       t->machine.host_to_device = LinkModel{120'000'000, 1'000};
     }},
    {"a link with much latency", "host -> device holds the step up",
     [](TwinTraining* t) {
       Tight(t);
       t->machine.host_to_device = LinkModel{10'000'000'000, 90'000};
     }},
    {"a slow drive", "nvme -> host holds the step up",
     [](TwinTraining* t) {
       Tight(t);
       t->options.host_budget = KiB(240);
       t->machine.nvme_read = LinkModel{100'000'000, 5'000};
     },
     0.25},
    {"a slow drive, two ranks", "nvme -> host holds the step up",
     [](TwinTraining* t) {
       Tight(t);
       t->world = 2;
       t->options.host_budget = KiB(160);
       t->machine.nvme_read = LinkModel{100'000'000, 5'000};
     },
     0.1,
     // A rank waits for the other's pieces; a dry run has one rank.
     0.15},
    // Reads are ahead of use, and updates wait for their writes.
    {"a drive that writes slowly", "host -> nvme holds the step up",
     [](TwinTraining* t) {
       Tight(t);
       t->options.host_budget = KiB(240);
       t->machine.nvme_write = LinkModel{60'000'000, 5'000};
     },
     0.25},
    {"one chunk on the drive", "nvme -> host holds the step up",
     [](TwinTraining* t) {
       t->options.home_rules = {
           {.glob = "layer.5", .state = "param", .tier = Tier::kNvme}};
       t->machine.nvme_read = LinkModel{20'000'000, 5'000};
     }},
};

class Advised {
 protected:
  struct Recorded {
    TwinOutcome run;
    RunRecord record;
    int64_t step_ns = 0;  // of the last one
  };

  Recorded Train(TwinTraining training) {
    const TempDir drive;
    Log quiet([](LogLevel, std::string_view) {});
    auto recorder = FileRecorder::Create(drive.File("run.rec"));
    EXPECT_THAT(recorder, IsOk());
    training.options.log = &quiet;
    training.options.recorder = recorder->get();
    training.options.nvme = {{drive.path(), MiB(8)}};
    Recorded recorded;
    recorded.run = TrainOnTwins(training);
    EXPECT_THAT(recorded.run.status, IsOk());
    EXPECT_THAT((*recorder)->Close(), IsOk());
    recorded.record = ReadRecord(drive.File("run.rec")).value();
    const auto& ends = recorded.run.step_end_ns;
    recorded.step_ns = ends[ends.size() - 1] - ends[ends.size() - 2];
    return recorded;
  }
};

class AdviceTest : public Advised, public testing::TestWithParam<Planted> {};
class MomentsAdviceTest : public Advised, public testing::Test {};

TEST_P(AdviceTest, NamesTheBottleneckAndWhatItProposesHolds) {
  TwinTraining training = Roomy();
  GetParam().plant(&training);
  const Recorded before = Train(training);
  const RunStatistics run = ComputeRunStatistics(before.record, {});
  EXPECT_THAT(Headline(run), StartsWith(GetParam().headline));

  const RunSetup setup = ReadSetup(before.record);
  EXPECT_TRUE(setup.unread.empty()) << setup.unread.front();
  const Result<RunModel> model =
      ModelOf(before.record, setup, run, TypicalStep(run, {}));
  ASSERT_THAT(model, IsOk());
  const Advice advice = AdviceFor(model, run);
  EXPECT_NEAR(static_cast<double>(advice.simulated_ns),
              static_cast<double>(before.step_ns),
              static_cast<double>(before.step_ns) * GetParam().off);
  if (GetParam().headline.starts_with("Nothing")) {
    EXPECT_TRUE(advice.proposals.empty()) << advice.proposals.front().what;
    EXPECT_THAT(advice.why_none, HasSubstr("other budgets, homes and options"));
    return;
  }
  ASSERT_FALSE(advice.proposals.empty()) << advice.why_none;
  for (const Proposal& proposal : advice.proposals) {
    SCOPED_TRACE(ProposalText(advice, proposal));
    EXPECT_FALSE(proposal.lines.empty());
    RunModel changed = *model;
    changed.options = training.options;
    proposal.change(&changed);
    TwinTraining obeyed = training;
    obeyed.options = changed.options;
    obeyed.updates_early = changed.trace.step.updates_early;
    const Recorded after = Train(obeyed);
    EXPECT_LT(after.step_ns, before.step_ns);
    EXPECT_NEAR(static_cast<double>(after.step_ns),
                static_cast<double>(proposal.ns),
                static_cast<double>(before.step_ns) * GetParam().proposal_off);
  }
}

// Lighter moments come behind proposals that change no bit.
TEST_F(MomentsAdviceTest, LighterMomentsAreProposedLastAndWhereTheyMayBe) {
  const auto advised = [&](TwinTraining training) {
    const Recorded recorded = Train(std::move(training));
    const RunStatistics run = ComputeRunStatistics(recorded.record, {});
    return AdviceFor(ModelOf(recorded.record, ReadSetup(recorded.record), run,
                             TypicalStep(run, {})),
                     run);
  };
  TwinTraining training = Roomy();
  Tight(&training);
  training.world = 2;
  training.options.host_budget = KiB(160);
  training.machine.nvme_read = LinkModel{100'000'000, 5'000};
  const Advice advice = advised(training);
  ASSERT_FALSE(advice.proposals.empty());
  EXPECT_TRUE(advice.proposals.front().same_bits);
  const Proposal& last = advice.proposals.back();
  EXPECT_FALSE(last.same_bits);
  EXPECT_THAT(ProposalText(advice, last), StartsWith("Keep moments in 8 bits"));
  EXPECT_EQ(last.lines[0].second, R"(castor.wrap(..., state_dtype="8bit"))");
  // Small parameters keep moments in fp32, and bf16 is half.
  for (ParamSpec& param : training.params) param.shape = {4000};
  const Advice of_small = advised(training);
  ASSERT_FALSE(of_small.proposals.empty());
  EXPECT_THAT(of_small.proposals.back().what,
              StartsWith("keep moments in bf16"));
  training.options.optimizer.kind = OptimizerKind::kSgd;
  for (const Proposal& proposal : advised(training).proposals) {
    EXPECT_TRUE(proposal.same_bits) << proposal.what;
  }
}

INSTANTIATE_TEST_SUITE_P(Bottlenecks, AdviceTest, testing::ValuesIn(kPlanted));

TEST(AdviceOfOldRecordsTest, ARecordOfBeforeThereWereDocumentsGetsNone) {
  const Advice advice =
      AdviceFor(ModelOf(RunRecord(), RunSetup(), RunStatistics(), 0), {});
  EXPECT_TRUE(advice.proposals.empty());
  EXPECT_THAT(advice.why_none, HasSubstr("the record lacks"));
  EXPECT_EQ(advice.simulated_ns, 0);
}

}  // namespace
}  // namespace castor
