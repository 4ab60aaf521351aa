// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// `castor ckpt` as a user runs it, on what the example trainer saved.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/layout/safetensors_format.h"
#include "chunk/text/json_value.h"
#include "tests/support/file_text.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/run_process.h"

namespace castor {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A plain safetensors file, read by the format's description alone.
struct PlainFile {
  SafetensorsHeader header;
  std::string data;

  explicit PlainFile(const std::string& path) {
    const std::string bytes = FileText(path);
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof(length));
    EXPECT_EQ(length % 8, 0u);
    header = ParseSafetensorsHeader(bytes.substr(8, length),
                                    bytes.size() - 8 - length)
                 .value();
    data = bytes.substr(8 + length);
  }
  std::string BytesOf(const std::string& name) const {
    for (const SafetensorsEntry& entry : header.entries) {
      if (entry.name == name) {
        return data.substr(entry.begin, entry.end - entry.begin);
      }
    }
    return "no such tensor";
  }
};

class CastorCkptTest : public testing::Test {
 protected:
  // Two checkpoints of a bf16 model, of steps 1 and 2.
  static void SetUpTestSuite() {
    dir_ = new TempDir();
    std::ofstream text(dir_->File("text"));
    for (int i = 0; i < 200; ++i) text << "line " << i * i << " of the text\n";
    text.close();
    const ProcessOutcome run = RunProcess({"tools/examples/train_gpt",
                                           "--text",
                                           dir_->File("text"),
                                           "--layers",
                                           "1",
                                           "--heads",
                                           "2",
                                           "--embd",
                                           "32",
                                           "--seq",
                                           "16",
                                           "--dtype",
                                           "bf16",
                                           "--ranks",
                                           "2",
                                           "--steps",
                                           "2",
                                           "--save",
                                           Run(),
                                           "--save-every",
                                           "1"});
    ASSERT_EQ(run.exit_code, 0) << run.err;
  }
  static void TearDownTestSuite() {
    delete dir_;
    dir_ = nullptr;
  }

  static std::string Run() { return dir_->File("run"); }
  static std::string Step(int step) {
    return Run() + "/step-0000000" + std::to_string(step);
  }
  static ProcessOutcome Ckpt(const std::vector<std::string>& args) {
    std::vector<std::string> command = {"tools/castor", "ckpt"};
    command.insert(command.end(), args.begin(), args.end());
    return RunProcess(command);
  }
  static JsonValue Json(std::vector<std::string> args) {
    args.push_back("--json");
    return ParseJson(Ckpt(args).out).value();
  }

  // Changes a bit of the byte at `offset`.
  static void FlipByte(const std::string& file, uint64_t offset) {
    std::string bytes = FileText(file);
    bytes[offset] ^= 4;
    std::ofstream(file, std::ios::binary) << bytes;
  }

  static TempDir* dir_;
};

TempDir* CastorCkptTest::dir_ = nullptr;

TEST_F(CastorCkptTest, ListsStepsSizesAndTensors) {
  const ProcessOutcome page = Ckpt({"ls", Run(), "--tensors"});
  EXPECT_EQ(page.exit_code, 0) << page.err;
  EXPECT_THAT(page.out, AllOf(HasSubstr("adamw"), HasSubstr("exp_avg_sq"),
                              HasSubstr("wte.weight.master")));
  EXPECT_THAT(page.err, IsEmpty());
  const JsonValue document = Json({"ls", Run()});
  EXPECT_EQ(document["schema"].text(), "castor.ckpt.ls/1");
  ASSERT_EQ(document["checkpoints"].size(), 2u);
  const JsonValue& last = document["checkpoints"][1];
  EXPECT_EQ(last["step"].integer(), 2);
  EXPECT_EQ(last["world"].integer(), 2);
  EXPECT_EQ(last["tensors"].size() % 4, 0u);  // weights, master, two moments
  int64_t bytes = 0;
  for (const JsonValue& file : last["files"]) {
    const std::string path = Step(2) + "/" + file["name"].text();
    EXPECT_EQ(static_cast<int64_t>(fs::file_size(path)),
              file["size_bytes"].integer());
    bytes += file["size_bytes"].integer();
  }
  EXPECT_EQ(last["size_bytes"].integer(), bytes);
}

