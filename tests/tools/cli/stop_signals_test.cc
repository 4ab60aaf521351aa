// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace castor {
namespace {

TEST(StopSignalsTest, TheFirstSignalAsksAndTheSecondEnds) {
  for (const int signal : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(
        {
          const StopSignals signals;
          if (signals.asked()) _exit(1);
          raise(signal);
          if (!signals.asked()) _exit(2);
          raise(signal);
          _exit(3);
        },
        testing::KilledBySignal(signal), "");
  }
}

TEST(StopSignalsTest, GivesTheSignalsBack) {
  EXPECT_EXIT(
      {
        { const StopSignals signals; }
        raise(SIGTERM);
        _exit(1);
      },
      testing::KilledBySignal(SIGTERM), "");
  EXPECT_EXIT(
      {
        {
          const StopSignals signals;
          raise(SIGINT);
        }
        const StopSignals again;
        _exit(again.asked() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

TEST(SignalWordsTest, SayByWhatACommandEnds) {
  for (const auto& [signal, name] :
       {std::pair(SIGHUP, "SIGHUP"), std::pair(SIGINT, "SIGINT"),
        std::pair(SIGTERM, "SIGTERM")}) {
    EXPECT_EXIT(
        {
          const SignalWords words("castor plan");
          raise(signal);
          _exit(1);
        },
        testing::KilledBySignal(signal),
        std::string("castor plan: ended by ") + name + ", before it was done");
  }
}

TEST(SignalWordsTest, WhatAParentIgnoresStaysIgnored) {
  EXPECT_EXIT(
      {
        signal(SIGHUP, SIG_IGN);
        {
          const SignalWords words("castor plan");
          raise(SIGHUP);
        }
        raise(SIGHUP);
        _exit(0);
      },
      testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace castor
