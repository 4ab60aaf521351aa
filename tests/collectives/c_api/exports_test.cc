// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What libcastor.so shows the loader: the functions of castor.h and nothing
// else, no jemalloc, and no storage that dlopen may not have room for. And what
// Castor's executables hold: jemalloc under names of its own, so that malloc
// stays the C library's.

#include <elf.h>

#include <cctype>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/file_text.h"
#include "tests/support/run_program.h"

namespace castor {
namespace {

using testing::Contains;
using testing::Not;

// What the linker left in a program or a shared library: its symbols, and what
// it asks of the loader.
struct ElfSymbols {
  std::set<std::string> exported;  // defined, for others to find
  std::set<std::string> imported;  // by name, without a version
  std::set<std::string> all;       // defined, local ones too
  std::set<std::string> needed;    // libraries
  bool static_tls = false;         // storage that dlopen may not have room for
};

class ElfFile {
 public:
  explicit ElfFile(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.resize(std::filesystem::file_size(path));
    file.read(bytes_.data(), std::ssize(bytes_));
    CASTOR_CHECK(file.good());
    CASTOR_CHECK(std::string_view(bytes_).substr(0, SELFMAG) == ELFMAG);
    header_ = At<Elf64_Ehdr>(0);
    CASTOR_CHECK_EQ(int{header_.e_ident[EI_CLASS]}, ELFCLASS64);
    for (size_t i = 0; i < header_.e_shnum; ++i) {
      sections_.push_back(
          At<Elf64_Shdr>(header_.e_shoff + i * header_.e_shentsize));
    }
  }

  const std::vector<Elf64_Shdr>& sections() const { return sections_; }

  template <typename T>
  std::vector<T> Entries(const Elf64_Shdr& section) const {
    std::vector<T> entries;
    for (uint64_t at = 0; at + sizeof(T) <= section.sh_size; at += sizeof(T)) {
      entries.push_back(At<T>(section.sh_offset + at));
    }
    return entries;
  }

  // Of the table of strings that belongs to `section`.
  std::string Text(const Elf64_Shdr& section, uint64_t offset) const {
    const uint64_t at = sections_.at(section.sh_link).sh_offset + offset;
    CASTOR_CHECK_LT(at, bytes_.size());
    return bytes_.c_str() + at;
  }

 private:
  template <typename T>
  T At(uint64_t offset) const {
    CASTOR_CHECK_LE(offset + sizeof(T), bytes_.size());
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }

  std::string bytes_;
  Elf64_Ehdr header_;
  std::vector<Elf64_Shdr> sections_;
};

// Of a 64-bit ELF file. CHECKs that it is one.
ElfSymbols ReadElfSymbols(const std::string& path) {
  const ElfFile file(path);
  ElfSymbols symbols;
  for (const Elf64_Shdr& section : file.sections()) {
    if (section.sh_type == SHT_DYNAMIC) {
      for (const Elf64_Dyn& entry : file.Entries<Elf64_Dyn>(section)) {
        if (entry.d_tag == DT_NEEDED) {
          symbols.needed.insert(file.Text(section, entry.d_un.d_val));
        }
        if (entry.d_tag == DT_FLAGS && (entry.d_un.d_val & DF_STATIC_TLS)) {
          symbols.static_tls = true;
        }
      }
    }
    const bool dynamic = section.sh_type == SHT_DYNSYM;
    if (!dynamic && section.sh_type != SHT_SYMTAB) continue;
    for (const Elf64_Sym& symbol : file.Entries<Elf64_Sym>(section)) {
      const std::string name = file.Text(section, symbol.st_name);
      const bool defined = symbol.st_shndx != SHN_UNDEF;
      // A version's own name is a symbol of no place.
      if (name.empty() || symbol.st_shndx == SHN_ABS) continue;
      if (defined) symbols.all.insert(name);
      if (!dynamic) continue;
      (defined ? symbols.exported : symbols.imported).insert(name);
    }
  }
  return symbols;
}

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
