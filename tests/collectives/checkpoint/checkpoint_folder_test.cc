// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/data_file.h"
#include "tests/support/file_text.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

class CheckpointFolderTest : public testing::Test {
 protected:
  // A checkpoint whose manifest is `text`.
  Status Save(int64_t step, const std::string& text) {
    CASTOR_ASSIGN_OR_RETURN(CheckpointDraft draft,
                            CheckpointDraft::Create(run_, step, "optimizer"));
    CASTOR_RETURN_IF_ERROR(
        WriteNewFile(draft.path() + "/" + kManifestName, text));
    return draft.Commit().status();
  }
  size_t Entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(run_), {}));
  }

  TempDir dir_;
  const std::string run_ = dir_.File("run");
};

TEST_F(CheckpointFolderTest, FindsTheLatestThatIsWhole) {
  EXPECT_THAT(ListCheckpoints(run_), StatusIs(ErrorCode::kInvalidArgument));
  ASSERT_THAT(Save(9, "nine"), IsOk());
  ASSERT_THAT(Save(10, "ten"), IsOk());
  fs::create_directory(run_ + "/step-00000011");  // of no manifest
  fs::create_directory(run_ + "/step-12");        // no name of ours
  std::ofstream(run_ + "/step-12/" + kManifestName) << "x";
  EXPECT_THAT(FindCheckpoint(run_, std::nullopt),
              IsOkAndHolds(run_ + "/step-00000010"));
  EXPECT_THAT(FindCheckpoint(run_, 9), IsOkAndHolds(run_ + "/step-00000009"));
  EXPECT_THAT(FindCheckpoint(run_ + "/step-00000009", std::nullopt),
              IsOkAndHolds(run_ + "/step-00000009"));
  EXPECT_THAT(FindCheckpoint(run_, 11),
              StatusIs(ErrorCode::kInvalidArgument,
                       Says("there are 2, from step 9 to 10")));
  EXPECT_EQ(StepOfCheckpointName("step-123456789"), 123456789);
  EXPECT_EQ(StepOfCheckpointName("step--0000001"), std::nullopt);
}

TEST_F(CheckpointFolderTest, RemovesWhatKilledSavesLeft) {
  ASSERT_THAT(Save(1, "one"), IsOk());
  const std::string stale = DraftPath(run_, 2);
  fs::create_directories(stale + "/optimizer");
  std::ofstream(stale + "/" + kManifestName) << "half";
  // A draft is no checkpoint, and goes when the next one is made.
  EXPECT_EQ(ListCheckpoints(run_)->size(), 1u);
  {
    Result<CheckpointDraft> draft =
        CheckpointDraft::Create(run_, 3, "optimizer");
    ASSERT_THAT(draft, IsOk());
    EXPECT_FALSE(fs::exists(stale));
    // Meanwhile nobody else saves here.
    EXPECT_THAT(CheckpointDraft::Create(run_, 4, "optimizer"),
                StatusIs(ErrorCode::kUnavailable, Says("another run")));
  }
  EXPECT_EQ(Entries(), 2u);  // the first, and the lock
}

TEST_F(CheckpointFolderTest, ReplacesACheckpointOfTheSameStep) {
  ASSERT_THAT(Save(5, "old"), IsOk());
  ASSERT_THAT(Save(5, "new"), IsOk());
  EXPECT_EQ(FileText(run_ + "/step-00000005/" + kManifestName), "new");
  EXPECT_EQ(Entries(), 2u);
}

// Those of later steps than what was just saved are another training's.
TEST_F(CheckpointFolderTest, RemovesOlderOnesOnly) {
  for (const int64_t step : {2, 3, 4, 6, 8}) {
    ASSERT_THAT(Save(step, ""), IsOk());
  }
  const auto steps = [&] {
    std::vector<int64_t> found;
    const Result<std::vector<FoundCheckpoint>> all = ListCheckpoints(run_);
    for (const FoundCheckpoint& each : *all) found.push_back(each.step);
    return found;
  };
  ASSERT_THAT(RemoveOldCheckpoints(run_, 2, 4), IsOk());
  EXPECT_THAT(steps(), ElementsAre(3, 4, 6, 8));
  ASSERT_THAT(RemoveOldCheckpoints(run_, 1, 3), IsOk());
  EXPECT_THAT(steps(), ElementsAre(3, 4, 6, 8));
  ASSERT_THAT(RemoveOldCheckpoints(run_, 1, 8), IsOk());
  EXPECT_THAT(steps(), ElementsAre(8));
}

TEST_F(CheckpointFolderTest, RefusesAFileInTheWay) {
  std::ofstream(run_) << "a file";
  EXPECT_THAT(CheckpointDraft::Create(run_, 1, "optimizer"),
              StatusIs(ErrorCode::kInvalidArgument, Says("no folder")));
  EXPECT_THAT(CheckMaySave(run_), StatusIs(ErrorCode::kInvalidArgument));
}

TEST_F(CheckpointFolderTest, LeavesNothingWhereItMaySave) {
  EXPECT_THAT(CheckMaySave(run_ + "/no/parent"),
              StatusIs(ErrorCode::kIoError, Says("No such file")));
  EXPECT_FALSE(fs::exists(run_));
  EXPECT_THAT(CheckMaySave("/proc/self"),  // nobody may write there
              StatusIs(ErrorCode::kIoError, Says(".castor-lock")));
  ASSERT_THAT(CheckMaySave(run_), IsOk());
  EXPECT_EQ(Entries(), 1u);  // the lock
  ASSERT_THAT(Save(0, "none"), IsOk());
  ASSERT_THAT(CheckMaySave(run_), IsOk());
  EXPECT_EQ(FileText(run_ + "/step-00000000/" + kManifestName), "none");
  const Result<CheckpointDraft> draft =
      CheckpointDraft::Create(run_, 3, "optimizer");
  ASSERT_THAT(draft, IsOk());
  EXPECT_THAT(CheckMaySave(run_), StatusIs(ErrorCode::kUnavailable));
  EXPECT_TRUE(fs::exists(draft->path()));
}

}  // namespace
}  // namespace castor