TEST_F(CastorCkptTest, VerifiesEveryByteAndNamesTheTensor) {
  EXPECT_EQ(Ckpt({"verify", Run()}).exit_code, 0);
  const std::string copy = dir_->File("damaged");
  fs::create_directory(copy);
  fs::copy(Step(1), copy + "/step-00000001", fs::copy_options::recursive);
  fs::copy(Step(2), copy + "/step-00000002", fs::copy_options::recursive);
  const std::string file = copy + "/step-00000002/optimizer/master.safetensors";
  const uint64_t size = fs::file_size(file);
  const PlainFile plain(file);
  const SafetensorsEntry& victim = plain.header.entries[3];
  FlipByte(file, size - plain.data.size() + victim.begin + 1);
  const ProcessOutcome page = Ckpt({"verify", copy});
  EXPECT_EQ(page.exit_code, 3);
  EXPECT_THAT(page.out, AllOf(HasSubstr("step-00000001: sound"),
                              HasSubstr("\"" + victim.name + "\"")));
  const JsonValue document = Json({"verify", copy, "--step", "2"});
  EXPECT_FALSE(document["sound"].boolean());
  ASSERT_EQ(document["checkpoints"][0]["damage"].size(), 1u);
  EXPECT_EQ(document["checkpoints"][0]["damage"][0]["tensor"].text(),
            victim.name);
  // What is damaged is not converted.
  EXPECT_EQ(Ckpt({"convert", copy, "--dtype", "f32", "-o",
                  dir_->File("damaged-model")})
                .exit_code,
            4);
  EXPECT_FALSE(fs::exists(dir_->File("damaged-model")));
  fs::resize_file(file, size - 1);
  EXPECT_EQ(Ckpt({"verify", copy, "--step", "2"}).exit_code, 3);
  const ProcessOutcome cut = Ckpt({"convert", copy, "-o", dir_->File("cut")});
  EXPECT_EQ(cut.exit_code, 4);
  EXPECT_THAT(cut.err, HasSubstr("the newest older one is"));
  fs::remove(file);
  const ProcessOutcome missing = Ckpt({"verify", copy});
  EXPECT_EQ(missing.exit_code, 3);
  EXPECT_THAT(missing.out, AllOf(HasSubstr("step-00000001: sound"),
                                 HasSubstr("master.safetensors")));
  EXPECT_THAT(missing.err, HasSubstr("1 of 2 checkpoints are damaged"));
  fs::remove(copy + "/step-00000001/castor.json");
  EXPECT_EQ(Ckpt({"verify", copy, "--step", "1"}).exit_code, 2);
}

TEST_F(CastorCkptTest, ConvertsToAPlainModel) {
  // As it is: the same bytes as the checkpoint's own model file.
  const std::string same = dir_->File("same");
  ASSERT_EQ(Ckpt({"convert", Run(), "-o", same}).exit_code, 0);
  EXPECT_EQ(FileText(same + "/model.safetensors"),
            FileText(Step(2) + "/model.safetensors"));
  // In fp32: the masters, of which the weights are the rounded ones.
  const std::string wide = dir_->File("wide");
  const ProcessOutcome converted =
      Ckpt({"convert", Run(), "-o", wide, "--dtype", "f32"});
  ASSERT_EQ(converted.exit_code, 0) << converted.err;
  const PlainFile masters(Step(2) + "/optimizer/master.safetensors");
  const PlainFile weights(Step(2) + "/model.safetensors");
  const PlainFile model(wide + "/model.safetensors");
  ASSERT_EQ(model.header.entries.size(), weights.header.entries.size());
  for (const SafetensorsEntry& entry : model.header.entries) {
    EXPECT_EQ(model.BytesOf(entry.name),
              masters.BytesOf(entry.name + ".master"));
  }
  // In several files, as Hugging Face has them, which castor itself reads.
  const std::string shared = dir_->File("shared");
  ASSERT_EQ(Ckpt({"convert", Run(), "-o", shared, "--max-shard-size", "8KiB"})
                .exit_code,
            0);
  EXPECT_TRUE(fs::exists(shared + "/model.safetensors.index.json"));
  EXPECT_FALSE(fs::exists(shared + "/model.safetensors"));
  const ProcessOutcome search = RunProcess(
      {"tools/castor", "search", shared + "/model.safetensors.index.json"});
  EXPECT_EQ(search.exit_code, 0) << search.err;
  const ProcessOutcome again = Ckpt({"convert", Run(), "-o", shared});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("is there already"));
}

TEST_F(CastorCkptTest, SaysByHowMuchTwoDiffer) {
  const ProcessOutcome equal = Ckpt({"diff", Run(), Step(2)});
  EXPECT_EQ(equal.exit_code, 0) << equal.err;
  EXPECT_THAT(equal.out, HasSubstr("to the last bit"));
  const ProcessOutcome page = Ckpt({"diff", Step(1), Step(2)});
  EXPECT_EQ(page.exit_code, 3);
  EXPECT_THAT(page.out, AllOf(HasSubstr("max ULP"), HasSubstr("and")));
  const JsonValue document = Json({"diff", Step(1), Step(2)});
  EXPECT_FALSE(document["equal"].boolean());
  // Every first moment changed, and each parameter had one update more.
  int64_t moments = 0;
  int64_t updates = 0;
  for (const JsonValue& each : document["differences"]) {
    const bool values = each.contains("differing");
    updates += !values;
    if (!values || !each["tensor"].text().ends_with(".exp_avg")) continue;
    ++moments;
    EXPECT_GT(each["max_ulp"].integer(), 0);
    EXPECT_LE(each["differing"].integer(), each["elements"].integer());
  }
  EXPECT_EQ(moments, updates);
  EXPECT_EQ(4 * moments, document["compared_tensors"].integer());
}

