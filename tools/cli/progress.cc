// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/progress.h"

#include <ostream>

#include "offload/lanes/start_thread.h"

namespace castor {
namespace {

// To the first column, and clear to the end of the line.
constexpr std::string_view kWipe = "\r\x1b[K";

}  // namespace

Progress::Progress(const Console& console, std::chrono::milliseconds patience)
    : console_(console) {
  if (console.err_is_terminal) {
    try {
      writer_ = StartThread([this, patience] { Run(patience); });
    } catch (const ThreadLimit&) {
      // What is waited for matters more than its progress.
    }
  }
}

Progress::~Progress() { Finish(); }

void Progress::Phase(std::string_view name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  phase_ = name;
  changed_.notify_one();
}

void Progress::Finish() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    finished_ = true;
    changed_.notify_one();
  }
  if (writer_.joinable()) writer_.join();
}

void Progress::Run(std::chrono::milliseconds patience) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (changed_.wait_for(lock, patience, [this] { return finished_; })) return;
  std::string shown;
  while (!finished_) {
    if (phase_ != shown) {
      shown = phase_;
      console_.err << kWipe << "castor: " << shown << " ..." << std::flush;
    }
    changed_.wait(lock, [&] { return finished_ || phase_ != shown; });
  }
  if (!shown.empty()) console_.err << kWipe << std::flush;
}

}  // namespace castor
