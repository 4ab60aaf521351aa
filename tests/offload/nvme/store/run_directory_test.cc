// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/store/run_directory.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/file_text.h"
#include "tests/support/private_mount.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

class RunDirectoryTest : public testing::Test {
 protected:
  std::vector<std::string> Entries() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir_.path())) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  static void Put(const fs::path& path, const std::string& text) {
    std::ofstream(path) << text;
  }
  // Runs `body` in a child process; returns how that ended.
  template <typename Body>
  static pid_t Fork(Body body) {
    std::cout.flush();
    const pid_t child = fork();
    if (child == 0) {
      body();
      _exit(0);
    }
    return child;
  }
  static int Wait(pid_t child) {
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
  }

  // A run that is killed: returns the directory that it left behind.
  fs::path KillARun(const std::string& text) {
    const int status = Wait(Fork([&] {
      auto run = RunDirectory::Create(dir_.path(), nullptr);
      if (!run.ok()) _exit(1);
      Put(run->path() / "data", text);
      fs::create_directory(run->path() / "deeper");
      Put(run->path() / "deeper" / "more", text);
      kill(getpid(), SIGKILL);
    }));
    EXPECT_TRUE(WIFSIGNALED(status));
    const auto left = Entries();
    EXPECT_EQ(left.size(), 1u);
    return dir_.path() / left.front();
  }

  TempDir dir_;
  std::vector<std::string> said_;
  Log log_{
      [this](LogLevel, std::string_view line) { said_.emplace_back(line); }};
};

