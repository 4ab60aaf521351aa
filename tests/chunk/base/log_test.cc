// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/base/log.h"

#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::Pair;

using Lines = std::vector<std::pair<LogLevel, std::string>>;

Log::Sink Into(Lines* lines) {
  return [lines](LogLevel level, std::string_view line) {
    lines->emplace_back(level, line);
  };
}

TEST(LogTest, HandsLinesToTheSinkInOrder) {
  Lines lines;
  Log log(Into(&lines));
  log.Info("a");
  log.Warning("b");
  log.Error("c");
  EXPECT_THAT(lines, ElementsAre(Pair(LogLevel::kInfo, "a"),
                                 Pair(LogLevel::kWarning, "b"),
                                 Pair(LogLevel::kError, "c")));
}

TEST(LogTest, WarnsOnceForAKey) {
  Lines lines;
  Log log(Into(&lines));
  log.WarnOnce("mlock", "not locked: 16 MiB above the limit");
  log.WarnOnce("mlock", "not locked: 32 MiB above the limit");
  log.WarnOnce("direct", "buffered");
  EXPECT_THAT(lines, ElementsAre(Pair(LogLevel::kWarning,
                                      "not locked: 16 MiB above the limit"),
                                 Pair(LogLevel::kWarning, "buffered")));
}

TEST(LogTest, WithoutASinkWarningsAndErrorsGoToStderr) {
  testing::internal::CaptureStderr();
  Log log;
  log.Info("quiet");
  log.Warning("low space");
  log.Error("lost a drive");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "castor: warning: low space\ncastor: error: lost a drive\n");
}

TEST(LogTest, ThreadsShareIt) {
  Lines lines;
  Log log(Into(&lines));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&log] {
      for (int i = 0; i < 100; ++i) {
        log.Info("line");
        log.WarnOnce("key", "once");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lines.size(), 401u);
}

}  // namespace
}  // namespace castor
