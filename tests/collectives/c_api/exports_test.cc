// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What libcastor.so shows the loader: the functions of castor.h and nothing
// else, no jemalloc, and no storage that dlopen may not have room for. And what
// Castor's executables hold: jemalloc under names of its own, so that malloc
// stays the C library's.

#include <cctype>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/elf_symbols.h"
#include "tests/support/file_text.h"
#include "tests/support/run_program.h"

namespace castor {
namespace {

using testing::Contains;
using testing::Not;

// The word that ends before the next parenthesis after each CASTOR_API.
std::set<std::string> DeclaredFunctions() {
  const std::string header = FileText(DataPath("collectives/c_api/castor.h"));
  std::set<std::string> names;
  const std::string mark = "\nCASTOR_API ";
  for (size_t at = header.find(mark); at != std::string::npos;
       at = header.find(mark, at + 1)) {
    const size_t end = header.find('(', at);
    size_t begin = end;
    while (std::isalnum(static_cast<unsigned char>(header[begin - 1])) ||
           header[begin - 1] == '_') {
      --begin;
    }
    names.insert(header.substr(begin, end - begin));
  }
  return names;
}

bool Mentions(const std::string& name, const std::string& part) {
  return name.find(part) != std::string::npos;
}

const ElfSymbols& Library() {
  static const ElfSymbols symbols =
      ReadElfSymbols(DataPath("collectives/c_api/libcastor.so"));
  return symbols;
}

TEST(ExportsTest, TheLibraryExportsWhatTheHeaderDeclares) {
  const std::set<std::string> declared = DeclaredFunctions();
  EXPECT_GE(declared.size(), 13u);
  EXPECT_EQ(Library().exported, declared);
}

TEST(ExportsTest, TheLibraryHoldsNoJemallocAndNoMalloc) {
  for (const std::string& name : Library().all) {
    EXPECT_FALSE(Mentions(name, "castor_je_")) << name;
    EXPECT_FALSE(Mentions(name, "mallocx")) << name;
    EXPECT_NE(name.substr(0, 3), "je_");
  }
  for (const char* name :
       {"malloc", "free", "calloc", "realloc", "mallctl", "_Znwm", "_ZdlPv"}) {
    EXPECT_THAT(Library().all, Not(Contains(name)));
  }
  // Asked of the process at run time, so that it loads where there is none.
  EXPECT_THAT(Library().imported, Not(Contains("mallocx")));
  for (const std::string& name : Library().needed) {
    EXPECT_FALSE(Mentions(name, "jemalloc")) << name;
  }
}

TEST(ExportsTest, TheLibraryCanBeLoadedLate) {
  EXPECT_FALSE(Library().static_tls);
}

TEST(ExportsTest, TheTrainerHoldsJemallocUnderNamesOfItsOwn) {
  const ElfSymbols trainer =
      ReadElfSymbols(DataPath("tools/examples/train_gpt"));
  EXPECT_THAT(trainer.all, Contains("castor_je_mallocx"));
  EXPECT_THAT(trainer.all, Contains("castor_je_je_arena_init"));
  for (const char* name : {"mallocx", "mallctl", "je_arena_init"}) {
    EXPECT_THAT(trainer.all, Not(Contains(name)));
  }
  // A sanitizer brings its own.
  if (trainer.all.count("__asan_init") + trainer.all.count("__tsan_init") > 0) {
    return;
  }
  for (const char* name :
       {"malloc", "free", "calloc", "realloc", "memalign", "posix_memalign",
        "aligned_alloc", "_Znwm", "_ZdlPv"}) {
    EXPECT_THAT(trainer.all, Not(Contains(name)));
  }
  EXPECT_THAT(trainer.imported, Contains("_Znwm"));
}

}  // namespace
}  // namespace castor
