// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Messages that come out of the C ABI name its functions, and the parameters of
// a chunk. Messages of the engine write the calls they name as "Step()".

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "collectives/c_api/castor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/c_api/c_engine.h"
#include "tests/support/test_rounds.h"

namespace castor {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr char kHeader[] = "collectives/c_api/castor.h";

// Bazel hands out a file as a link to the one in the working tree.
fs::path Repository() {
  return fs::canonical(kHeader).parent_path().parent_path().parent_path();
}

std::string TextOf(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What is between quotes in a source, comments and includes aside.
std::string LiteralsOf(const fs::path& path) {
  std::ifstream file(path);
  std::string literals;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#include")) continue;
    bool quoted = false;
    for (size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '\'' && i + 2 < line.size() && !quoted) {
        i = line.find('\'', i + (line[i + 1] == '\\' ? 3 : 2));
        if (i == std::string::npos) break;
        continue;
      }
      if (!quoted && line.compare(i, 2, "//") == 0) break;
      if (quoted && line[i] == '\\') {
        ++i;
        continue;
      }
      if (line[i] == '"') {
        quoted = !quoted;
        literals += '\n';
      } else if (quoted) {
        literals += line[i];
      }
    }
    literals += '\n';
  }
  return literals;
}

// The methods of the engine, by their declarations.
std::set<std::string> EngineMethods() {
  const std::string header =
      TextOf(Repository() / "collectives" / "zero_engine.h");
  const std::regex method(R"(\n  [A-Z][^\n;=/]*[ >&*]([A-Z][a-zA-Z]+)\()");
  std::set<std::string> names;
  for (auto at = std::sregex_iterator(header.begin(), header.end(), method);
       at != std::sregex_iterator(); ++at) {
    names.insert((*at)[1]);
  }
  return names;
}

// What a C program is told where a message of the engine is `words`.
std::string ToldInC(const std::string& words) {
  const CWorld world(1);
  const CEngine engine(world, 0, 1);
  EXPECT_GIVES(CASTOR_OK, castor_world_abort(world.get(), words.c_str()));
  EXPECT_NE(castor_engine_seal(engine.get(), nullptr), CASTOR_OK);
  return castor_last_error();
}

TEST(CMessagesTest, EveryCallThatMessagesNameIsOneOfTheHeader) {
  if (TestStride() > 1) GTEST_SKIP() << "it reads sources, and runs none";
  const std::string declared = TextOf(kHeader);
  const std::set<std::string> methods = EngineMethods();
  EXPECT_GT(methods.size(), 25u);
  const std::regex call(R"(\b([A-Z][A-Za-z]+)\(\))");
  std::set<std::string> named;
  int files = 0;
  for (const char* folder : {"chunk", "placement", "offload", "collectives"}) {
    for (const auto& entry :
         fs::recursive_directory_iterator(Repository() / folder)) {
      const fs::path& path = entry.path();
      if (path.extension() != ".cc" && path.extension() != ".h") continue;
      if (path.parent_path().filename() == "c_api") continue;
      ++files;
      const std::string literals = LiteralsOf(path);
      for (auto at =
               std::sregex_iterator(literals.begin(), literals.end(), call);
           at != std::sregex_iterator(); ++at) {
        if (methods.contains((*at)[1])) named.insert((*at)[1]);
      }
      // A name without parentheses is not translated.
      for (const std::string& method : methods) {
        const bool one_word =
            std::count_if(method.begin(), method.end(), [](unsigned char c) {
              return std::isupper(c) != 0;
            }) == 1;
        const std::string before =
            one_word ? "\\b(call|before|after|inside|until|at|or) " : "\\b";
        EXPECT_FALSE(std::regex_search(
            literals, std::regex(before + method + "\\b(?!\\(\\))")))
            << path << " names " << method << " without parentheses";
      }
    }
  }
  EXPECT_GT(files, 300);
  EXPECT_GT(named.size(), 15u);
  for (const std::string& name : named) {
    const std::string told = ToldInC("call " + name + "() first");
    const size_t begin = told.find("call castor_");
    ASSERT_NE(begin, std::string::npos) << name << " is told as: " << told;
    const size_t end = told.find(" first", begin);
    const std::string function = told.substr(begin + 5, end - begin - 5);
    EXPECT_THAT(declared, HasSubstr(" " + function + "(")) << name;
  }
}

TEST(CMessagesTest, NameFunctionsOfTheHeaderAndNothingElse) {
  EXPECT_THAT(ToldInC("Step() and Step(), not Steps() or a::Step() or "
                      "\"Step()\" or \"a\\\"Step()\""),
              HasSubstr("castor_engine_step and castor_engine_step, not "
                        "Steps() or a::Step() or \"Step()\" or "
                        "\"a\\\"Step()\""));
  const CWorld world(1);
  const CEngine engine(world, 0, 2);
  int32_t param = 0;
  void* grad = nullptr;
  EXPECT_GIVES(CASTOR_FAILED_PRECONDITION,
               castor_engine_begin_micro_batch(engine.get(), 1));
  EXPECT_THAT(castor_last_error(), HasSubstr("call castor_engine_seal"));
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  EXPECT_GIVES(CASTOR_FAILED_PRECONDITION,
               castor_engine_grad(engine.get(), param, &grad));
  EXPECT_THAT(castor_last_error(),
              AllOf(HasSubstr("castor_engine_begin_micro_batch"),
                    Not(HasSubstr("BeginMicroBatch"))));
}

TEST(CMessagesTest, NameTheParametersOfAChunk) {
  const CWorld world(1);
  const CEngine engine(world, 0, 16,
                       R"({"chunk": {"bytes": 2048}, "prefetch": 0,
                           "device_budget_bytes": 10240,
                           "host_budget_bytes": "1MiB"})");
  const int32_t first = 0;
  castor_held held = {&first, 1, &first, 1};
  castor_seal_options seal = CASTOR_INIT(castor_seal_options);
  seal.held = &held;
  seal.held_count = 1;
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), &seal));
  std::vector<castor_param_lease*> leases;
  int32_t code = CASTOR_OK;
  for (int32_t p = 0; p < 16 && code == CASTOR_OK; ++p) {
    const void* data = nullptr;
    castor_param_lease* lease = nullptr;
    code = castor_engine_acquire(engine.get(), &p, 1, &data, &lease);
    if (lease != nullptr) leases.push_back(lease);
  }
  EXPECT_EQ(code, CASTOR_INFEASIBLE);
  EXPECT_THAT(castor_last_error(),
              HasSubstr("chunk 1 (parameters of p2 to p3)"));
  for (castor_param_lease* lease : leases) {
    EXPECT_GIVES(CASTOR_OK, castor_param_lease_release(lease));
  }
}

}  // namespace
}  // namespace castor
