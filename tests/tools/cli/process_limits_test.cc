// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/process_limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "offload/nvme/store/run_directory.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

// Blocks of a size that each thread takes until there are no more.
void TakeAllMemory(size_t bytes) {
  std::vector<std::unique_ptr<char[]>> blocks;
  for (;;) blocks.push_back(std::make_unique<char[]>(bytes));
}

// Ends the process.
void RunOutOfMemory(const TempDir& dir, size_t bytes, int threads) {
  const rlimit limit{size_t{2} << 30, size_t{2} << 30};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
  ASSERT_TRUE(PrepareForLimits("tool").ok());
  ASSERT_OK_AND_ASSIGN(auto first, RunDirectory::Create(dir.path(), nullptr));
  ASSERT_OK_AND_ASSIGN(auto moved, RunDirectory::Create(dir.path(), nullptr));
  ASSERT_OK_AND_ASSIGN(auto closed, RunDirectory::Create(dir.path(), nullptr));
  ASSERT_TRUE(closed.Close().ok());
  const RunDirectory second = std::move(moved);
  std::ofstream(first.path() / "data") << "data";
  std::ofstream(second.path() / "data") << "data";
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(TakeAllMemory, bytes);
  TakeAllMemory(bytes);
}

TEST(ProcessLimitsDeathTest, AProcessWithoutMemorySaysSoAndLeavesNothing) {
  const TempDir dir;
  for (const size_t bytes : {size_t{100}, size_t{1} << 24}) {
    for (const int threads : {1, 4}) {
      EXPECT_EXIT(RunOutOfMemory(dir, bytes, threads),
                  testing::ExitedWithCode(ExitCode(ErrorCode::kUnavailable)),
                  "^tool: memory is exhausted: .* smaller model or batch\n$");
      EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
    }
  }
}

}  // namespace
}  // namespace castor
