// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/stop_signals.h"

#include <signal.h>

#include <array>
#include <atomic>
#include <cstddef>

namespace castor {
namespace {

constexpr std::array<int, 2> kSignals = {SIGINT, SIGTERM};

// A handler reaches nothing but what is global.
std::atomic<bool> stop_asked = false;
std::array<struct sigaction, kSignals.size()> before;

void AskToStop(int) { stop_asked = true; }

}  // namespace

StopSignals::StopSignals() {
  stop_asked = false;
  struct sigaction action = {};
  action.sa_handler = AskToStop;
  action.sa_flags = SA_RESETHAND;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &action, &before[i]);
  }
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &before[i], nullptr);
  }
}

const std::atomic<bool>& StopSignals::flag() const { return stop_asked; }

}  // namespace castor
