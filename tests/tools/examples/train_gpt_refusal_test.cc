// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Command lines that the example trainer refuses.

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/run_program.h"
#include "tests/tools/examples/train_gpt_fixture.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A command line that is refused.
struct Refused {
  std::string name;
  std::vector<std::string> args;  // after those of a small run
  int exit_code;
  std::string says;
};

class TrainGptRefusalTest : public TrainGptTest,
                            public testing::WithParamInterface<Refused> {};

TEST_P(TrainGptRefusalTest, SaysWhyAndLeavesNothingBehind) {
  std::ofstream(dir_.File("empty"));
  std::ofstream(dir_.File("short")) << "short";
  ASSERT_EQ(mkfifo(dir_.File("pipe").c_str(), 0600), 0);
  std::vector<std::string> args = GetParam().args;
  for (std::string& arg : args) {
    const size_t at = arg.find("DIR");
    if (at != std::string::npos) arg.replace(at, 3, dir_.path().string());
  }
  const ProgramResult run = RunSmall(args);
  EXPECT_EQ(run.exit_code, GetParam().exit_code) << run.err;
  EXPECT_THAT(run.err, HasSubstr(GetParam().says));
  EXPECT_THAT(run.out, IsEmpty());
  EXPECT_THAT(run.err, Not(HasSubstr("step 1/")));
  ExpectNothingLeft();
}

INSTANTIATE_TEST_SUITE_P(
    BadInput, TrainGptRefusalTest,
    testing::Values(
        Refused{"UnknownFlag",
                {"--device-buget", "1GiB"},
                2,
                "did you mean --device-budget?"},
        Refused{"RecordOverTheText",
                {"--text", "DIR/short", "--record", "DIR/short"},
                2,
                "would overwrite what --text names"},
        Refused{"TraceOverAFileOfTheTexts",
                {"--text", "DIR", "--trace", "DIR/short"},
                2,
                "would overwrite what --text names"},
        Refused{"RecordAndTraceInOneFile",
                {"--record", "DIR/new", "--trace", "DIR/new"},
                2,
                "--record and --trace would both be written"},
        Refused{"UnknownDtype", {"--dtype", "fp32"}, 2, "f32"},
        Refused{"StageFour", {"--stage", "4"}, 2, "from 0 to 3"},
        Refused{"GroupsOfThree",
                {"--ranks", "4", "--shard-group", "3"},
                2,
                "4 ranks cannot be cut into shard groups of 3"},
        Refused{"NegativeSize", {"--host-budget", "-1"}, 2, "--host-budget"},
        Refused{"AmbiguousSize", {"--host-budget", "1G"}, 2, "1G"},
        Refused{"DeviceBudgetOfNothing",
                {"--device-budget", "0"},
                2,
                "--device-budget: \"0\" is no budget"},
        Refused{"SaveToAnEmptyName",
                {"--save", ""},
                2,
                "--save: its value is empty"},
        Refused{"ResumeFromAnEmptyName",
                {"--resume", ""},
                2,
                "--resume: its value is empty"},
        Refused{"RecordToAnEmptyName",
                {"--record", ""},
                2,
                "--record: its value is empty"},
        Refused{"NoRanks", {"--ranks", "0"}, 2, "from 1 to"},
        Refused{"OddHeads", {"--heads", "5"}, 2, "not a multiple of heads 5"},
        Refused{"BadNvmeSize", {"--nvme", "DIR/nvme:lots"}, 2, "lots"},
        Refused{"OneDriveTwice",
                {"--nvme", "DIR/nvme", "--nvme", "DIR/nvme/:4GiB"},
                2,
                "given before"},
        Refused{"PrefetchBothWays",
                {"--prefetch", "2", "--no-prefetch"},
                2,
                "--prefetch"},
        Refused{"ComputeTimeForNothing",
                {"--compute", "850ms"},
                2,
                "give --prefetch deadlines"},
        Refused{"DigestAfterTheEnd", {"--digest-at", "4"}, 2, "no step 4"},
        Refused{"MoreThanTheMachineHas",
                {"--batch", "65536", "--embd", "65536"},
                5,
                "are available"},
        Refused{"NoSuchText", {"--text", "DIR/nowhere"}, 2, "no such file"},
        Refused{"EmptyText", {"--text", "DIR/empty"}, 4, "holds no text"},
        Refused{"ShortText", {"--text", "DIR/short"}, 4, "a sequence takes 17"},
        Refused{
            "UnreadableText", {"--text", "/proc/self/mem"}, 5, "cannot read"},
        Refused{"DeviceBelowOneChunk",
                {"--device-budget", "64KiB"},
                3,
                "device budget"},
        Refused{"TooLittleAltogether",
                {"--device-budget", "512KiB", "--host-budget", "640KiB"},
                3,
                "budget"},
        Refused{"NvmeTooSmall",
                {"--device-budget", "512KiB", "--host-budget", "640KiB",
                 "--nvme", "DIR/nvme:4KiB"},
                3,
                "nvme"},
        Refused{"NoNvmeFolder",
                {"--device-budget", "512KiB", "--host-budget", "640KiB",
                 "--nvme", "DIR/nowhere"},
                5,
                "nowhere"},
        Refused{"ReadOnlyNvme",
                {"--device-budget", "512KiB", "--host-budget", "640KiB",
                 "--nvme", "/proc"},
                5,
                "/proc"},
        Refused{"LayoutNowhere", {"--layout", "DIR/no"}, 2, "no such file"},
        Refused{"LayoutOfNothing", {"--layout", "DIR/empty"}, 4, "not JSON"},
        Refused{"LayoutAndChunk",
                {"--layout", "DIR/empty", "--chunk", "1MiB"},
                2,
                "--layout and --chunk"},
        Refused{"MachineNowhere", {"--machine", "DIR/no"}, 2, "no such file"},
        Refused{"MachineOfNothing", {"--machine", "DIR/empty"}, 4, "/empty"},
        Refused{"TraceNowhere", {"--trace", "DIR/nowhere/t"}, 2, "--trace"},
        Refused{"LimitsThatLeaveSomething",
                {"--host-budget", "8MiB", "--limit", "grad@host=1KiB"},
                3,
                "the limits of grad leave"},
        Refused{"LimitsAboveABudget",
                {"--host-budget", "640KiB", "--limit", "grad@host=100%"},
                3,
                "raise the host budget by"},
        Refused{"LimitAndRuleConflict",
                {"--host-budget", "8MiB", "--limit", "param@device=1KiB",
                 "--place", "device:wte.weight,state=param"},
                3,
                "rules put"},
        Refused{"ARuleForNothing",
                {"--place", "host:wte.wieght"},
                2,
                "is \"wte.weight\" meant?"},
        Refused{"NvmeOnAPipe", {"--nvme", "DIR/pipe"}, 5, "is no folder"},
        Refused{"RecordIntoAPipe", {"--record", "DIR/pipe"}, 2, "nobody reads"},
        Refused{"ConfigFromAPipe", {"--config", "DIR/pipe"}, 2, "is a pipe"},
        Refused{"LayoutFromAPipe", {"--layout", "DIR/pipe"}, 2, "is a pipe"},
        Refused{"MachineFromAPipe", {"--machine", "DIR/pipe"}, 2, "is a pipe"},
        Refused{"RecordNowhere", {"--record", "DIR/nowhere/r"}, 2, "nowhere"}),
    [](const auto& info) { return info.param.name; });

