// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The trainer and the command under limits of the process, from one at which a
// program is hardly loaded to one that is enough: each run ends by itself,
// soon, with an exit code of the list, and leaves nothing of its own behind.

#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/run_program.h"
#include "tests/tools/examples/train_gpt_fixture.h"

namespace castor {
namespace {

namespace fs = std::filesystem;

struct Limit {
  std::string flag;  // of ulimit
  std::vector<std::string> values;
};

// The least of `v` and `n` let the loader find its libraries.
const Limit kLimits[] = {
    {"u", {"1", "2", "4", "6", "10", "40"}},
    {"v", {"60000", "150000", "300000", "600000", "2000000", "4000000"}},
    {"d", {"8192", "65536", "131072", "300000", "1000000", "4000000"}},
    {"f", {"0", "1", "8", "256", "4096", "65536"}},
    {"s", {"64", "128", "256", "512", "8192", "100000"}},
    {"n", {"4", "6", "8", "10", "12", "64"}},
    {"l", {"0", "4", "16", "64", "8192"}}};

class LimitsTest : public TrainGptTest,
                   public testing::WithParamInterface<Limit> {
 protected:
  // `program` with `args` in a process that has the limit, and no more than ten
  // seconds. Limits on processes hold for users other than root, each alone: a
  // user with a number of this test's own gets them.
  ProgramResult RunWith(const std::string& value, const std::string& program,
                        const std::vector<std::string>& args) const {
    std::vector<std::string> words = {"--kill-after=1", "10"};
    if (GetParam().flag == "u" && geteuid() == 0) {
      const std::string user = std::to_string(100'000 + getpid());
      const char* const kept = "-all,+dac_override,+dac_read_search";
      words.insert(words.end(), {"setpriv", "--reuid", user, "--clear-groups",
                                 "--inh-caps", kept, "--ambient-caps", kept});
    }
    words.insert(words.end(), {"bash", "-c",
                               "ulimit -c 0; ulimit -" + GetParam().flag + " " +
                                   value + " || exit 99; exec \"$0\" \"$@\"",
                               program});
    words.insert(words.end(), args.begin(), args.end());
    return RunProgramToEnd("/usr/bin/timeout", words, dir_.File("output"));
  }

  // But for what this test itself keeps of programs.
  std::set<std::string> NamesHere() const {
    std::set<std::string> names;
    for (const fs::directory_entry& entry :
         fs::recursive_directory_iterator(dir_.path())) {
      const std::string name = entry.path().string();
      if (!name.starts_with(dir_.File("output"))) names.insert(name);
    }
    return names;
  }

  void ExpectEndsWell(const std::string& program,
                      const std::vector<std::string>& args) const {
    const std::set<std::string> before = NamesHere();
    int done = 0;
    for (const std::string& value : GetParam().values) {
      SCOPED_TRACE("ulimit -" + GetParam().flag + " " + value);
      const ProgramResult run = RunWith(value, program, args);
      EXPECT_THAT(run.exit_code, testing::AnyOf(0, 3, 5)) << run.err;
      // What it says goes to a file, too, which has the limit of files.
      if (run.exit_code != 0 && GetParam().flag != "f") {
        EXPECT_FALSE(run.err.empty());
      }
      done += run.exit_code == 0 ? 1 : 0;
      EXPECT_EQ(NamesHere(), before);
    }
    EXPECT_GT(done, 0) << "the largest is enough";
  }
};

TEST_P(LimitsTest, TheTrainerEndsWell) {
  std::vector<std::string> args = Args(Tight({"--ranks", "2"}));
  ExpectEndsWell(Program(), args);
}

TEST_P(LimitsTest, ProbeEndsWell) {
  ExpectEndsWell(
      DataPath("tools/castor"),
      {"probe", "--quick", "--size", "1MiB", "--nvme", dir_.File("nvme")});
}

TEST_P(LimitsTest, DoctorEndsWell) {
  ExpectEndsWell(DataPath("tools/castor"),
                 {"doctor", "--nvme", dir_.File("nvme")});
}

INSTANTIATE_TEST_SUITE_P(All, LimitsTest, testing::ValuesIn(kLimits),
                         [](const auto& info) { return info.param.flag; });

}  // namespace
}  // namespace castor
