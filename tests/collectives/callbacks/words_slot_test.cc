// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/callbacks/words_slot.h"

#include <signal.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "collectives/callbacks/last_words.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using internal::WordsSlot;
using internal::WordsWeight;
using testing::StartsWith;

std::string Written() {
  testing::internal::CaptureStderr();
  internal::WriteWords(2);
  return testing::internal::GetCapturedStderr();
}

TEST(WordsSlotTest, KeepsTheLastLineOfEach) {
  EXPECT_EQ(Written(), "");
  {
    WordsSlot silent;
    WordsSlot first;
    WordsSlot second;
    first.Say("rank 1 waits", WordsWeight::kMatters);
    second.Say("rank 2 waits", WordsWeight::kMatters);
    first.Say("rank 1 waits again", WordsWeight::kMatters);
    EXPECT_EQ(Written(), "rank 1 waits again\nrank 2 waits\n");
    second.Say(std::string(5000, 'x'), WordsWeight::kMatters);
    EXPECT_THAT(Written(), Says(std::string(1000, 'x') + "\n"));
  }
  EXPECT_EQ(Written(), "");
}

// A process has several worlds, and one sentence for whoever ended it.
TEST(WordsSlotTest, WorldsThatWaitForNobodyAreQuietWhereAnotherWaits) {
  WordsSlot first;
  WordsSlot second;
  first.Say("first computes", WordsWeight::kIdle);
  second.Say("second computes", WordsWeight::kIdle);
  EXPECT_EQ(Written(), "second computes\n");
  first.Say("first computes again", WordsWeight::kIdle);
  EXPECT_EQ(Written(), "second computes\n");
  first.At(1, /*under_way=*/false);
  EXPECT_EQ(Written(), "first computes again\n");
  second.Say("second waits", WordsWeight::kMatters);
  EXPECT_EQ(Written(), "second waits\n");
  first.Say("first goes on", WordsWeight::kIdle);
  EXPECT_EQ(Written(), "second waits\n");
  second.Hush();
  EXPECT_EQ(Written(), "first goes on\n");
  second.Say("second is back", WordsWeight::kIdle);
  second.At(1, /*under_way=*/false);
  EXPECT_EQ(Written(), "second is back\n");
}

// A run of short operations has no time for words; those of an early one would
// blame a rank that came long ago.
TEST(WordsSlotTest, WhatIsOverGivesWayToTheNumberOfTheOperation) {
  WordsSlot slot("rank 0 of 2 was told to end");
  slot.Say("rank 0 of 2 waited for rank 1", WordsWeight::kMatters);
  slot.At(3, /*under_way=*/true);
  EXPECT_EQ(Written(), "rank 0 of 2 waited for rank 1\n");
  slot.At(4500, /*under_way=*/false);
  slot.Outdate();
  EXPECT_EQ(Written(),
            "rank 0 of 2 was told to end while it waited for no rank, after "
            "operation 4500 of the world\n");
  slot.At(4501, /*under_way=*/true);
  EXPECT_EQ(Written(),
            "rank 0 of 2 was told to end at operation 4501 of the world, "
            "before it knew whom it waited for\n");
  slot.Say("rank 0 of 2 waited for rank 1 again", WordsWeight::kMatters);
  EXPECT_EQ(Written(), "rank 0 of 2 waited for rank 1 again\n");
}

// Of worlds that wait for nobody, the one that went on last speaks.
TEST(WordsSlotTest, WhatIsOverMattersWhereItsWorldIsAmidAnOperation) {
  WordsSlot first("first");
  WordsSlot second("second");
  first.Say("first waits", WordsWeight::kMatters);
  second.Say("second computes", WordsWeight::kIdle);
  first.At(7, /*under_way=*/false);
  first.Outdate();
  EXPECT_THAT(Written(), StartsWith("first while it waited for no rank"));
  second.At(1, /*under_way=*/false);
  EXPECT_EQ(Written(), "second computes\n");
  first.At(8, /*under_way=*/true);
  EXPECT_THAT(Written(), StartsWith("first at operation 8"));
  first.Hush();
  first.Outdate();
  EXPECT_EQ(Written(), "second computes\n");
}

TEST(WordsSlotTest, WithNoSlotLeftItSaysNothing) {
  std::vector<std::unique_ptr<WordsSlot>> all;
  for (int i = 0; i < 20; ++i) {
    all.push_back(std::make_unique<WordsSlot>());
    all.back()->Say("here", WordsWeight::kMatters);
  }
  const std::string written = Written();
  EXPECT_LT(written.size(), 20 * 5u);
  EXPECT_GE(written.size(), 5u);
}

using LastWordsDeathTest = testing::Test;

TEST(LastWordsDeathTest, AreWrittenBeforeTheProcessEnds) {
  EXPECT_EXIT(
      {
        const LastWords words;
        WordsSlot slot;
        slot.Say("rank 2 of 4 waited for rank 1", WordsWeight::kMatters);
        raise(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "rank 2 of 4 waited for rank 1");
}

std::atomic<int> handled = 0;

TEST(LastWordsDeathTest, PassTheSignalOn) {
  struct sigaction action = {};
  action.sa_handler = [](int) { ++handled; };
  struct sigaction before;
  ASSERT_EQ(sigaction(SIGTERM, &action, &before), 0);
  testing::internal::CaptureStderr();
  {
    WordsSlot slot;
    slot.Say("waits", WordsWeight::kMatters);
    const LastWords words;
    raise(SIGTERM);
    EXPECT_EQ(handled, 1);
  }
  raise(SIGTERM);  // as before it
  EXPECT_EQ(handled, 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "waits\n");
  ASSERT_EQ(sigaction(SIGTERM, &before, nullptr), 0);
}

}  // namespace
}  // namespace castor
