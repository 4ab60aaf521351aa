// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace castor {
namespace {

constexpr std::array<int, 2> kSignals = {SIGINT, SIGTERM};

// A handler reaches nothing but what is global.
std::atomic<bool> stop_asked = false;
std::array<struct sigaction, kSignals.size()> before;

std::atomic<const char*> words_then = nullptr;

// Calls nothing but what a handler may call.
void AskToStop(int) {
  const int error = errno;
  stop_asked = true;
  if (const char* words = words_then; words != nullptr) {
    // Where nobody reads the words, training stops all the same.
    if (::write(STDERR_FILENO, words, std::strlen(words)) < 0) errno = 0;
  }
  errno = error;
}

}  // namespace

StopSignals::StopSignals(const char* words) {
  stop_asked = false;
  words_then = words;
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
