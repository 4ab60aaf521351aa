// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "chunk/text/quote.h"
#include "tools/examples/gpt/ranks/rank_group.h"

namespace castor::gpt {

Result<std::unique_ptr<RankGroup>> JoinRanks(
    const Launch& launch, const std::vector<std::string>& args, int64_t) {
  std::error_code unknown;
  const std::filesystem::path own =
      std::filesystem::read_symlink("/proc/self/exe", unknown);
  const std::string program = own.string() + "_mpi";
  std::vector<std::string> words = {program};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  if (!unknown) execv(program.c_str(), argv.data());
  const std::error_code why =
      unknown ? unknown : std::error_code(errno, std::generic_category());
  return Status(Unavailable(fmt::format(
      "{} started this process as rank {} of {}, and the program that meets "
      "the others by MPI cannot be run: {}: {}; build it with bazel build "
      "//tools/examples:train_gpt_mpi, or give --ranks for ranks that are "
      "threads, and start it once",
      LauncherName(launch.by), launch.rank, launch.world, QuotedPath(program),
      why.message())));
}

}  // namespace castor::gpt
