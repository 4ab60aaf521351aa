// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_RUN_PROGRAM_H_
#define CASTOR_TESTS_SUPPORT_RUN_PROGRAM_H_

// Runs a program as a user would and sees what it prints and how it ends. The
// program's output goes through files, so it never waits for its reader.
// Owner thread only.

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace castor {

struct ProgramResult {
  int exit_code = -1;  // -1: a signal ended it
  int signal = 0;
  std::string out;
  std::string err;
};

class RunningProgram {
 public:
  // `args` without the program's name. Output files go into `scratch`, which
  // must outlive this. CHECKs that the program starts.
  RunningProgram(const std::string& program,
                 const std::vector<std::string>& args,
                 const std::filesystem::path& scratch);
  // Kills it if it still runs.
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  // Waits until the standard error contains `text`. False when the program
  // ends, or `timeout` passes, before it does.
  bool WaitForError(const std::string& text,
                    std::chrono::seconds timeout = std::chrono::seconds(60));
  void Signal(int signal);
  // Those that it started itself and that still run.
  std::vector<pid_t> Children() const;
  ProgramResult Wait();

 private:
  std::filesystem::path out_;
  std::filesystem::path err_;
  pid_t pid_ = -1;
  bool ended_ = false;
  int status_ = 0;
};

ProgramResult RunProgramToEnd(const std::string& program,
                              const std::vector<std::string>& args,
                              const std::filesystem::path& scratch);

// The path of a file that a test names in `data`, as Bazel runs the test.
std::string DataPath(const std::string& path_in_repository);

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_RUN_PROGRAM_H_
