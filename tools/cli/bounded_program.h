// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_CLI_BOUNDED_PROGRAM_H_
#define CASTOR_TOOLS_CLI_BOUNDED_PROGRAM_H_

// Another program's answer to a question, and an end to it where it does not
// answer: it may be slow, print for ever, fail, or not be there. No shell is
// between. Thread-safe.

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace castor {

struct ProgramLimits {
  std::chrono::milliseconds time;
  size_t output_bytes;  // of the standard output
};

enum class ProgramEnd {
  kExited,      // by itself, or by a signal of others
  kNotStarted,  // there is no such program, or it may not be run
  kTooLong,     // it was killed when its time was over
  kTooMuch,     // it was killed when it had printed more than may be
};

struct ProgramAnswer {
  ProgramEnd end = ProgramEnd::kNotStarted;
  int exit_code = -1;     // -1: no end of its own
  std::string output;     // of the standard output, as far as it was read
  std::string last_said;  // the standard error's last line that is not empty
  std::string refused;    // why it was not started, in the system's words
};

// `words[0]` is a path, or a name that PATH leads to. The program reads `input`
// and has a process group of its own, all of which is killed at the end.
ProgramAnswer RunBounded(std::vector<std::string> words, std::string_view input,
                         const ProgramLimits& limits);

// The Python to ask: `named`; where that is empty the one of CASTOR_PYTHON, by
// which the wheel's command names the Python that it is installed in; else
// python3.
std::string PythonToAsk(const std::string& named = {});

}  // namespace castor

#endif  // CASTOR_TOOLS_CLI_BOUNDED_PROGRAM_H_
