// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/families/transformers_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "tests/support/status_matchers.h"
#include "tests/tools/models/fake_python.h"
#include "tests/tools/models/model_files.h"
#include "tools/cli/bounded_program.h"
#include "tools/models/families/config_values.h"
#include "tools/models/families/family_model.h"
#include "tools/models/model_source.h"

namespace castor {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kConfig[] =
    R"({"model_type":"gema","architectures":["Gema"],"dtype":"bfloat16"})";

// Two parameters, the second of which has another name.
constexpr char kList[] =
    R"(printf 'list\t5.0.1\tGemaLM\tmodel.\n'
printf 'tied\thead\tmodel.b\n\n'
printf 'model.b\t4,2\tF32\nmodel.a\t3\tF32\n')";

class TransformersModelTest : public testing::Test {
 protected:
  Result<FamilyModel> AskPath(const std::string& python,
                              const ProgramLimits& limits) {
    return AskTransformers(kConfig, ConfigValues::Parse(kConfig).value(),
                           python, limits);
  }
  Result<FamilyModel> Ask(const std::string& lines,
                          const ProgramLimits& limits = kTransformersLimits) {
    return AskPath(FakePython(folder_, lines), limits);
  }

  TempFolder folder_;
};

TEST_F(TransformersModelTest, TakesTheLibrarysListInTheTypeOfTheConfig) {
  ASSERT_OK_AND_ASSIGN(const FamilyModel model, Ask(kList));
  EXPECT_EQ(model.family, "gema");
  EXPECT_EQ(model.library, "transformers 5.0.1");
  EXPECT_EQ(model.base_prefix, "model.");
  ASSERT_EQ(model.params.size(), 2u);
  EXPECT_EQ(model.params[0].name, "model.b");
  EXPECT_THAT(model.params[0].shape, ElementsAre(4, 2));
  EXPECT_EQ(model.params[1].name, "model.a");
  EXPECT_EQ(model.params[1].dtype, DType::kBF16);
  ASSERT_EQ(model.tied.size(), 1u);
  EXPECT_EQ(model.tied[0].name, "head");
  EXPECT_EQ(model.tied[0].to, "model.b");
  EXPECT_THAT(
      model.notes,
      ElementsAre("the parameters are those that transformers 5.0.1 registers "
                  "for gema, as GemaLM",
                  "the config names the architecture \"Gema\", which "
                  "transformers 5.0.1 does not have for gema"));
}

TEST_F(TransformersModelTest, SaysWhatTheLibraryTiesAgainstTheConfig) {
  constexpr char kUntied[] =
      R"({"model_type":"gema","tie_word_embeddings":false})";
  ASSERT_OK_AND_ASSIGN(
      const FamilyModel model,
      AskTransformers(kUntied, ConfigValues::Parse(kUntied).value(),
                      FakePython(folder_, kList)));
  ASSERT_EQ(model.notes.size(), 2u);
  EXPECT_EQ(model.notes[1],
            "the config says tie_word_embeddings false, and transformers 5.0.1 "
            "has head tied to model.b all the same");
}

TEST_F(TransformersModelTest, KeepsDocstringsForTheLibrary) {
  setenv("PYTHONOPTIMIZE", "2", 1);
  const std::string seen = folder_.At("seen");
  ASSERT_THAT(
      Ask("printf '%s' \"${PYTHONOPTIMIZE-unset}\" >'" + seen + "'\n" + kList),
      IsOk());
  unsetenv("PYTHONOPTIMIZE");
  std::string text;
  std::getline(std::ifstream(seen), text);
  EXPECT_EQ(text, "unset");
}

TEST_F(TransformersModelTest, GivesThePythonTheScriptAndTheConfigAndNoShell) {
  const std::string seen = folder_.At("seen");
  ASSERT_THAT(
      Ask("printf '%s' \"$1\" >'" + seen + "'; cat >>'" + seen + "'\n" + kList),
      IsOk());
  std::string text;
  std::getline(std::ifstream(seen), text, '\0');
  EXPECT_EQ(text, std::string("-c") + kConfig);
}

