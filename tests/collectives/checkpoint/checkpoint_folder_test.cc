// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/files/data_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
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
    ASSERT_OK_AND_ASSIGN(CheckpointDraft draft,
                         CheckpointDraft::Create(run_, 3, "optimizer"));
    EXPECT_FALSE(fs::exists(stale));
    // Meanwhile nobody else saves here.
    EXPECT_THAT(CheckpointDraft::Create(run_, 4, "optimizer"),
                StatusIs(ErrorCode::kUnavailable, Says("another run")));
  }
  EXPECT_EQ(Entries(), 2u);  // the first, and the lock
}

// A draft's name alone makes no draft.
TEST_F(CheckpointFolderTest, LeavesWhatOthersPutUnderADraftsName) {
  const std::string foreign = DraftPath(run_, 2);
  const std::string link = DraftPath(run_, 7);
  fs::create_directories(foreign);
  std::ofstream(foreign + "/thesis.txt") << "years of work";
  fs::create_directory_symlink(foreign, link);
  ASSERT_THAT(Save(1, "one"), IsOk());
  EXPECT_EQ(FileText(foreign + "/thesis.txt"), "years of work");
  for (const int64_t step : {2, 7}) {
    EXPECT_THAT(Save(step, "two"),
                StatusIs(ErrorCode::kInvalidArgument, Says("move it away")));
  }
  EXPECT_EQ(FileText(foreign + "/thesis.txt"), "years of work");
  // A save that was killed at once left an empty one, or its mark.
  fs::remove_all(foreign);
  fs::remove(link);
  fs::create_directory(foreign);
  ASSERT_THAT(Save(2, "two"), IsOk());
  EXPECT_EQ(Entries(), 3u);  // both, and the lock
  for (const auto& entry : fs::directory_iterator(run_ + "/step-00000002")) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("."));
  }
}

TEST_F(CheckpointFolderTest, ReplacesACheckpointOfTheSameStep) {
  ASSERT_THAT(Save(5, "old"), IsOk());
  ASSERT_THAT(Save(5, "new"), IsOk());
  EXPECT_EQ(FileText(run_ + "/step-00000005/" + kManifestName), "new");
  EXPECT_EQ(Entries(), 2u);
}

// What is not a checkpoint is somebody else's, whatever its name.
TEST_F(CheckpointFolderTest, LeavesWhatIsNoCheckpointInItsPlace) {
  const std::string foreign = run_ + "/step-00000005";
  const std::string other = run_ + "/.saving-for-later";
  fs::create_directories(foreign);
  fs::create_directories(other);
  std::ofstream(foreign + "/thesis.txt") << "years of work";
  EXPECT_THAT(Save(5, "new"),
              StatusIs(ErrorCode::kInvalidArgument,
                       Says("step-00000005\" is no checkpoint")));
  EXPECT_EQ(FileText(foreign + "/thesis.txt"), "years of work");
  ASSERT_THAT(Save(6, "new"), IsOk());
  ASSERT_THAT(RemoveOldCheckpoints(run_, 1, 6), IsOk());
  EXPECT_EQ(FileText(foreign + "/thesis.txt"), "years of work");
  EXPECT_TRUE(fs::exists(other));
  EXPECT_EQ(Entries(), 4u);  // both, the checkpoint, and the lock
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
  EXPECT_THAT(HoldToSave(run_), StatusIs(ErrorCode::kInvalidArgument));
}

