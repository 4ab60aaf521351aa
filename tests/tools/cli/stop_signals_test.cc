// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/stop_signals.h"

#include <signal.h>

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

}  // namespace
}  // namespace castor