TEST_F(TransformersModelTest, SaysThatNobodyCouldBeAsked) {
  EXPECT_THAT(AskPath(folder_.At("none"), kTransformersLimits),
              StatusIs(ErrorCode::kUnavailable,
                       Says("cannot be started: No such file")));
  EXPECT_THAT(AskPath("no-such-python", kTransformersLimits),
              StatusIs(ErrorCode::kUnavailable, Says("cannot be started")));
  EXPECT_THAT(Ask("printf 'missing\\ttorch\\n'"),
              StatusIs(ErrorCode::kUnavailable, Says("has no \"torch\"")));
  EXPECT_THAT(
      Ask("echo Traceback >&2; echo 'ImportError: libx' >&2; echo >&2; exit 7"),
      StatusIs(ErrorCode::kUnavailable,
               Says("ended with code 7: \"ImportError: libx\"")));
  EXPECT_THAT(Ask("kill -9 $$"),
              StatusIs(ErrorCode::kUnavailable, Says("ended with a signal")));
}

TEST_F(TransformersModelTest, EndsAPythonThatDoesNotAnswerAndWhatItStarted) {
  const std::string pid_file = folder_.At("pid");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(Ask("sleep 60 & echo $! >'" + pid_file + "'; wait",
                  {.time = milliseconds(500), .output_bytes = 100}),
              StatusIs(ErrorCode::kUnavailable,
                       Says("did not answer within 0.5 s, and was stopped")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  int sleeper = 0;
  ASSERT_TRUE(std::ifstream(pid_file) >> sleeper);
  // Whoever adopted it buries it soon, and some do not: then it is a zombie.
  for (int i = 0; i < 500 && kill(sleeper, 0) == 0; ++i) {
    std::string line;
    std::getline(std::ifstream("/proc/" + std::to_string(sleeper) + "/stat"),
                 line);
    if (line.find(") Z ") != line.npos) return;
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_NE(kill(sleeper, 0), 0);
}

TEST_F(TransformersModelTest, EndsAPythonThatPrintsForEver) {
  EXPECT_THAT(
      Ask("while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done",
          {.time = std::chrono::seconds(60), .output_bytes = 1000}),
      StatusIs(ErrorCode::kUnavailable,
               Says("answered with more than 1000 bytes, and was stopped")));
}

TEST_F(TransformersModelTest, RefusesAnswersThatAreNone) {
  const struct {
    std::string lines;
    std::string says;
  } kGarbage[] = {
      {"", "its first line is no such"},
      {"echo hello", "its first line is no such"},
      {"printf '\\0\\377\\t\\t\\n'", "its first line is no such"},
      {"printf 'list\\t5.0\\n'", "its first line is no such"},
      {"printf 'list\\t5.0\\tA\\t\\n'", "the list is empty"},
      {"printf 'list\\t5.0\\tA\\t\\nw\\t1\\tF32\\n'", "a line begins with"},
      {"printf 'list\\t5.0\\tA\\t\\n\\nw\\t1,x\\tF32\\n'", "line 1"},
      {"printf 'list\\t5.0\\tA\\t\\n\\nw\\t1\\tF32\\nw\\t1\\tF32\\n'",
       "line 2"},
  };
  for (const auto& garbage : kGarbage) {
    EXPECT_THAT(
        Ask(garbage.lines),
        StatusIs(ErrorCode::kUnavailable,
                 Says("gave no answer that Castor reads", garbage.says)))
        << garbage.lines;
  }
}

TEST_F(TransformersModelTest, TellsAMistypedFamilyFromABrokenConfig) {
  EXPECT_THAT(Ask("printf 'unknown\\t5.0\\nbloom\\ngemma\\n'"),
              StatusIs(ErrorCode::kInvalidArgument,
                       "transformers 5.0 does not know it either; did you "
                       "mean gemma?"));
  EXPECT_THAT(Ask("printf 'refused\\t5.0\\tValueError: 7 heads\\n'"),
              StatusIs(ErrorCode::kMalformed,
                       "transformers 5.0 makes no model of it: \"ValueError: "
                       "7 heads\""));
}

// As commands read it.
class TransformersSourceTest : public testing::Test {
 protected:
  Result<ModelSource> Read(const std::string& path, const std::string& lines) {
    return ReadModelSource(path, {.python = FakePython(folder_, lines)});
  }

  TempFolder folder_;
};

TEST_F(TransformersSourceTest, IsTheFamilysOrderOfAConfigAndSaysByWhom) {
  const std::string path = folder_.Write("config.json", kConfig);
  ASSERT_OK_AND_ASSIGN(const ModelSource source, Read(path, kList));
  EXPECT_EQ(source.kind, SourceKind::kConfig);
  EXPECT_EQ(source.list.family, "gema");
  EXPECT_EQ(source.list.library, "transformers 5.0.1");
  EXPECT_EQ(source.list.source, "config.json, by transformers 5.0.1");
  EXPECT_EQ(source.list.params.size(), 2u);
}

TEST_F(TransformersSourceTest, NamesBothWaysOutWithoutALibrary) {
  const std::string path = folder_.Write("config.json", kConfig);
  EXPECT_THAT(
      Read(path, "printf 'missing\\ttransformers\\n'"),
      StatusIs(
          ErrorCode::kInvalidArgument,
          Says("\"gema\" is not a family that Castor derives",
               "has no \"transformers\" to ask; install torch and "
               "transformers there, name a Python that has them by --python",
               "or give the model's .safetensors or a list instead",
               "did you mean gemma?")));
}

TEST_F(TransformersSourceTest, OrdersWeightFilesBesideWhichTheConfigLies) {
  folder_.Write("config.json", kConfig);
  const std::string path = WriteSafetensors(
      folder_, "model.safetensors", {{"model.a", {3}}, {"model.b", {4, 2}}});
  ASSERT_OK_AND_ASSIGN(const ModelSource source, Read(path, kList));
  ASSERT_TRUE(source.family.has_value());
  EXPECT_EQ(source.family->params[0].name, "model.b");
  EXPECT_THAT(source.list.notes,
              ElementsAre("the family's order is that in which transformers "
                          "5.0.1 registers gema"));
  ASSERT_OK_AND_ASSIGN(const ModelSource alone, Read(path, "exit 3"));
  EXPECT_FALSE(alone.family.has_value());
  EXPECT_THAT(
      alone.list.notes,
      ElementsAre(AllOf(HasSubstr("names the unknown family \"gema\", so there "
                                  "is no family order: "),
                        HasSubstr("ended with code 3"))));
}

// The language part alone is of a family that Castor knows.
TEST_F(TransformersSourceTest, ListsTheWholeOfALargerModelElseItsKnownPart) {
  const std::string path = folder_.Write(
      "config.json",
      R"({"model_type":"gema","text_config":{"model_type":"gpt2","n_layer":0},
          "vision_config":{}})");
  ASSERT_OK_AND_ASSIGN(const ModelSource whole, Read(path, kList));
  EXPECT_EQ(whole.list.family, "gema");
  ASSERT_OK_AND_ASSIGN(const ModelSource part, Read(path, "exit 3"));
  EXPECT_EQ(part.list.family, "gpt2");
  EXPECT_THAT(part.list.notes,
              testing::Contains(HasSubstr("of the whole model, gema, nothing "
                                          "is known: ")));
  EXPECT_THAT(ReadModelSource(path)->list.notes,
              ElementsAre(HasSubstr("only the language part of the model")));
}

TEST_F(TransformersSourceTest, IsNotAskedForFamiliesThatCastorKnows) {
  const std::string path =
      folder_.Write("config.json", R"({"model_type":"gpt2","n_layer":0})");
  ASSERT_OK_AND_ASSIGN(const ModelSource source, Read(path, kList));
  EXPECT_EQ(source.list.library, "");
  EXPECT_EQ(source.list.source, "config.json");
}

}  // namespace
}  // namespace castor
