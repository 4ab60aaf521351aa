// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "chunk/base/status.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/data_file.h"
#include "tests/support/file_text.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

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
                       HasSubstr("there are 2, from step 9 to 10")));
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
                StatusIs(ErrorCode::kUnavailable, HasSubstr("another run")));
  }
  EXPECT_EQ(Entries(), 2u);  // the first, and the lock
}

TEST_F(CheckpointFolderTest, ReplacesACheckpointOfTheSameStep) {
  ASSERT_THAT(Save(5, "old"), IsOk());
  ASSERT_THAT(Save(5, "new"), IsOk());
  EXPECT_EQ(FileText(run_ + "/step-00000005/" + kManifestName), "new");
  EXPECT_EQ(Entries(), 2u);
  ASSERT_THAT(Save(6, ""), IsOk());
  ASSERT_THAT(Save(2, ""), IsOk());
  // What was just saved stays, though it is of an earlier step.
  ASSERT_THAT(RemoveOldCheckpoints(run_, 2, run_ + "/step-00000002"), IsOk());
  EXPECT_THAT(FindCheckpoint(run_, 5), StatusIs(ErrorCode::kInvalidArgument));
  EXPECT_THAT(FindCheckpoint(run_, 2), IsOk());
  EXPECT_THAT(FindCheckpoint(run_, 6), IsOk());
}

TEST_F(CheckpointFolderTest, RefusesAFileInTheWay) {
  std::ofstream(run_) << "a file";
  EXPECT_THAT(CheckpointDraft::Create(run_, 1, "optimizer"),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("no folder")));
}

}  // namespace
}  // namespace castor
