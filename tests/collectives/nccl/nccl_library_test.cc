// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/nccl/nccl_library.h"

#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::AnyOf;
using testing::ElementsAre;

int Version(int* version) {
  *version = 22304;
  return kNcclSuccess;
}
int OldVersion(int* version) {
  *version = 21304;
  return kNcclSuccess;
}
int NoVersion(int*) { return kNcclInternalError; }
int Nothing() { return kNcclSuccess; }

// A machine with libraries of given symbols.
class FakeLoader final : public LibraryLoader {
 public:
  using Symbols = std::map<std::string, void*, std::less<>>;

  static Symbols Nccl(int (*version)(int*)) {
    Symbols symbols = {{"ncclGetVersion", reinterpret_cast<void*>(version)}};
    for (const char* const name :
         {"ncclGetErrorString", "ncclGetLastError", "ncclGetUniqueId",
          "ncclCommInitRankConfig", "ncclCommGetAsyncError", "ncclCommFinalize",
          "ncclCommDestroy", "ncclCommAbort", "ncclCommRegister",
          "ncclCommDeregister", "ncclAllGather", "ncclReduceScatter",
          "ncclGroupStart", "ncclGroupEnd", "ncclSend", "ncclRecv"}) {
      symbols[name] = reinterpret_cast<void*>(&Nothing);
    }
    return symbols;
  }

  void* Open(const std::string& file, bool loaded,
             std::string* why) const override {
    asked.push_back(loaded ? "loaded " + file : file);
    const auto found = libraries.find(asked.back());
    if (found == libraries.end()) {
      *why = "no such file: " + file;
      return nullptr;
    }
    return const_cast<Symbols*>(&found->second);
  }
  void* Find(void* library, const char* symbol) const override {
    const auto* const symbols = static_cast<const Symbols*>(library);
    const auto found = symbols->find(symbol);
    return found == symbols->end() ? nullptr : found->second;
  }

  std::map<std::string, Symbols> libraries;
  mutable std::vector<std::string> asked;
};

class NcclLibraryTest : public testing::Test {
 protected:
  NcclLibraryTest() {
    unsetenv("CASTOR_NCCL_LIBRARY");
    setenv("CUDA_HOME", "/toolkit", 1);
  }
  auto Load(std::string file = "") {
    return NcclLibrary::Load({.file = std::move(file), .loader = &loader_});
  }
  FakeLoader loader_;
};

TEST_F(NcclLibraryTest, TheProcesssOwnComesFirstAndTheToolkitsLast) {
  EXPECT_THAT(Load().status(), StatusIs(ErrorCode::kUnavailable,
                                        Says("no such file: libnccl.so.2",
                                             "/toolkit/lib64/libnccl.so.2",
                                             "set CASTOR_NCCL_LIBRARY")));
  EXPECT_THAT(loader_.asked,
              ElementsAre("loaded libnccl.so.2", "loaded ", "libnccl.so.2",
                          "/toolkit/lib64/libnccl.so.2"));
  // One that is linked into the trainer; a program without it is passed by.
  loader_.libraries["loaded "] = {{"main", nullptr}};
  loader_.libraries["libnccl.so.2"] = FakeLoader::Nccl(Version);
  ASSERT_OK_AND_ASSIGN(auto found, Load());
  EXPECT_EQ(found->version(), 22304);
  EXPECT_TRUE(found->can_register());
  loader_.asked.clear();
  loader_.libraries["loaded "] = FakeLoader::Nccl(Version);
  ASSERT_THAT(Load(), IsOk());
  EXPECT_EQ(loader_.asked.size(), 2u);
}

TEST_F(NcclLibraryTest, WhatIsNamedIsTakenOrNothing) {
  loader_.libraries["loaded libnccl.so.2"] = FakeLoader::Nccl(Version);
  EXPECT_THAT(Load("/mine.so").status(),
              StatusIs(ErrorCode::kUnavailable,
                       Says("/mine.so cannot be loaded as NCCL")));
  setenv("CASTOR_NCCL_LIBRARY", "/theirs.so", 1);
  EXPECT_THAT(Load().status(),
              StatusIs(ErrorCode::kUnavailable, Says("/theirs.so cannot")));
  loader_.libraries["/theirs.so"] = FakeLoader::Nccl(Version);
  loader_.asked.clear();
  EXPECT_THAT(Load(), IsOk());
  EXPECT_THAT(loader_.asked, ElementsAre("/theirs.so"));
  unsetenv("CASTOR_NCCL_LIBRARY");
}

TEST_F(NcclLibraryTest, WhatCannotServeIsRefusedWithWhatItLacks) {
  FakeLoader::Symbols& nccl = loader_.libraries["/nccl.so"];
  nccl = FakeLoader::Nccl(OldVersion);
  EXPECT_THAT(Load("/nccl.so").status(),
              StatusIs(ErrorCode::kUnavailable,
                       Says("/nccl.so is NCCL 2.13.4, older than 2.14.0")));
  nccl = FakeLoader::Nccl(NoVersion);
  EXPECT_THAT(Load("/nccl.so").status(),
              StatusIs(ErrorCode::kUnavailable, Says("fails with 3")));
  nccl = {};
  EXPECT_THAT(Load("/nccl.so").status(),
              StatusIs(ErrorCode::kUnavailable, Says("is not NCCL")));
  nccl = FakeLoader::Nccl(Version);
  nccl.erase("ncclSend");
  nccl.erase("ncclCommAbort");
  EXPECT_THAT(
      Load("/nccl.so").status(),
      StatusIs(ErrorCode::kUnavailable,
               Says("NCCL 2.23.4, but without ncclCommAbort, ncclSend")));
  // What is not needed may be missing.
  nccl = FakeLoader::Nccl(Version);
  nccl.erase("ncclCommRegister");
  ASSERT_OK_AND_ASSIGN(const auto found, Load("/nccl.so"));
  EXPECT_FALSE(found->can_register());
}

// The one of this machine, where there is one: its version and its ids need no
// GPU, and an initialisation without one says so.
TEST_F(NcclLibraryTest, NcclItselfAnswers) {
  unsetenv("CUDA_HOME");
  auto found = NcclLibrary::Load();
  if (!found.ok()) GTEST_SKIP() << found.status();
  NcclCalls& nccl = **found;
  EXPECT_GE(nccl.version(), kOldestNccl);
  NcclUniqueId one;
  NcclUniqueId other;
  EXPECT_EQ(nccl.GetUniqueId(&one), kNcclSuccess);
  EXPECT_EQ(nccl.GetUniqueId(&other), kNcclSuccess);
  EXPECT_NE(one.bytes, other.bytes);
  EXPECT_THAT(nccl.ErrorText(kNcclInvalidUsage), Says("invalid usage"));
  NcclComm comm = nullptr;
  EXPECT_THAT(nccl.CommInitRank(&comm, 0, one, 0),
              AnyOf(kNcclInvalidArgument, kNcclUnhandledCudaError));
}

}  // namespace
}  // namespace castor
