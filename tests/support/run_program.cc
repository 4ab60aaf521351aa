// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/support/run_program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "chunk/base/check.h"
#include "tests/support/file_text.h"

namespace castor {
namespace {

std::filesystem::path NewFile(const std::filesystem::path& folder) {
  std::string pattern = (folder / "output-XXXXXX").string();
  const int fd = mkstemp(pattern.data());
  CASTOR_CHECK_GE(fd, 0);
  close(fd);
  return pattern;
}

}  // namespace

RunningProgram::RunningProgram(const std::string& program,
                               const std::vector<std::string>& args,
                               const std::filesystem::path& scratch)
    : out_(NewFile(scratch)), err_(NewFile(scratch)) {
  std::vector<std::string> words = {program};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  CASTOR_CHECK_EQ(posix_spawn_file_actions_init(&files), 0);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY,
                                   0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, out_.c_str(),
                                   O_WRONLY | O_TRUNC, 0);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, err_.c_str(),
                                   O_WRONLY | O_TRUNC, 0);
  const int error = posix_spawn(&pid_, program.c_str(), &files, nullptr,
                                argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  CASTOR_CHECK_EQ(error, 0);
}

RunningProgram::~RunningProgram() {
  if (ended_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, &status_, 0);
}

bool RunningProgram::WaitForError(const std::string& text,
                                  std::chrono::seconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    // Looked at in this order, so that what was said before the end counts.
    if (!ended_ && waitpid(pid_, &status_, WNOHANG) == pid_) ended_ = true;
    if (FileText(err_).find(text) != std::string::npos) return true;
    if (ended_ || std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void RunningProgram::Signal(int signal) {
  if (!ended_) kill(pid_, signal);
}

std::vector<pid_t> RunningProgram::Children() const {
  std::vector<pid_t> children;
  const std::filesystem::path tasks =
      std::filesystem::path("/proc") / std::to_string(pid_) / "task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    std::ifstream file(task.path() / "children");
    for (pid_t child = 0; file >> child;) children.push_back(child);
  }
  return children;
}

ProgramResult RunningProgram::Wait() {
  if (!ended_) {
    CASTOR_CHECK_EQ(waitpid(pid_, &status_, 0), pid_);
    ended_ = true;
  }
  ProgramResult result;
  if (WIFEXITED(status_)) result.exit_code = WEXITSTATUS(status_);
  if (WIFSIGNALED(status_)) result.signal = WTERMSIG(status_);
  result.out = FileText(out_);
  result.err = FileText(err_);
  return result;
}

ProgramResult RunProgramToEnd(const std::string& program,
                              const std::vector<std::string>& args,
                              const std::filesystem::path& scratch) {
  return RunningProgram(program, args, scratch).Wait();
}

std::string DataPath(const std::string& path_in_repository) {
  const char* sources = std::getenv("TEST_SRCDIR");
  const char* workspace = std::getenv("TEST_WORKSPACE");
  CASTOR_CHECK(sources != nullptr);
  CASTOR_CHECK(workspace != nullptr);
  return std::string(sources) + "/" + workspace + "/" + path_in_repository;
}

}  // namespace castor
