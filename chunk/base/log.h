// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_BASE_LOG_H_
#define CASTOR_CHUNK_BASE_LOG_H_

// Where the library says what a person should know: a fallback it took, a
// limit it met. The host program owns the sink; without one, lines go to
// stderr. There is no global logger: whoever speaks was handed a Log.
// Thread-safe.

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace castor {

enum class LogLevel { kInfo, kWarning, kError };

class Log {
 public:
  using Sink = std::function<void(LogLevel, std::string_view)>;

  Log();  // to stderr, warnings and errors only
  explicit Log(Sink sink);

  void Info(std::string_view line) { Write(LogLevel::kInfo, line); }
  void Warning(std::string_view line) { Write(LogLevel::kWarning, line); }
  void Error(std::string_view line) { Write(LogLevel::kError, line); }

  // Warns the first time only that `key` is given, so that a fallback taken by
  // every rank or at every step is said once.
  void WarnOnce(std::string_view key, std::string_view line);

 private:
  void Write(LogLevel level, std::string_view line);

  std::mutex mutex_;
  Sink sink_;                                     // guarded by mutex_
  std::set<std::string, std::less<>> said_once_;  // guarded by mutex_
};

}  // namespace castor

#endif  // CASTOR_CHUNK_BASE_LOG_H_
