// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_CLI_PROGRESS_H_
#define CASTOR_TOOLS_CLI_PROGRESS_H_

// What a command is busy with, on one line of a terminal that is wiped at the
// end, and only where it takes long enough for a person to wonder. Where the
// error stream is no terminal nothing is written and no thread runs. Owner
// thread only; a thread of its own writes while the owner is busy. Part of the
// console (console.h).

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "tools/cli/console.h"

namespace castor {

class Progress {
 public:
  // `console` outlives this. Silent until `patience` has passed.
  explicit Progress(const Console& console, std::chrono::milliseconds patience =
                                                std::chrono::seconds(1));
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // The work under way from now on, in a few printable words.
  void Phase(std::string_view name);

  // Wipes the line. Nothing is written after it; call it before anything else
  // is written to the console.
  void Finish();

 private:
  void Run(std::chrono::milliseconds patience);

  const Console& console_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string phase_;      // guarded by mutex_
  bool finished_ = false;  // guarded by mutex_
  std::thread writer_;
};

}  // namespace castor

#endif  // CASTOR_TOOLS_CLI_PROGRESS_H_
