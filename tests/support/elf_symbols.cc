// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/support/elf_symbols.h"

#include <elf.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

#include "chunk/base/check.h"

namespace castor {
namespace {

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

}  // namespace

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

}  // namespace castor