TEST_F(CheckpointFolderTest, LeavesNothingWhereItMaySave) {
  EXPECT_THAT(HoldToSave(run_ + "/no/parent"),
              StatusIs(ErrorCode::kIoError, Says("No such file")));
  EXPECT_FALSE(fs::exists(run_));
  EXPECT_THAT(HoldToSave("/proc/self"),  // nobody may write there
              StatusIs(ErrorCode::kIoError, Says(".castor-run")));
  ASSERT_THAT(HoldToSave(run_), IsOk());
  EXPECT_EQ(Entries(), 2u);  // the locks
  ASSERT_THAT(Save(0, "none"), IsOk());
  ASSERT_THAT(HoldToSave(run_), IsOk());
  EXPECT_EQ(FileText(run_ + "/step-00000000/" + kManifestName), "none");
  ASSERT_OK_AND_ASSIGN(const CheckpointDraft draft,
                       CheckpointDraft::Create(run_, 3, "optimizer"));
  EXPECT_THAT(HoldToSave(run_), StatusIs(ErrorCode::kUnavailable));
  EXPECT_TRUE(fs::exists(draft.path()));
}

// Another process: a fork's child has no hold of its parent's.
class OtherProcess {
 public:
  // Which answers whether it could take a hold, and keeps it until End().
  explicit OtherProcess(const std::string& directory) {
    EXPECT_EQ(pipe(answers_), 0);
    EXPECT_EQ(pipe(ends_), 0);
    child_ = fork();
    if (child_ == 0) {
      close(ends_[1]);
      const int file = open((directory + "/.castor-run").c_str(), O_RDWR);
      struct flock whole = {};
      whole.l_type = F_WRLCK;
      char taken = fcntl(file, F_SETLK, &whole) == 0 ? 1 : 0;
      const bool told = write(answers_[1], &taken, 1) == 1;
      _exit(read(ends_[0], &taken, 1) == 0 && told ? 0 : 1);
    }
    char taken = 2;
    EXPECT_EQ(read(answers_[0], &taken, 1), 1);
    taken_ = taken == 1;
  }
  ~OtherProcess() {
    close(ends_[1]);
    int status = -1;
    EXPECT_EQ(waitpid(child_, &status, 0), child_);
    EXPECT_EQ(status, 0);
    for (const int end : {answers_[0], answers_[1], ends_[0]}) close(end);
  }
  bool taken() const { return taken_; }

 private:
  int answers_[2];
  int ends_[2];
  pid_t child_ = -1;
  bool taken_ = false;
};

TEST_F(CheckpointFolderTest, IsOneRuns) {
  {
    ASSERT_OK_AND_ASSIGN(const auto hold, HoldToSave(run_));
    { ASSERT_OK_AND_ASSIGN(const auto again, FolderHold::Take(run_)); }
    EXPECT_FALSE(OtherProcess(run_).taken());
  }
  {
    const OtherProcess other(run_);
    EXPECT_TRUE(other.taken());
    EXPECT_THAT(HoldToSave(run_), StatusIs(ErrorCode::kUnavailable,
                                           Says("another run saves to")));
  }
  EXPECT_THAT(HoldToSave(run_), IsOk());
}

TEST_F(CheckpointFolderTest, NamesWhatIsInTheWayOfALaterSave) {
  ASSERT_THAT(HoldToSave(run_), IsOk());
  const std::string foreign = DraftPath(run_, 700);
  fs::create_directory(foreign);
  std::ofstream(foreign + "/notes.txt") << "somebody's own";
  EXPECT_THAT(HoldToSave(run_),
              StatusIs(ErrorCode::kInvalidArgument, Says("step-00000700")));
  EXPECT_TRUE(fs::exists(foreign + "/notes.txt"));
  fs::remove_all(foreign);
  EXPECT_THAT(HoldToSave(run_), IsOk());
}

CheckpointManifest Made() {
  CheckpointManifest manifest;
  manifest.step = 20;
  manifest.world = 4;
  manifest.stage = 3;
  manifest.optimizer = "adamw";
  manifest.engine = {{"loss_scale", 0.1}, {"skipped", 3}, {"note", "a\"b"}};
  manifest.files = {{"model.safetensors", 4096, 0x0123456789abcdef},
                    {"optimizer/exp_avg.safetensors", 1604, 1}};
  manifest.params = {
      {"w \"\n",
       DType::kBF16,
       {4, 100},
       true,
       20,
       {{"param", DType::kBF16, 0, 5}, {"exp_avg", DType::kF32, 1, 6}}},
      {"s", DType::kF32, {}, false, 0, {{"param", DType::kF32, 0, 7}}}};
  return manifest;
}

