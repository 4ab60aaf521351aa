// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/stop_signals.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>

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

// By the signals below: what is said.
constexpr std::array<int, 3> kEnds = {SIGHUP, SIGINT, SIGTERM};
constexpr std::array<std::string_view, 3> kNames = {"SIGHUP", "SIGINT",
                                                    "SIGTERM"};
std::array<char[160], kEnds.size()> end_words;
std::array<struct sigaction, kEnds.size()> ends_before;

void SayAndEnd(int signal) {
  for (size_t i = 0; i < kEnds.size(); ++i) {
    if (kEnds[i] != signal) continue;
    const char* const words = end_words[i];
    if (::write(STDERR_FILENO, words, std::strlen(words)) < 0) break;
  }
  ::raise(signal);  // as it was before any handler, by SA_RESETHAND
}

}  // namespace

SignalWords::SignalWords(std::string_view who) {
  struct sigaction action = {};
  action.sa_handler = SayAndEnd;
  action.sa_flags = SA_RESETHAND;
  for (size_t i = 0; i < kEnds.size(); ++i) {
    *fmt::format_to_n(end_words[i], sizeof end_words[i] - 1,
                      "{}: ended by {}, before it was done\n", who, kNames[i])
         .out = '\0';
    ::sigaction(kEnds[i], nullptr, &ends_before[i]);
    // What a parent has ignored stays so, as under nohup.
    if (ends_before[i].sa_handler != SIG_DFL) continue;
    ::sigaction(kEnds[i], &action, nullptr);
  }
}

SignalWords::~SignalWords() {
  for (size_t i = 0; i < kEnds.size(); ++i) {
    ::sigaction(kEnds[i], &ends_before[i], nullptr);
  }
}

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
