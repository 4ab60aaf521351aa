// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/base/log.h"

#include <cstdio>
#include <utility>

namespace castor {

Log::Log()
    : Log([](LogLevel level, std::string_view line) {
        if (level == LogLevel::kInfo) return;
        std::fprintf(stderr, "castor: %s: %.*s\n",
                     level == LogLevel::kWarning ? "warning" : "error",
                     static_cast<int>(line.size()), line.data());
      }) {}

Log::Log(Sink sink) : sink_(std::move(sink)) {}

void Log::WarnOnce(std::string_view key, std::string_view line) {
  {
    std::lock_guard lock(mutex_);
    if (said_once_.contains(key)) return;
    said_once_.emplace(key);
  }
  Write(LogLevel::kWarning, line);
}

void Log::Write(LogLevel level, std::string_view line) {
  std::lock_guard lock(mutex_);
  sink_(level, line);
}

}  // namespace castor
