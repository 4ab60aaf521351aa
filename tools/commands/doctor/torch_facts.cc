// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <charconv>
#include <chrono>
#include <cstddef>
#include <sstream>
#include <string>
#include <vector>

#include "tools/cli/bounded_program.h"
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

// Names and versions.
constexpr size_t kMostBytes = 4096;

}  // namespace

TorchFacts ReadTorchFacts(bool gpu) {
  TorchFacts facts;
  facts.python = PythonToAsk();
  std::vector<std::string> words = {facts.python, "-c", kAsk};
  if (gpu) words.push_back("gpu");
  const std::chrono::seconds time(gpu ? 60 : 5);
  std::istringstream output(RunBounded(words, "", {time, kMostBytes}).output);
  std::vector<std::string> lines;
  for (std::string line; std::getline(output, line);) lines.push_back(line);
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
