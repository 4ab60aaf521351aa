// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_ELF_SYMBOLS_H_
#define CASTOR_TESTS_SUPPORT_ELF_SYMBOLS_H_

// What the linker left in a program or a shared library: its symbols, and what
// it asks of the loader. Pure function.

#include <set>
#include <string>

namespace castor {

struct ElfSymbols {
  std::set<std::string> exported;  // defined, for others to find
  std::set<std::string> imported;  // by name, without a version
  std::set<std::string> all;       // defined, local ones too
  std::set<std::string> needed;    // libraries
  bool static_tls = false;         // storage that dlopen may not have room for
};

// Of a 64-bit ELF file. CHECKs that it is one.
ElfSymbols ReadElfSymbols(const std::string& path);

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_ELF_SYMBOLS_H_