TEST(CheckpointManifestTest, ReadsBackWhatItWrites) {
  const std::string text = WriteManifest(Made());
  ASSERT_OK_AND_ASSIGN(const CheckpointManifest again, ParseManifest(text));
  EXPECT_EQ(WriteManifest(again), text);
  EXPECT_EQ(again.step, 20);
  EXPECT_EQ(again.bytes(), 5700u);
  EXPECT_EQ(again.engine.at("loss_scale").real(), 0.1);
  EXPECT_EQ(again.params[0].name, "w \"\n");
  EXPECT_EQ(again.params[0].Find("exp_avg")->digest, 6u);
  EXPECT_EQ(again.params[0].Find("master"), nullptr);
}

// Whichever byte it is, spaces among them.
TEST(CheckpointManifestTest, RefusesEveryByteThatChanged) {
  const std::string good = WriteManifest(Made());
  ASSERT_THAT(ParseManifest(good), IsOk());
  const std::string_view kSpaces = " \n\r\t";
  for (size_t at = 0; at < good.size(); ++at) {
    std::string others;
    // A neighbour, the other case, what is no UTF-8.
    for (const int bits : {0x01, 0x20, 0x80}) {
      others += static_cast<char>(good[at] ^ bits);
    }
    if (kSpaces.find(good[at]) != kSpaces.npos) others += kSpaces;
    for (const char other : others) {
      if (other == good[at]) continue;
      std::string text = good;
      text[at] = other;
      EXPECT_EQ(ParseManifest(text).status().code(), ErrorCode::kMalformed)
          << "byte " << at << " as " << static_cast<int>(other);
    }
  }
}

TEST(CheckpointManifestTest, SaysThatTheTextIsNotWhatWasSaved) {
  const std::string good = WriteManifest(Made());
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>{"\"step\": 20", "\"step\": 21"},
        {"\"world\": 4", "\"world\": 8"},
        {"\"stage\": 3", "\"stage\": 1"},
        {"\"adamw\"", "\"adqmw\""},
        {"\"loss_scale\":0.1", "\"loss_scale\":0.2"},
        {"true", "false"},
        {"\"steps\": 20", "\"steps\": 2"},
        {"\"step\": 20", "\"step\":  20"},
        {",\n\"digest\": \"", ", \"digest\": \""},
        {"\"\n}\n", "\"}\n"}}) {
    std::string text = good;
    ASSERT_NE(text.rfind(from), text.npos) << from;
    text.replace(text.rfind(from), from.size(), to);
    EXPECT_THAT(
        ParseManifest(text),
        StatusIs(ErrorCode::kMalformed, Says("not the text that was saved")))
        << from << " as " << to;
  }
}

// As they were written before manifests had a digest of themselves.
TEST(CheckpointManifestTest, ReadsOlderOnes) {
  std::string old = WriteManifest(Made());
  old.replace(old.find("checkpoint/2"), 12, "checkpoint/1");
  EXPECT_THAT(ParseManifest(old),
              StatusIs(ErrorCode::kMalformed, Says("has no \"digest\"")));
  old.resize(old.rfind(",\n\"digest\""));
  old += "\n}\n";
  ASSERT_OK_AND_ASSIGN(const CheckpointManifest read, ParseManifest(old));
  EXPECT_FALSE(read.has_digest);
  EXPECT_EQ(WriteManifest(read), WriteManifest(Made()));
  old.replace(old.find("checkpoint/1"), 12, "checkpoint/2");
  EXPECT_THAT(ParseManifest(old),
              StatusIs(ErrorCode::kMalformed, Says("has no \"digest\"")));
}

