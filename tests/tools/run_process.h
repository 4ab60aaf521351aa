// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_TOOLS_RUN_PROCESS_H_
#define CASTOR_TESTS_TOOLS_RUN_PROCESS_H_

// Runs a program as a shell would, with its own standard streams, so that a
// test sees what a user sees. Owner thread only.

#include <string>
#include <vector>

namespace castor {

struct ProcessOutcome {
  int exit_code = -1;  // -1: ended by a signal
  std::string out;
  std::string err;
};

// `command[0]` is a path; `input` is what the program reads on its standard
// input. Blocks until it ends.
ProcessOutcome RunProcess(const std::vector<std::string>& command,
                          const std::string& input = "");

// The same, with the standard output going to the file `path`.
ProcessOutcome RunProcessInto(const std::vector<std::string>& command,
                              const std::string& path);

}  // namespace castor

#endif  // CASTOR_TESTS_TOOLS_RUN_PROCESS_H_