// A folder with a checkpoint's name and somebody's files in it.
TEST_F(TrainGptTest, DoesNotSaveOverWhatIsNoCheckpoint) {
  const std::string foreign = dir_.File("save/step-00000001");
  std::filesystem::create_directories(foreign);
  std::ofstream(foreign + "/thesis.txt") << "years of work";
  const ProgramResult run =
      RunSmall({"--save", dir_.File("save"), "--steps", "1"});
  EXPECT_EQ(run.exit_code, 2) << run.err;
  EXPECT_THAT(run.err,
              AllOf(HasSubstr("step-00000001"), HasSubstr("is no checkpoint"),
                    Not(HasSubstr("step 1/"))));
  EXPECT_TRUE(std::filesystem::exists(foreign + "/thesis.txt"));
}

// Ranks that are GPUs need a GPU, and the program says what it lacks.
TEST_F(TrainGptTest, NcclIsForMachinesThatHaveIt) {
  const ProgramResult lacking = RunSmall({"--backend", "nccl"});
  EXPECT_EQ(lacking.exit_code, 5) << lacking.err;
  EXPECT_THAT(lacking.err, HasSubstr("CUDA"));
  EXPECT_THAT(lacking.out, IsEmpty());
  const std::pair<std::vector<std::string>, std::string> wrong[] = {
      {{"--backend", "nccl", "--ranks", "2"}, "a rank in each process"},
      {{"--reduce", "native"}, "--backend nccl"},
      {{"--backend", "ncll"}, "did you mean nccl"},
      {{"--rank", "1"}, "the number of ranks"},
      {{"--rank", "2", "--ranks", "2"}, "rank 2 of 2"}};
  for (const auto& [flags, why] : wrong) {
    const ProgramResult run = RunSmall(flags);
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_THAT(run.err, HasSubstr(why));
  }
}

// Whoever starts a process as the only one of its world, and gives it other
// numbers, contradicts himself; a shell of Slurm's only hands variables on.
TEST_F(TrainGptTest, TheOnlyProcessOfALauncherHasOneRank) {
  const auto run_with =
      [&](const std::vector<std::pair<const char*, const char*>>& variables,
          const std::vector<std::string>& flags) {
        for (const auto& [name, value] : variables) setenv(name, value, 1);
        const ProgramResult run = RunSmall(flags);
        for (const auto& [name, value] : variables) unsetenv(name);
        return run;
      };
  const std::vector<std::string> three = {"--ranks", "3", "--steps", "1"};
  const ProgramResult torch =
      run_with({{"RANK", "0"}, {"WORLD_SIZE", "1"}}, three);
  EXPECT_EQ(torch.exit_code, 2) << torch.err;
  EXPECT_THAT(torch.err, AllOf(HasSubstr("number of ranks was given as 3"),
                               HasSubstr("torchrun"), HasSubstr("says 1")));
  const ProgramResult mpi = run_with(
      {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}, three);
  EXPECT_EQ(mpi.exit_code, 2) << mpi.err;
  EXPECT_THAT(mpi.err, HasSubstr("Open MPI"));
  EXPECT_EQ(run_with({{"RANK", "0"}, {"WORLD_SIZE", "1"}},
                     {"--ranks", "1", "--steps", "1"})
                .exit_code,
            0);
  EXPECT_EQ(
      run_with({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}, three)
          .exit_code,
      0);
}

}  // namespace
}  // namespace castor