TEST(CheckpointManifestTest, StatesHaveWhateverNamesAnOptimizerGives) {
  CheckpointManifest made = Made();
  const auto with = [&](std::vector<std::string> names) {
    CheckpointManifest manifest = made;
    std::vector<SavedState>& states = manifest.params[0].states;
    states.resize(1);
    for (const std::string& name : names) {
      states.push_back({name, DType::kBF16, 0, 0});
    }
    manifest.files[0].bytes = 1 << 20;
    return ParseManifest(WriteManifest(manifest));
  };
  const Result<CheckpointManifest> read =
      with({"master", "momentum_buffer", std::string(64, 'x')});
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->params[0].states[2].state, "momentum_buffer");
  EXPECT_THAT(StatesIn(*read), testing::Contains("momentum_buffer"));
  for (const char* name : {"grad", "all", "", "a b", "a/b", "..", "\xc3\xa4"}) {
    EXPECT_THAT(with({name}),
                StatusIs(ErrorCode::kMalformed, Says("no state that is saved")))
        << name;
  }
  EXPECT_THAT(with({std::string(65, 'x')}), StatusIs(ErrorCode::kMalformed));
  EXPECT_THAT(with({"a", "b", "c", "d", "e", "f", "g", "h", "i"}),
              StatusIs(ErrorCode::kMalformed,
                       Says("more than the 8 that an optimizer may keep")));
}

TEST(CheckpointManifestTest, RefusesWhatIsNone) {
  const std::string good = WriteManifest(Made());
  const std::pair<std::string, std::pair<std::string, std::string>> cases[] = {
      {"castor.checkpoint/2", {"castor.checkpoint/9", "newer one than this"}},
      {"castor.checkpoint/2", {"castor.layout/1", "its schema is"}},
      {"\"stage\": 3", {"\"stage\": 4", "stage"}},
      {"\"step\": 20", {"\"stop\": 20", "did you mean"}},
      {"\"world\": 4,\n", {"", "has no \"world\""}},
      {"\"world\": 4", {"\"world\": 4, \"world\": 4", "world"}},
      {"optimizer/exp_avg", {"../exp_avg", "leads out of the folder"}},
      {"optimizer/exp_avg", {"/optimizer", "absolute path"}},
      {"optimizer/exp_avg.safe", {"model.safe", "listed twice"}},
      {"0123456789abcdef", {"0123456789abcdeg", "no digest"}},
      {"0123456789abcdef", {"0123456789abcdeF", "all lower case"}},
      {"\"exp_avg\"", {"\"../exp\"", "no state that is saved"}},
      {"\"exp_avg\"", {"\"param\"", "two states called param"}},
      {"\"state\": \"param\", \"dtype\": \"BF16\"",
       {"\"state\": \"master\", \"dtype\": \"BF16\"", "has no weights"}},
      {"\"file\": 1", {"\"file\": 2", "file 2 of 2"}},
      {"[4, 100]", {"[4, -1]", "shape"}},
      {"[4, 100]", {"[4, 102]", "more bytes than its file"}},
      {"\"bytes\": 4096", {"\"bytes\": 4611686018427387904", "counted"}},
      {"\"steps\": 20", {"\"steps\": true", "steps"}},
      {"{\"loss_scale\"", {"{\"a\": [], \"loss_scale\"", "engine"}},
      {"\"s\"", {"\"w \\\"\\n\"", "listed twice"}},
  };
  for (const auto& [from, to] : cases) {
    std::string text = good;
    ASSERT_NE(text.find(from), text.npos) << from;
    text.replace(text.find(from), from.size(), to.first);
    EXPECT_THAT(ParseManifest(text),
                StatusIs(ErrorCode::kMalformed, Says(to.second)))
        << from << " as " << to.first;
  }
  for (size_t cut = 0; cut + 2 < good.size(); cut += 7) {
    EXPECT_THAT(ParseManifest(good.substr(0, cut)),
                StatusIs(ErrorCode::kMalformed));
  }
}

}  // namespace
}  // namespace castor
