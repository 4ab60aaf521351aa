// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/world/launch.h"

#include <map>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

Result<Launch> Find(const Variables& variables,
                    const LaunchRequest& request = {}) {
  return FindLaunch(
      [&](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      request);
}

const Variables kMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                        {"OMPI_COMM_WORLD_SIZE", "4"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}};
const Variables kTorch = {{"RANK", "5"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"MASTER_ADDR", "node0"},
                          {"MASTER_PORT", "29500"}};
const Variables kSlurmStep = {{"SLURM_PROCID", "2"},
                              {"SLURM_STEP_NUM_TASKS", "6"},
                              {"SLURM_NTASKS", "6"},
                              {"SLURM_LOCALID", "0"}};

Variables With(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

void ExpectIs(const Result<Launch>& found, Launcher by, int rank, int world,
              int local_rank) {
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->by, by);
  EXPECT_EQ(found->rank, rank);
  EXPECT_EQ(found->world, world);
  EXPECT_EQ(found->local_rank, local_rank);
}

TEST(LaunchTest, EachLauncherTellsRankAndSize) {
  ExpectIs(Find({}), Launcher::kNone, 0, 1, 0);
  ExpectIs(Find(kMpi), Launcher::kOpenMpi, 3, 4, 1);
  ExpectIs(Find(kTorch), Launcher::kTorchrun, 5, 8, 1);
  EXPECT_EQ(Find(kTorch)->master_address, "node0");
  EXPECT_EQ(Find(kTorch)->master_port, 29500);
  EXPECT_EQ(Find(kTorch)->meeting_host, "node0");
  EXPECT_EQ(Find(kTorch)->meeting_port, 29501);
  EXPECT_EQ(Find(With(kTorch, {{"MASTER_PORT", "65535"}}))->meeting_port,
            65534);
  EXPECT_EQ(Find(kMpi)->meeting_port, 0);
  ExpectIs(Find(kSlurmStep), Launcher::kSlurm, 2, 6, 0);
  ExpectIs(Find({}, {.rank = 1, .world = 2}), Launcher::kExplicit, 1, 2, 1);
  ExpectIs(Find({}, {.rank = 1, .world = 2, .local_rank = 0}),
           Launcher::kExplicit, 1, 2, 0);
}

TEST(LaunchTest, RanksOfASlurmStepMeetOnItsFirstHost) {
  const std::pair<std::string, std::string> lists[] = {
      {"node3", "node3"},
      {"node3,node7", "node3"},
      {"node[07-09,12],gpu[1-2]", "node07"},
      {"node[12]", "node12"},
      {"rack1-[3,5]-a,node1", "rack1-3-a"},
      {"login,node[1-2]", "login"}};
  for (const auto& [list, host] : lists) {
    const Result<Launch> found =
        Find(With(kSlurmStep, {{"SLURM_JOB_ID", "71"},
                               {"SLURM_STEP_ID", "0"},
                               {"SLURM_STEP_NODELIST", list}}));
    ASSERT_THAT(found, IsOk());
    EXPECT_EQ(found->meeting_host, host);
    EXPECT_GE(found->meeting_port, 15000);
    EXPECT_LT(found->meeting_port, 30000);
  }
  // Each step of a job, and each job, has a port of its own.
  const auto port = [](const std::string& job, const std::string& step) {
    return Find(With(kSlurmStep, {{"SLURM_JOB_ID", job},
                                  {"SLURM_STEP_ID", step},
                                  {"SLURM_STEP_NODELIST", "node1"}}))
        ->meeting_port;
  };
  EXPECT_NE(port("71", "0"), port("71", "1"));
  EXPECT_NE(port("71", "0"), port("72", "0"));
  EXPECT_EQ(port("2147483647", "0"), port("2147483647", "0"));
  EXPECT_TRUE(Find(kSlurmStep)->meeting_host.empty());
}

