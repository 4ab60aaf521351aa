// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The example trainer saved, killed and resumed, as its users do it.

#include <signal.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"
#include "tests/tools/examples/train_gpt_runs.h"

namespace castor {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class TrainGptCheckpointTest : public testing::Test {
 protected:
  TrainGptCheckpointTest() {
    fs::create_directory(dir_.File("output"));
    fs::create_directory(dir_.File("nvme"));
    WriteTrainingText(dir_.File("text"));
  }

  static std::string Program() { return DataPath("tools/examples/train_gpt"); }
  std::vector<std::string> Args(std::vector<std::string> more) const {
    more.insert(more.end(), {"--text", dir_.File("text"), "--layers", "1",
                             "--heads", "2", "--embd", "64", "--seq", "16"});
    return more;
  }
  ProgramResult Run(const std::vector<std::string>& more) const {
    return RunProgramToEnd(Program(), Args(more), dir_.File("output"));
  }
  // The digest of a run of `steps` steps that nothing disturbs.
  std::string Undisturbed(const std::string& ranks, const std::string& dtype,
                          const std::string& steps) const {
    const ProgramResult run = Run({"--ranks", ranks, "--dtype", dtype,
                                   "--steps", steps, "--chunk", "128KiB"});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return DigestIn(run.out);
  }

