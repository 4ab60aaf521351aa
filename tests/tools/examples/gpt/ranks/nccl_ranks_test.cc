// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The example trainer on NCCL ranks, over fakes of NCCL and CUDA: threads here
// are the processes.

#include "tools/examples/gpt/ranks/nccl_ranks.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/in_process_communicator.h"
#include "collectives/nccl/control/control_link.h"
#include "collectives/nccl/nccl_communicator.h"
#include "collectives/world/launch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/lanes/executor.h"
#include "tests/support/fakes/fake_cuda.h"
#include "tests/support/fakes/fake_nccl.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tools/examples/gpt/text_data.h"
#include "tools/examples/gpt/trainer.h"

namespace castor::gpt {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TextData Verse() {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "A glooming peace this morning brings. ";
  return TextData(std::vector<uint8_t>(text.begin(), text.end()));
}

TrainOptions Small(int ranks, DType dtype) {
  TrainOptions options;
  options.model = {
      .vocab = 256, .context = 8, .layers = 1, .heads = 2, .embd = 64};
  options.dtype = dtype;
  options.ranks = ranks;
  options.steps = 2;
  options.accumulate = 2;
  options.engine.chunk_size = KiB(128);
  options.engine.device_budget = MiB(3);
  options.engine.host_budget = MiB(8);
  return options;
}

// What connects the ranks already, as MPI does processes.
class GroupBeside final : public RankGroup {
 public:
  explicit GroupBeside(std::unique_ptr<Communicator> comm)
      : comm_(std::move(comm)) {}
  int local_rank() const override { return 0; }
  int local_world() const override { return comm_->world(); }
  Communicator& trainer() const override { return *comm_; }
  Status Close() override { return OkStatus(); }

 private:
  Result<std::unique_ptr<Communicator>> Make(Bytes) override {
    return Status(Internal("the engine's is NCCL's"));
  }

  std::unique_ptr<Communicator> comm_;
};

class NcclRanksTest : public testing::Test {
 protected:
  // Trains on `options.ranks` ranks, each on a thread, whose launch and the
  // like `change` may set. What each ended with.
  std::vector<Result<TrainOutcome>> TrainAll(
      const TrainOptions& options,
      const std::function<void(NcclRanksOptions&)>& change,
      bool beside = false) {
    const TextData data = Verse();
    auto in_process =
        MakeInProcessWorld({.world = options.ranks, .executor = &pool_});
    std::vector<Result<TrainOutcome>> outcomes(
        static_cast<size_t>(options.ranks), Status(Internal("not ended")));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < options.ranks; ++rank) {
      threads.emplace_back([&, rank] {
        NcclRanksOptions own;
        own.launch.by = Launcher::kExplicit;
        own.launch.rank = rank;
        own.launch.world = options.ranks;
        own.timeout_ns = 20'000'000'000;
        change(own);
        std::unique_ptr<RankGroup> other;
        if (beside) {
          other = std::make_unique<GroupBeside>(
              std::move(in_process[static_cast<size_t>(rank)]));
        }
        outcomes[static_cast<size_t>(rank)] =
            TrainOne(options, data, own, std::move(other));
      });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }

  Result<TrainOutcome> TrainOne(const TrainOptions& options,
                                const TextData& data,
                                const NcclRanksOptions& own,
                                std::unique_ptr<RankGroup> beside) {
    CASTOR_ASSIGN_OR_RETURN(
        const std::unique_ptr<RankGroup> group,
        JoinNcclRanks(own, {&cuda_, &nccl_}, std::move(beside)));
    EXPECT_EQ(group->local_world(), options.ranks);
    EXPECT_FALSE(group->device()->facts().host_addressable);
    Result<TrainOutcome> outcome = Train(options, data, {}, group.get());
    if (!outcome.ok()) group->Abort(outcome.status());
    const Status closed = group->Close();
    if (outcome.ok()) {
      EXPECT_THAT(closed, IsOk());
    }
    return outcome;
  }

  // All ranks end in the weights of as many threads, and know all numbers.
  void ExpectTheWeightsOfThreads(
      const TrainOptions& options,
      const std::function<void(NcclRanksOptions&)>& change,
      bool beside = false) {
    const Result<TrainOutcome> expected = Train(options, Verse(), {});
    ASSERT_THAT(expected, IsOk());
    for (const auto& outcome : TrainAll(options, change, beside)) {
      ASSERT_THAT(outcome, IsOk());
      EXPECT_EQ(outcome->final_digest, expected->final_digest);
      EXPECT_EQ(outcome->ranks.size(), expected->ranks.size());
      EXPECT_EQ(outcome->steps.back().loss, expected->steps.back().loss);
    }
  }

  FakeCuda cuda_;
  FakeNccl nccl_{&cuda_};
  ThreadPool pool_{2};
};

TEST_F(NcclRanksTest, TrainToTheBitsOfThreadsAndMeetByAFile) {
  const TempDir dir;
  ExpectTheWeightsOfThreads(Small(3, DType::kBF16), [&](NcclRanksOptions& own) {
    own.id_file = dir.File("ids");
  });
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

// As torchrun and Slurm tell it.
TEST_F(NcclRanksTest, MeetAtTheHostAndThePortOfTheEnvironment) {
  const int port = internal::ControlListener::Open("127.0.0.1")->address().port;
  ExpectTheWeightsOfThreads(Small(2, DType::kF32), [&](NcclRanksOptions& own) {
    own.launch.by = Launcher::kTorchrun;
    own.launch.meeting_host = "127.0.0.1";
    own.launch.meeting_port = port;
  });
}

// As under mpirun; two ranks have the same bits where NCCL adds, too.
TEST_F(NcclRanksTest, MeetByWhatConnectsThemAlready) {
  ExpectTheWeightsOfThreads(
      Small(2, DType::kBF16),
      [](NcclRanksOptions& own) {
        own.launch.by = Launcher::kOpenMpi;
        own.reduce = NcclOptions::Reduce::kNative;
      },
      /*beside=*/true);
  EXPECT_GT(nccl_.calls("ReduceScatter"), 0);
}

TEST_F(NcclRanksTest, OneRankNeedsNobody) {
  ExpectTheWeightsOfThreads(Small(1, DType::kF32), [](NcclRanksOptions&) {});
}

TEST_F(NcclRanksTest, RanksThatCannotFindEachOtherAreToldHow) {
  for (const auto& outcome :
       TrainAll(Small(2, DType::kF32), [](NcclRanksOptions&) {})) {
    EXPECT_THAT(outcome, StatusIs(ErrorCode::kInvalidArgument,
                                  AllOf(HasSubstr("--id-file"),
                                        HasSubstr("MASTER_ADDR"))));
  }
}

TEST_F(NcclRanksTest, AMachineToSlowDownIsNone) {
  TrainOptions options = Small(1, DType::kF32);
  options.machine.emplace();
  for (const auto& outcome : TrainAll(options, [](NcclRanksOptions&) {})) {
    EXPECT_THAT(outcome,
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr("--machine")));
  }
}

}  // namespace
}  // namespace castor::gpt
