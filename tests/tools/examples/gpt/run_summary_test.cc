// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/run_summary.h"

#include <string>

#include "chunk/text/json_value.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/memory/pinned_arena.h"
#include "placement/tier_model.h"

namespace castor::gpt {
namespace {

using testing::HasSubstr;
using testing::Not;

StepReport Report(int64_t step, double loss) {
  StepReport report;
  report.step = step;
  report.loss = loss;
  report.grad_norm = 1.5;
  report.seconds = 0.5;
  report.tokens = 1000;
  report.tiers[0] = {MiB(64), MiB(60), MiB(61)};
  return report;
}

TrainOutcome SevenSteps() {
  TrainOutcome outcome;
  for (int64_t step = 1; step <= 7; ++step) {
    outcome.steps.push_back(Report(step, static_cast<double>(10 - step)));
  }
  outcome.digests[5] = 0xABC;
  outcome.final_digest = 0x123456789ABCDEF0;
  return outcome;
}

EngineStats RankStats(int64_t peak_mib) {
  EngineStats stats;
  stats.tiers[0] = {MiB(64), MiB(1), MiB(peak_mib)};
  stats.moved[1][0] = GiB(1);
  stats.most_nvme_written = MiB(3);
  stats.wire_sent = MiB(10);
  stats.stall_ns = 350'000'000;
  stats.stalls = 2;
  stats.chunks = 12;
  stats.chunk_sizes = 1;
  stats.chunk_bytes = MiB(4);
  return stats;
}

TEST(RunSummaryTest, ProgressTellsStepLossSpeedAndTiers) {
  const TrainOptions options;
  const std::string line = ProgressLine(options, Report(12, 2.34567));
  EXPECT_THAT(line, HasSubstr("step 12/30"));
  EXPECT_THAT(line, HasSubstr("loss 2.3457"));
  EXPECT_THAT(line, HasSubstr("2000 tokens/s"));
  EXPECT_THAT(line, HasSubstr("device 60 MiB"));
  EXPECT_THAT(line, Not(HasSubstr("host")));
}

TEST(RunSummaryTest, TextTellsPeaksLinksStallsAndDigests) {
  TrainOptions options;
  options.ranks = 2;
  TrainOutcome outcome = SevenSteps();
  outcome.ranks = {RankStats(62), RankStats(63)};
  const std::string text = SummaryText(options, outcome);
  EXPECT_THAT(text, HasSubstr("63 MiB of 64 MiB"));
  EXPECT_THAT(text, testing::ContainsRegex("host to device +2 GiB"));
  EXPECT_THAT(text, testing::ContainsRegex("between ranks +20 MiB"));
  EXPECT_THAT(text, HasSubstr("stalled: 0.70 s of 7.00 s (10.0 %), 4 times"));
  EXPECT_THAT(text, HasSubstr("weight digest after step 5: 0000000000000abc"));
  EXPECT_THAT(text, HasSubstr("weight digest: 123456789abcdef0"));
  EXPECT_THAT(text, HasSubstr("first 5 steps 7.0000, of the last 5 5.0000"));
}

TEST(RunSummaryTest, TellsWhatTheProcessHeldOutsideTheBudgets) {
  TrainOptions options;
  TrainOutcome outcome = SevenSteps();
  outcome.ranks = {RankStats(62)};
  outcome.memory = {.peak = MiB(100),
                    .tiers = MiB(70),
                    .activations = MiB(12),
                    .conversions = Bytes(0),
                    .text = MiB(1),
                    .record = MiB(4)};
  const std::string text = SummaryText(options, outcome);
  EXPECT_THAT(text, testing::ContainsRegex("activations +12 MiB\n"));
  EXPECT_THAT(text, Not(HasSubstr("conversions")));
  EXPECT_THAT(text, testing::ContainsRegex("libraries, BLAS +13 MiB\n"));
  EXPECT_THAT(text, testing::ContainsRegex("in all +100 MiB\n"));
  const JsonValue json = SummaryJson(options, outcome);
  EXPECT_EQ(json["process_memory"]["rest_bytes"], MiB(13).count());
  // The system may count less than was asked for.
  outcome.memory.peak = MiB(80);
  EXPECT_EQ(outcome.memory.rest(), Bytes(0));
}

TEST(RunSummaryTest, SaysWhereChunksHaveSeveralSizes) {
  TrainOutcome outcome = SevenSteps();
  outcome.ranks = {RankStats(62)};
  EXPECT_THAT(SummaryText(TrainOptions(), outcome),
              HasSubstr("chunks: 12 of 4 MiB, "));
  outcome.ranks[0].chunk_sizes = 3;
  EXPECT_THAT(SummaryText(TrainOptions(), outcome),
              HasSubstr("chunks: 12 of up to 4 MiB, "));
  EXPECT_EQ(SummaryJson(TrainOptions(), outcome)["chunk_sizes"], 3);
}

TEST(RunSummaryTest, TellsOfPinnedBatches) {
  TrainOutcome outcome = SevenSteps();
  outcome.ranks = {RankStats(62)};
  outcome.arena.allocator = "jemalloc 5.3.0";
  outcome.arena.slab.locked = true;
  outcome.arena.budget = KiB(16);
  outcome.arena.peak = KiB(12);
  outcome.arena.requested = KiB(10);
  outcome.arena.buffers = 2;
  EXPECT_THAT(SummaryText(TrainOptions(), outcome),
              HasSubstr("(jemalloc 5.3.0): 2 buffers of 10 KiB, peak 12 KiB of "
                        "16 KiB\n"));
  outcome.arena.slab.locked = false;
  EXPECT_THAT(SummaryText(TrainOptions(), outcome),
              HasSubstr("(jemalloc 5.3.0, not locked)"));
  const auto json = SummaryJson(TrainOptions(), outcome)["pinned_batches"];
  EXPECT_EQ(json["allocator"], "jemalloc 5.3.0");
  EXPECT_EQ(json["locked"], false);
  EXPECT_EQ(json["peak_bytes"], 12 * 1024);
}

TEST(RunSummaryTest, TellsWhatTheLinksOfAGivenMachineCarried) {
  TrainOptions options;
  TrainOutcome outcome = SevenSteps();
  outcome.ranks = {RankStats(62), RankStats(63)};
  EXPECT_THAT(SummaryText(options, outcome), Not(HasSubstr("links")));
  options.machine.emplace().host_to_device = LinkModel{1000, 5};
  RankLinks links = {{3, MiB(2), 400'000'000}, {1, MiB(1), 0}};
  outcome.links = {links, links};
  EXPECT_THAT(SummaryText(options, outcome), Not(HasSubstr("host to nvme")));
  links.nvme_write = {5, MiB(3), 200'000'000};
  outcome.links = {links, links};
  const std::string text = SummaryText(options, outcome);
  EXPECT_THAT(text, testing::ContainsRegex(
                        "host to device +4 MiB in 6 copies, 0.80 s of the"));
  EXPECT_THAT(text, testing::ContainsRegex(
                        "device to host +2 MiB in 2 copies, 0.00 s of the"));
  EXPECT_THAT(text, testing::ContainsRegex(
                        "host to nvme +6 MiB in 10 copies, 0.40 s of the"));
  const JsonValue json = SummaryJson(options, outcome)["links"];
  EXPECT_EQ(json["nvme_write"]["copies"], 10);
  EXPECT_EQ(json["host_to_device"]["copies"], 6);
  EXPECT_EQ(json["host_to_device"]["bytes_per_second"], 1000);
  EXPECT_DOUBLE_EQ(json["host_to_device"]["busy_seconds"].real(), 0.8);
  EXPECT_EQ(json["device_to_host"]["copied_bytes"], MiB(2).count());
  EXPECT_TRUE(json["device_to_host"]["bytes_per_second"].is_null());
}

TEST(RunSummaryTest, JsonHoldsTheSame) {
  TrainOptions options;
  options.ranks = 2;
  TrainOutcome outcome = SevenSteps();
  outcome.ranks = {RankStats(62), RankStats(63)};
  const JsonValue json = SummaryJson(options, outcome);
  EXPECT_EQ(json["schema"], "castor.train.1");
  EXPECT_EQ(json["steps"], 7);
  EXPECT_EQ(json["losses"].size(), 7u);
  EXPECT_EQ(json["mean_loss_first"], 7);
  EXPECT_EQ(json["digests"]["5"], "0000000000000abc");
  EXPECT_EQ(json["tiers"]["device"]["peak_bytes"], MiB(63).count());
  EXPECT_EQ(json["most_nvme_written_bytes"], MiB(6).count());
  ASSERT_EQ(json["moved"].size(), 1u);
  EXPECT_EQ(json["moved"][0]["from"], "host");
  EXPECT_EQ(json["moved"][0]["moved_bytes"], GiB(2).count());
  EXPECT_DOUBLE_EQ(json["stalled_share"].real(), 0.1);
}

}  // namespace
}  // namespace castor::gpt
