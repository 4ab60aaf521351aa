// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <stdio.h>

#include <charconv>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tools/commands/doctor/doctor.h"

namespace castor {
namespace {

// Its version is in the package's metadata; importing it takes seconds, so only
// a machine with a GPU asks torch itself.
constexpr char kAsk[] =
    "import importlib.metadata as m, sys\n"
    "print(m.version(\"torch\"))\n"
    "if len(sys.argv) > 1:\n"
    "    import torch\n"
    "    if torch.cuda.is_available():\n"
    "        major, minor = torch.cuda.get_device_capability()\n"
    "        print(10 * major + minor)\n"
    "        print(torch.cuda.get_device_name())\n";

// `word` as one word of a shell's command.
std::string Quoted(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::vector<std::string> LinesOf(const std::string& command) {
  std::vector<std::string> lines;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
      ::popen(command.c_str(), "re"), &::pclose);
  if (pipe == nullptr) return lines;
  char line[512];
  while (::fgets(line, sizeof(line), pipe.get()) != nullptr) {
    lines.emplace_back(line);
    if (lines.back().ends_with('\n')) lines.back().pop_back();
  }
  return lines;
}

}  // namespace

TorchFacts ReadTorchFacts(bool gpu) {
  const char* const named = std::getenv("CASTOR_PYTHON");
  TorchFacts facts;
  facts.python = named != nullptr && *named != '\0' ? named : "python3";
  const std::vector<std::string> lines =
      LinesOf(Quoted(facts.python) + " -c " + Quoted(kAsk) +
              (gpu ? " gpu" : "") + " 2>/dev/null");
  if (!lines.empty()) facts.version = lines[0];
  if (lines.size() > 2) {
    const std::string& capability = lines[1];
    std::from_chars(capability.data(), capability.data() + capability.size(),
                    facts.capability);
    facts.gpu = lines[2];
  }
  return facts;
}

}  // namespace castor