// mpirun started from a batch script, and a program started from it directly.
TEST(LaunchTest, SlurmsVariablesOfABatchScriptMeanNothing) {
  const Variables batch = {
      {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}};
  ExpectIs(Find(batch), Launcher::kNone, 0, 1, 0);
  ExpectIs(Find(With(batch, kMpi)), Launcher::kOpenMpi, 3, 4, 1);
  // torchrun in a task of srun's, once a machine.
  ExpectIs(Find(With(kSlurmStep, kTorch)), Launcher::kTorchrun, 5, 8, 1);
}

TEST(LaunchTest, TwoThatAgreeAreOne) {
  const Result<Launch> both =
      Find(With(kMpi, With(kTorch, {{"RANK", "3"}, {"WORLD_SIZE", "4"}})));
  ExpectIs(both, Launcher::kOpenMpi, 3, 4, 1);
  EXPECT_EQ(both->master_port, 29500);
  ExpectIs(Find(kMpi, {.rank = 3, .world = 4}), Launcher::kOpenMpi, 3, 4, 1);
}

TEST(LaunchTest, RefusesWhatMakesNoSense) {
  struct Case {
    Variables variables;
    LaunchRequest request;
    std::vector<std::string> words;
  };
  const Case cases[] = {
      {With(kMpi, kTorch), {}, {"rank 3 of 4", "rank 5 of 8", "unset"}},
      {kMpi,
       {.world = 3},
       {"number of ranks was given as 3", "Open MPI", "says 4"}},
      {kTorch, {.rank = 1}, {"rank was given as 1", "torchrun", "says 5"}},
      {kMpi, {.local_rank = 0}, {"on this machine was given as 0", "says 1"}},
      {{{"RANK", "1"}}, {}, {"RANK is set", "WORLD_SIZE is not"}},
      {{{"WORLD_SIZE", "2"}}, {}, {"WORLD_SIZE is set", "RANK is not"}},
      {{{"SLURM_STEP_NUM_TASKS", "2"}}, {}, {"SLURM_PROCID is not"}},
      {With(kTorch, {{"RANK", "first"}}), {}, {"RANK", "\"first\"", "number"}},
      {With(kTorch, {{"RANK", "1 "}}), {}, {"RANK", "number"}},
      {With(kTorch, {{"RANK", "-1"}}), {}, {"RANK", "number"}},
      {With(kTorch, {{"WORLD_SIZE", ""}}), {}, {"WORLD_SIZE", "number"}},
      {With(kTorch, {{"RANK", "8"}}), {}, {"rank 8 of 8", "count from 0"}},
      {With(kTorch, {{"MASTER_PORT", "65536"}}), {}, {"MASTER_PORT", "65535"}},
      {{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_PORT", "1"}},
       {},
       {"MASTER_PORT is set", "MASTER_ADDR is not"}},
      {{}, {.rank = 1}, {"needs its rank and the number of ranks"}},
      {{}, {.world = 2}, {"needs its rank and the number of ranks"}},
      {{}, {.rank = 2, .world = 2}, {"rank 2 of 2"}},
      {{}, {.rank = -1, .world = 2}, {"rank -1 of 2"}},
  };
  for (const Case& each : cases) {
    const Result<Launch> found = Find(each.variables, each.request);
    for (const std::string& word : each.words) {
      EXPECT_THAT(found,
                  StatusIs(ErrorCode::kInvalidArgument, HasSubstr(word)));
    }
  }
}

TEST(LaunchTest, RanksExchangeInAPartOfTheBudget) {
  EXPECT_EQ(ExchangeBufferFor(GiB(1), 1), Bytes(0));
  EXPECT_EQ(ExchangeBufferFor(Bytes(0), 2), MiB(4));
  EXPECT_EQ(ExchangeBufferFor(GiB(1), 2), MiB(4));
  EXPECT_EQ(ExchangeBufferFor(MiB(64), 2), MiB(2));
  // Two segments of whole lines for every other rank, of 4 KiB at least.
  EXPECT_EQ(ExchangeBufferFor(MiB(64), 4), Bytes(2097024));
  EXPECT_EQ(ExchangeBufferFor(KiB(64), 3), KiB(4) * 4);
}

}  // namespace
}  // namespace castor