// What the manifest says itself is covered as the data is.
TEST_F(CastorCkptTest, FindsAChangedManifest) {
  const std::string copy = dir_->File("changed-manifest");
  fs::create_directory(copy);
  fs::copy(Step(2), copy + "/step-00000002", fs::copy_options::recursive);
  const std::string file = copy + "/step-00000002/castor.json";
  const std::string good = FileText(file);
  const auto write = [&](std::string text, const std::string& from,
                         const std::string& to) {
    const size_t at = text.find(from);
    ASSERT_NE(at, text.npos) << from;
    std::ofstream(file) << text.replace(at, from.size(), to);
  };
  write(good, "\"adamw\"", "\"adqmw\"");
  const ProcessOutcome changed = Ckpt({"verify", copy});
  EXPECT_EQ(changed.exit_code, 3);
  EXPECT_THAT(changed.out, HasSubstr("not the text that was saved"));
  EXPECT_EQ(Ckpt({"ls", copy}).exit_code, 4);
  write(good, "", "");
  EXPECT_EQ(Ckpt({"verify", copy}).exit_code, 0);
  // Under another step's name.
  fs::rename(copy + "/step-00000002", copy + "/step-00000003");
  const ProcessOutcome renamed = Ckpt({"verify", copy + "/step-00000003/"});
  EXPECT_EQ(renamed.exit_code, 3);
  EXPECT_THAT(renamed.out, HasSubstr("is of step 2"));
  fs::rename(copy + "/step-00000003", copy + "/step-00000002");
  // An older version's is read, and proves nothing: any may be labelled so.
  std::string old = good.substr(0, good.rfind(",\n\"digest\"")) + "\n}\n";
  write(old, "checkpoint/2", "checkpoint/1");
  const ProcessOutcome older = Ckpt({"verify", copy});
  EXPECT_EQ(older.exit_code, 3) << older.err;
  EXPECT_THAT(older.out, AllOf(HasSubstr("unproved"), Not(HasSubstr("sound")),
                               HasSubstr("older version")));
  const JsonValue document = Json({"verify", copy});
  EXPECT_FALSE(document["sound"].boolean());
  EXPECT_TRUE(document["checkpoints"][0]["unproved"].boolean());
  EXPECT_FALSE(document["checkpoints"][0]["manifest_covered"].boolean());
  EXPECT_EQ(Ckpt({"diff", copy, Step(2)}).exit_code, 0);
}

// The manifest's digests say what was saved, not what is there.
TEST_F(CastorCkptTest, ComparesWhatIsThere) {
  const std::string copy = dir_->File("changed");
  fs::copy(Step(2), copy, fs::copy_options::recursive);
  ASSERT_EQ(Ckpt({"diff", copy, Step(2)}).exit_code, 0);
  const std::string file = copy + "/model.safetensors";
  const PlainFile plain(file);
  const SafetensorsEntry& victim = plain.header.entries[2];
  FlipByte(file, fs::file_size(file) - plain.data.size() + victim.begin);
  for (const std::vector<std::string>& sides :
       {std::vector<std::string>{copy, Step(2)},
        std::vector<std::string>{Step(2), copy},
        std::vector<std::string>{copy, copy},
        std::vector<std::string>{Step(1), copy}}) {
    const ProcessOutcome page = Ckpt({"diff", sides[0], sides[1]});
    EXPECT_EQ(page.exit_code, 4);
    EXPECT_THAT(page.out, IsEmpty());
    EXPECT_THAT(page.err, AllOf(HasSubstr(copy), HasSubstr("model.safetensors"),
                                HasSubstr("\"" + victim.name + "\"")));
  }
}

TEST_F(CastorCkptTest, RefusesWhatHasNoMeaning) {
  const std::vector<std::vector<std::string>> wrong = {
      {"lst", Run()},
      {"ls"},
      {"ls", dir_->File("none")},
      {"ls", Run(), "--step", "9"},
      {"convert", Run()},
      {"convert", Run(), "-o", dir_->File("x"), "--dtype", "f8"},
      {"verify", Run(), "--dtype", "f32"},
      {"diff", Run()},
      {"convert", Run(), "-o", dir_->File("x"), "--max-shard-size", "0"}};
  for (const std::vector<std::string>& args : wrong) {
    const ProcessOutcome outcome = Ckpt(args);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_THAT(outcome.out, IsEmpty());
  }
}

}  // namespace
}  // namespace castor