  // Of the checkpoints there.
  static std::vector<std::string> NamesIn(const std::string& save) {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(save)) {
      if (entry.is_directory()) names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  TempDir dir_;
};

void Sleep(int64_t nanoseconds) {
  const timespec delay = {0, nanoseconds};
  nanosleep(&delay, nullptr);
}

// Four ranks under budgets that leave part for the drive are killed at random
// moments, half of them while they save; each time the run goes on from what
// the one before left, and ends in the weights of one that nothing disturbed.
TEST_F(TrainGptCheckpointTest, KilledRunsEndInTheWeightsOfAnUndisturbedOne) {
  const std::string want = Undisturbed("4", "bf16", "12");
  const std::string save = dir_.File("run");
  std::vector<std::string> args = Args({"--ranks",         "4",
                                        "--dtype",         "bf16",
                                        "--steps",         "12",
                                        "--chunk",         "128KiB",
                                        "--device-budget", "448KiB",
                                        "--host-budget",   "384KiB",
                                        "--nvme",          dir_.File("nvme"),
                                        "--save",          save,
                                        "--resume",        save,
                                        "--save-every",    "1",
                                        "--keep",          "2"});
  std::mt19937_64 random(TestSeed(71));
  int killed = 0;
  int half_saved = 0;
  for (int kill = 0; kill < TestRounds(20); ++kill) {
    if (kill == TestRounds(20) / 2) args.push_back("--save-async");
    const std::string stale = DraftIn(save);
    RunningProgram run(Program(), args, dir_.File("output"));
    if (kill % 2 == 0) {
      for (int i = 0; i < 10'000; ++i) {
        const std::string draft = DraftIn(save);
        if (!draft.empty() && draft != stale) break;
        Sleep(200'000);
      }
      Sleep(static_cast<int64_t>(random() % 2'000'000));
    } else {
      run.WaitForError("step ");
      Sleep(static_cast<int64_t>(random() % 60'000'000));
    }
    run.Signal(SIGKILL);
    killed += run.Wait().signal == SIGKILL;
    half_saved += !DraftIn(save).empty();
    if (kill % 5 != 4) continue;
    // Whoever looks finds something whole, or nothing yet.
    const ProgramResult ended = RunProgramToEnd(
        Program(),
        Args({"--ranks", "4", "--dtype", "bf16", "--steps", "12", "--chunk",
              "64KiB", "--stage", "1", "--resume", save, "--save", save}),
        dir_.File("output"));
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    ASSERT_EQ(DigestIn(ended.out), want);
    EXPECT_EQ(DraftIn(save), "");
    fs::remove_all(save);
  }
  std::cout << killed << " were killed, " << half_saved << " while saving\n";
  EXPECT_GE(killed, TestRounds(20) / 2);
  EXPECT_GT(half_saved, 0);
}

TEST_F(TrainGptCheckpointTest, ResumesInAnyStageAndOnAnyRanks) {
  for (const std::string dtype : {"f32", "bf16"}) {
    const std::string want = Undisturbed("4", dtype, "4");
    const std::string save = dir_.File(dtype);
    const ProgramResult first =
        Run({"--ranks", "4", "--dtype", dtype, "--steps", "2", "--chunk",
             "128KiB", "--save", save});
    ASSERT_EQ(first.exit_code, 0) << first.err;
    EXPECT_THAT(first.out, HasSubstr("checkpoint: " + save));
    for (const std::string stage : {"0", "1", "2", "3"}) {
      const ProgramResult same =
          Run({"--ranks", "4", "--dtype", dtype, "--steps", "4", "--stage",
               stage, "--chunk", "256KiB", "--resume", save});
      EXPECT_EQ(same.exit_code, 0) << same.err;
      EXPECT_EQ(DigestIn(same.out), want) << "stage " << stage;
      EXPECT_THAT(same.err, HasSubstr("after step 2"));
    }
    // Other ranks see other data, and begin with the same weights.
    for (const std::string ranks : {"1", "3", "8"}) {
      const ProgramResult other =
          Run({"--ranks", ranks, "--dtype", dtype, "--steps", "2", "--resume",
               save + "/step-00000002"});
      EXPECT_EQ(other.exit_code, 0) << other.err;
      EXPECT_EQ(DigestIn(other.out), DigestIn(first.out)) << ranks;
      EXPECT_THAT(other.err, HasSubstr("the steps to come are others"));
    }
  }
}

// A folder is of one run: what is later than a run's beginning would be taken
// for its latest, and what is another's be removed as its own.
TEST_F(TrainGptCheckpointTest, TouchesNoCheckpointsOfAnotherRun) {
  const std::string save = dir_.File("run");
  ASSERT_EQ(
      Run({"--steps", "6", "--save", save, "--save-every", "2"}).exit_code, 0);
  const std::vector<std::string> all = NamesIn(save);
  const std::string second = save + "/step-00000002";
  const std::string last = save + "/step-00000006";
  const std::string other = dir_.File("other");
  ASSERT_EQ(Run({"--steps", "1", "--save", other}).exit_code, 0);
  const std::string six = dir_.File("elsewhere");
  fs::copy(last, six, fs::copy_options::recursive);
  const std::pair<std::vector<std::string>, std::string> wrong[] = {
      {{"--steps", "1", "--keep", "1"},
       "after step 0: step-00000002, step-00000004, step-00000006; resume"},
      {{"--steps", "8", "--init", last}, "after step 0: step-00000002"},
      {{"--steps", "5", "--keep", "2", "--resume", second},
       "after step 2: step-00000004, step-00000006; resume"},
      {{"--steps", "5", "--resume", other}, "after step 1: step-00000002"},
      {{"--steps", "6", "--resume", six}, "after step 6: step-00000002"}};
  for (const auto& [flags, why] : wrong) {
    std::vector<std::string> args = flags;
    args.insert(args.end(), {"--save", save, "--save-every", "1"});
    const ProgramResult run = Run(args);
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_THAT(run.err, HasSubstr(why));
    EXPECT_EQ(run.out, "");
    EXPECT_EQ(NamesIn(save), all);
  }
  const ProgramResult keeps =
      Run({"--steps", "8", "--resume", last, "--save", other, "--keep", "1"});
  EXPECT_EQ(keeps.exit_code, 2);
  EXPECT_THAT(keeps.err, HasSubstr("after step 6: step-00000001; resume"));
  // Without what it left, a branch goes on, and keeps its own.
  fs::remove_all(save + "/step-00000004");
  fs::remove_all(last);
  const ProgramResult branch =
      Run({"--steps", "5", "--keep", "2", "--resume", second + "/", "--save",
           save, "--save-every", "1"});
  ASSERT_EQ(branch.exit_code, 0) << branch.err;
  EXPECT_EQ(NamesIn(save),
            (std::vector<std::string>{"step-00000004", "step-00000005"}));
}

TEST_F(TrainGptCheckpointTest, OverwritesNoFileOfACheckpointThatItReads) {
  const std::string save = dir_.File("run");
  ASSERT_EQ(Run({"--steps", "1", "--save", save}).exit_code, 0);
  for (const std::string from : {"--resume", "--init"}) {
    for (const std::string to : {"--record", "--trace"}) {
      for (const std::string name : {"model.safetensors", "castor.json"}) {
        const std::string file = save + "/step-00000001/" + name;
        const uint64_t size = fs::file_size(file);
        const ProgramResult run = Run({"--steps", "3", from, save, to, file});
        EXPECT_EQ(run.exit_code, 2) << run.err;
        EXPECT_THAT(run.err,
                    HasSubstr("would overwrite what " + from + " names"));
        EXPECT_EQ(fs::file_size(file), size);
      }
    }
  }
  EXPECT_EQ(Run({"--steps", "2", "--resume", save, "--save", save}).exit_code,
            0);
}

TEST_F(TrainGptCheckpointTest, FindsOutBeforeItTrainsThatItCannotSave) {
  const std::pair<std::string, int> wrong[] = {
      {dir_.File("no/parent"), 5},
      {dir_.File("text"), 2},
      {"/proc/self", 5}};  // nobody may write there
  for (const std::string ranks : {"1", "3"}) {
    for (const auto& [save, code] : wrong) {
      const ProgramResult run =
          Run({"--steps", "2", "--ranks", ranks, "--save", save});
      EXPECT_EQ(run.exit_code, code) << run.err;
      EXPECT_THAT(run.err, HasSubstr("--save: "));
      EXPECT_THAT(run.err, HasSubstr(save));
      EXPECT_THAT(run.err, Not(HasSubstr("step 1")));
      EXPECT_EQ(run.out, "");
    }
  }
}

// Here no file may grow as large as a checkpoint's.
TEST_F(TrainGptCheckpointTest, SumsUpThoughItCouldNotSave) {
  const std::string save = dir_.File("run");
  for (const std::string how : {"", "--save-async"}) {
    std::vector<std::string> args = {
        "-c", "trap '' XFSZ; ulimit -f 32; exec \"$@\"", "sh", Program()};
    std::vector<std::string> flags =
        Args({"--steps", "2", "--ranks", "2", "--save", save});
    if (!how.empty()) flags.push_back(how);
    args.insert(args.end(), flags.begin(), flags.end());
    const ProgramResult run =
        RunProgramToEnd("/bin/sh", args, dir_.File("output"));
    EXPECT_EQ(run.exit_code, 5) << run.err;
    EXPECT_NE(DigestIn(run.out), "no digest");
    EXPECT_THAT(run.out, Not(HasSubstr("checkpoint: ")));
    EXPECT_THAT(run.err, HasSubstr("the last step was not saved"));
    EXPECT_EQ(NamesIn(save), std::vector<std::string>());
  }
}

// Whatever is damaged, every number of ranks is told what to go on from.
TEST_F(TrainGptCheckpointTest, NamesTheNewestCheckpointBeforeADamagedOne) {
  const std::string save = dir_.File("run");
  ASSERT_EQ(
      Run({"--steps", "4", "--save", save, "--save-every", "1"}).exit_code, 0);
  const std::string last = save + "/step-00000004";
  // One that is cut short is no help either.
  fs::resize_file(save + "/step-00000003/model.safetensors", 1000);
  const auto expect = [&](int code) {
    for (const auto& [ranks, from] :
         {std::pair<std::string, std::string>{"1", save}, {"3", last}}) {
      const ProgramResult run =
          Run({"--steps", "5", "--ranks", ranks, "--resume", from});
      EXPECT_EQ(run.exit_code, code) << run.err;
      EXPECT_THAT(run.err, HasSubstr("the newest older one is \"" + save +
                                     "/step-00000002\"\n"));
    }
  };
  const std::string weights = last + "/model.safetensors";
  const uint64_t size = fs::file_size(weights);
  std::fstream file(weights, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<int64_t>(size) - 100);
  const int byte = file.get();
  file.seekp(static_cast<int64_t>(size) - 100);
  file.put(static_cast<char>(byte ^ 4));
  file.close();
  expect(4);
  // Nor do wrong bytes begin a training.
  for (const std::string& from : {save, last, weights}) {
    const ProgramResult run = Run({"--steps", "1", "--init", from});
    EXPECT_EQ(run.exit_code, 4) << run.err;
    EXPECT_THAT(run.err, HasSubstr("does not hold the bytes that were saved"));
    EXPECT_EQ(run.out, "");
  }
  fs::resize_file(weights, size - 1);
  expect(4);
  fs::remove(weights);
  expect(4);
  EXPECT_EQ(
      Run({"--steps", "5", "--resume", save + "/step-00000002"}).exit_code, 0);
}

TEST_F(TrainGptCheckpointTest, SaysWhatDoesNotGoTogether) {
  const std::string save = dir_.File("run");
  ASSERT_EQ(Run({"--steps", "2", "--save", save}).exit_code, 0);
  const std::pair<std::vector<std::string>, std::string> wrong[] = {
      {{"--resume", save, "--seed", "7"}, "trained with --seed 1"},
      {{"--resume", save, "--steps", "1"}, "2 steps already"},
      {{"--resume", dir_.File("none")}, "no such folder"},
      {{"--resume", dir_.File("nvme")}, "holds no checkpoint"},
      {{"--resume", save, "--dtype", "bf16"}, "is F32 in the checkpoint"},
      {{"--resume", save, "--embd", "32"}, "has shape"},
      {{"--save-every", "2"}, "give --save a"}};
  for (const auto& [flags, why] : wrong) {
    std::vector<std::string> args = flags;
    args.insert(args.end(), {"--text", dir_.File("text"), "--layers", "1",
                             "--heads", "2", "--seq", "16"});
    if (std::find(args.begin(), args.end(), "--embd") == args.end()) {
      args.insert(args.end(), {"--embd", "64"});
    }
    const ProgramResult run =
        RunProgramToEnd(Program(), args, dir_.File("output"));
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_THAT(run.err, HasSubstr(why));
  }
}

}  // namespace
}  // namespace castor