TEST_F(RunDirectoryTest, IsRemovedWithAllItHolds) {
  {
    ASSERT_OK_AND_ASSIGN(auto run, RunDirectory::Create(dir_.path(), &log_));
    EXPECT_TRUE(run.path().is_absolute());
    EXPECT_EQ(run.path().parent_path(), fs::canonical(dir_.path()));
    EXPECT_THAT(run.path().filename().string(),
                testing::StartsWith("castor-run-"));
    Put(run.path() / "data", "x");
    fs::create_directories(run.path() / "a" / "b");
    EXPECT_THAT(Entries(), testing::SizeIs(1));
  }
  EXPECT_THAT(Entries(), IsEmpty());
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(RunDirectoryTest, CloseReportsAndIsDoneOnce) {
  ASSERT_OK_AND_ASSIGN(auto run, RunDirectory::Create(dir_.path(), &log_));
  EXPECT_THAT(run.Close(), IsOk());
  EXPECT_THAT(Entries(), IsEmpty());
  EXPECT_THAT(run.Close(), IsOk());
}

TEST_F(RunDirectoryTest, IsRemovedByAProcessWithoutADescriptorToSpare) {
  const pid_t child = Fork([&] {
    Result<RunDirectory> run = RunDirectory::Create(dir_.path(), nullptr);
    if (!run.ok()) _exit(2);
    Put(run->path() / "file", "bytes");
    // All below the limit are taken, the lock's among them.
    int last = 0;
    while (last < 64) last = dup(STDERR_FILENO);
    rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = static_cast<rlim_t>(last);
    setrlimit(RLIMIT_NOFILE, &limit);
    if (dup(STDERR_FILENO) >= 0) _exit(3);
    if (!run->Close().ok()) _exit(4);
  });
  EXPECT_EQ(Wait(child), 0);
  EXPECT_THAT(Entries(), IsEmpty());
}

TEST_F(RunDirectoryTest, MovesWithItsDirectory) {
  auto first = RunDirectory::Create(dir_.path(), &log_);
  auto second = RunDirectory::Create(dir_.path(), &log_);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  const fs::path kept = second->path();
  std::optional<RunDirectory> moved(std::move(first).value());
  *moved = std::move(second).value();
  EXPECT_EQ(moved->path(), kept);
  EXPECT_THAT(Entries(), ElementsAre(kept.filename().string()));
  moved.reset();
  EXPECT_THAT(Entries(), IsEmpty());
}

TEST_F(RunDirectoryTest, SurvivesAChangeOfDirectory) {
  const fs::path before = fs::current_path();
  fs::current_path(dir_.path());
  {
    ASSERT_OK_AND_ASSIGN(auto run, RunDirectory::Create(".", &log_));
    fs::current_path("/");
  }
  fs::current_path(before);
  EXPECT_THAT(Entries(), IsEmpty());
}

TEST_F(RunDirectoryTest, ASecondRunOfTheProcessLeavesTheFirstAlone) {
  ASSERT_OK_AND_ASSIGN(auto first, RunDirectory::Create(dir_.path(), &log_));
  Put(first.path() / "data", "first");
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(auto second, RunDirectory::Create(dir_.path(), &log_));
    EXPECT_NE(second.path(), first.path());
  }
  EXPECT_EQ(FileText(first.path() / "data"), "first");
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(RunDirectoryTest, AForkedChildDoesNotRemoveTheDirectoryOfItsParent) {
  std::optional<Result<RunDirectory>> run(
      RunDirectory::Create(dir_.path(), &log_));
  ASSERT_THAT(*run, IsOk());
  Put(run->value().path() / "data", "x");
  EXPECT_EQ(Wait(Fork([&] { run.reset(); })), 0);
  EXPECT_EQ(FileText(run->value().path() / "data"), "x");
  // Nor did it give the lock back.
  ASSERT_THAT(RunDirectory::Create(dir_.path(), &log_), IsOk());
  EXPECT_EQ(FileText(run->value().path() / "data"), "x");
}

TEST_F(RunDirectoryTest, ReclaimsWhatAKilledRunLeft) {
  const fs::path left = KillARun(std::string(3 << 20, 'x'));
  EXPECT_TRUE(fs::exists(left / "data"));
  ASSERT_OK_AND_ASSIGN(auto run, RunDirectory::Create(dir_.path(), &log_));
  EXPECT_FALSE(fs::exists(left));
  EXPECT_THAT(Entries(), ElementsAre(run.path().filename().string()));
  EXPECT_THAT(said_, ElementsAre(Says(left.string(), "6.0 MiB")));
}

TEST_F(RunDirectoryTest, ReclaimsWhatARunLeftThatDiedBeforeItHadALock) {
  fs::create_directory(dir_.path() / "castor-run-AbC123");
  ASSERT_OK_AND_ASSIGN(auto run, RunDirectory::Create(dir_.path(), &log_));
  EXPECT_THAT(Entries(), ElementsAre(run.path().filename().string()));
}

TEST_F(RunDirectoryTest, ReclaimsWhatADiedRunHadBegunToRemove) {
  const fs::path left = KillARun("x");
  fs::remove(left / "data");
  ASSERT_THAT(RunDirectory::Create(dir_.path(), &log_), IsOk());
  EXPECT_THAT(Entries(), IsEmpty());
}

TEST_F(RunDirectoryTest, TouchesNothingThatIsNotARuns) {
  const fs::path elsewhere = dir_.path() / "elsewhere";
  fs::create_directory(elsewhere);
  Put(elsewhere / "lock", "");
  Put(elsewhere / "thesis", "x");
  // Like a run's name, but a link; a file; with no lock; longer.
  fs::create_directory_symlink(elsewhere, dir_.path() / "castor-run-abcdef");
  Put(dir_.path() / "castor-run-ghijkl", "x");
  fs::create_directory(dir_.path() / "castor-run-mnopqr");
  Put(dir_.path() / "castor-run-mnopqr" / "thesis", "x");
  fs::create_directory(dir_.path() / "castor-run-backup-2");
  Put(dir_.path() / "castor-run-backup-2" / "lock", "");
  ASSERT_THAT(RunDirectory::Create(dir_.path(), &log_), IsOk());
  EXPECT_TRUE(fs::exists(elsewhere / "thesis"));
  EXPECT_TRUE(fs::is_symlink(dir_.path() / "castor-run-abcdef"));
  EXPECT_TRUE(fs::exists(dir_.path() / "castor-run-ghijkl"));
  EXPECT_TRUE(fs::exists(dir_.path() / "castor-run-mnopqr" / "thesis"));
  EXPECT_TRUE(fs::exists(dir_.path() / "castor-run-backup-2" / "lock"));
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(RunDirectoryTest, UsesAParentLockThatADeadProcessLeft) {
  Put(dir_.path() / ".castor.lock", "");
  { ASSERT_THAT(RunDirectory::Create(dir_.path(), &log_), IsOk()); }
  EXPECT_THAT(Entries(), IsEmpty());
}

TEST_F(RunDirectoryTest, WaitsWhileAnotherRunIsBeingMade) {
  const fs::path lock_path = dir_.path() / ".castor.lock";
  const int lock =
      ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  // Made by the other run, not yet locked: not to be taken for dead.
  const fs::path half_made = dir_.path() / "castor-run-AbC123";
  fs::create_directory(half_made);
  int made[2];
  ASSERT_EQ(pipe2(made, O_CLOEXEC), 0);
  const pid_t child = Fork([&] {
    auto run = RunDirectory::Create(dir_.path(), nullptr);
    if (write(made[1], "", 1) != 1 || !run.ok()) _exit(1);
  });
  pollfd waiting = {.fd = made[0], .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&waiting, 1, 100), 0);
  EXPECT_TRUE(fs::exists(half_made));
  fs::remove(half_made);
  fs::remove(lock_path);
  // Closing would not do: the child has a copy of the descriptor.
  ASSERT_EQ(::flock(lock, LOCK_UN), 0);
  ::close(lock);
  EXPECT_EQ(::poll(&waiting, 1, -1), 1);
  EXPECT_EQ(Wait(child), 0);
  for (int fd : made) ::close(fd);
}

TEST_F(RunDirectoryTest, RunsThatStartEndAndDieAtOnceNeverMeet) {
  const uint64_t seed = TestSeed(3);
  constexpr int kProcesses = 4;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    children.push_back(Fork([&, p] {
      std::mt19937_64 random(seed + static_cast<uint64_t>(p));
      for (int i = 0; i < 40; ++i) {
        auto run = RunDirectory::Create(dir_.path(), nullptr);
        if (!run.ok()) _exit(1);
        const std::string text = std::to_string(getpid() * 1000 + i);
        Put(run->path() / "data", text);
        if (random() % 8 == 0) {
          // A run within the run dies.
          const pid_t victim = fork();
          if (victim == 0) {
            auto lost = RunDirectory::Create(dir_.path(), nullptr);
            kill(getpid(), SIGKILL);
          }
          waitpid(victim, nullptr, 0);
        }
        if (FileText(run->path() / "data") != text) _exit(2);
        if (!run->Close().ok()) _exit(3);
      }
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(Wait(child), 0);
  { ASSERT_THAT(RunDirectory::Create(dir_.path(), nullptr), IsOk()); }
  EXPECT_THAT(Entries(), IsEmpty());
}

TEST_F(RunDirectoryTest, SaysWhatIsWrongWithTheParent) {
  EXPECT_THAT(RunDirectory::Create(dir_.path() / "missing", &log_),
              StatusIs(ErrorCode::kUnavailable,
                       Says("missing", "No such file", "mkdir -p")));
  Put(dir_.path() / "file", "x");
  EXPECT_THAT(RunDirectory::Create(dir_.path() / "file", &log_),
              StatusIs(ErrorCode::kUnavailable,
                       Says("file", "Not a directory", "another")));
}

TEST_F(RunDirectoryTest, RefusesAReadOnlyParent) {
  RunWithPrivateMount(
      {.type = "tmpfs", .options = "size=1m", .read_only = true}, dir_.path(),
      [&] {
        EXPECT_THAT(RunDirectory::Create(dir_.path(), nullptr),
                    StatusIs(ErrorCode::kUnavailable,
                             Says("Read-only file system", "for writing")));
      });
}

TEST_F(RunDirectoryTest, RefusesAParentThatTheUserMayNotWrite) {
  const fs::path closed = dir_.path() / "closed";
  fs::create_directory(closed);
  fs::permissions(closed, fs::perms::owner_read | fs::perms::owner_exec);
  const int status = Wait(Fork([&] {
    // Root may write anywhere; nobody may not.
    if (::geteuid() == 0 && ::seteuid(65534) != 0) _exit(77);
    auto run = RunDirectory::Create(closed, nullptr);
    const std::string text = run.status().ToString();
    _exit(text.find("allow this user") != std::string::npos ? 0 : 1);
  }));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    GTEST_SKIP() << "this process cannot become another user";
  }
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace castor
