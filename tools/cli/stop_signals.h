// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_CLI_STOP_SIGNALS_H_
#define CASTOR_TOOLS_CLI_STOP_SIGNALS_H_

// Ctrl-C for a command that takes long: the first SIGINT or SIGTERM asks it to
// stop where it can, with what it has so far and everything of its own removed;
// the second ends the process as if nobody had handled it. Thread-safe, but for
// the making, which belongs to the main thread.

#include <atomic>
#include <string_view>

namespace castor {

// While one lives the signals are handled, afterwards as before it. REQUIRES:
// one at a time.
class StopSignals {
 public:
  // `words`, which last, go to the standard error at once when the first comes;
  // null: nothing does.
  explicit StopSignals(const char* words = nullptr);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Whether one came since this was made.
  bool asked() const { return flag(); }
  // The same, for others to look at from any thread; for ever valid.
  const std::atomic<bool>& flag() const;
};

// Says by which signal a command ends that handles none: "castor plan: ended by
// SIGTERM, before it was done". The signal ends the process all the same.
// REQUIRES: one at a time.
class SignalWords {
 public:
  explicit SignalWords(std::string_view who);
  ~SignalWords();
  SignalWords(const SignalWords&) = delete;
  SignalWords& operator=(const SignalWords&) = delete;
};

}  // namespace castor

#endif  // CASTOR_TOOLS_CLI_STOP_SIGNALS_H_
