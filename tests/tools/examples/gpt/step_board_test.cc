// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/step_board.h"

#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"

namespace castor::gpt {
namespace {

using testing::ElementsAre;

class StepBoardTest : public testing::Test {
 protected:
  StepBoardTest() {
    options_.ranks = 2;
    options_.steps = 3;
    options_.model.context = 10;
    hooks_.stop = &stop_;
    hooks_.on_step = [this](const StepReport& r) { seen_.push_back(r.step); };
  }

  TrainOptions options_;
  TrainHooks hooks_;
  std::atomic<bool> stop_ = false;
  std::vector<int64_t> seen_;
  FakeClock clock_{1'000'000'000};
};

// One rank alone has no finite loss, so all have none.
TEST_F(StepBoardTest, EndsAfterSoManyStepsInARowWithoutAFiniteLoss) {
  options_.steps = 100;
  options_.stop_on_nan = 3;
  StepBoard board(options_, hooks_, &clock_);
  const double nan = std::nan("");
  // The one in the middle does not count with those at the end.
  const double losses[] = {1, nan, nan, 1, nan, nan, nan};
  int64_t step = 0;
  for (const double loss : losses) {
    ++step;
    ASSERT_TRUE(board.Begin(step)) << step;
    RankStep result;
    result.loss = 1;
    board.Post(0, step, result);
    result.loss = loss;
    // Whoever asks first waits for what the other rank says.
    std::thread other([&] { board.Post(1, step, result); });
    EXPECT_EQ(board.MaySave(step), loss == 1) << step;
    other.join();
  }
  EXPECT_FALSE(board.Begin(step + 1));
  EXPECT_TRUE(board.stopped_early());
  EXPECT_EQ(board.steps_without_loss(), 3);
}

TEST_F(StepBoardTest, NobodyWaitsForARankThatFailed) {
  StepBoard board(options_, hooks_, &clock_);
  EXPECT_TRUE(board.Begin(1));
  board.Post(0, 1, RankStep());
  std::thread other([&] { board.Abandon(); });
  board.MaySave(1);
  other.join();
}

TEST_F(StepBoardTest, ReportsAStepWhenItsLastRankPosts) {
  StepBoard board(options_, hooks_, &clock_);
  EXPECT_TRUE(board.Begin(1));
  clock_.AdvanceNs(500'000'000);
  RankStep result;
  result.loss = 2;
  result.grad_norm = 7;
  board.Post(1, 1, result);
  EXPECT_THAT(seen_, ElementsAre());
  EXPECT_TRUE(board.Begin(1));
  EXPECT_TRUE(board.Begin(2));  // the quick rank is a step ahead
  board.Post(1, 2, result);
  result.loss = 4;
  board.Post(0, 1, result);
  board.Post(0, 2, result);
  EXPECT_THAT(seen_, ElementsAre(1, 2));
  const StepHistory reports = board.TakeReports();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].loss, 3);
  EXPECT_EQ(reports[0].grad_norm, 7);
  EXPECT_EQ(reports[0].seconds, 0.5);
  EXPECT_EQ(reports[0].tokens, 2 * 2 * 10);
  EXPECT_EQ(reports[1].seconds, 0);
}

TEST_F(StepBoardTest, EndsAfterTheLastStep) {
  StepBoard board(options_, hooks_, &clock_);
  for (int64_t step = 1; step <= 3; ++step) EXPECT_TRUE(board.Begin(step));
  EXPECT_FALSE(board.Begin(4));
  EXPECT_FALSE(board.stopped_early());
}

TEST_F(StepBoardTest, AStopComesAfterTheStepThatAnyRankHasBegun) {
  StepBoard board(options_, hooks_, &clock_);
  EXPECT_TRUE(board.Begin(1));
  EXPECT_TRUE(board.Begin(2));
  stop_ = true;
  EXPECT_FALSE(board.Begin(3));
  // The slower rank makes the steps that the quicker one has begun.
  EXPECT_TRUE(board.Begin(1));
  EXPECT_TRUE(board.Begin(2));
  EXPECT_FALSE(board.Begin(3));
  EXPECT_TRUE(board.stopped_early());
}

TEST_F(StepBoardTest, AStopBeforeTheFirstStepMakesNone) {
  StepBoard board(options_, hooks_, &clock_);
  stop_ = true;
  EXPECT_FALSE(board.Begin(1));
  EXPECT_TRUE(board.stopped_early());
}

TEST_F(StepBoardTest, AStopInTheLastStepIsNoEarlyStop) {
  StepBoard board(options_, hooks_, &clock_);
  for (int64_t step = 1; step <= 3; ++step) EXPECT_TRUE(board.Begin(step));
  stop_ = true;
  EXPECT_FALSE(board.Begin(4));
  EXPECT_FALSE(board.stopped_early());
}

TEST_F(StepBoardTest, RanksThatRunFreelyAgreeOnWhereTheyStop) {
  options_.ranks = 4;
  options_.steps = 1'000'000'000;
  hooks_.on_step = {};
  StepBoard board(options_, hooks_, &clock_);
  std::vector<int64_t> last(4);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      for (int64_t step = 1; board.Begin(step); ++step) {
        board.Post(rank, step, {});
        last[static_cast<size_t>(rank)] = step;
        if (rank == 2 && step == 50) stop_ = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(last[0], 50);
  EXPECT_EQ(last, std::vector<int64_t>(4, last[0]));
  EXPECT_EQ(board.TakeReports().size(), static_cast<size_t>(last[0]));
}

}  // namespace
}  // namespace castor::gpt
