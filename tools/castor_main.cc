// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <ios>
#include <string>
#include <vector>

#include "chunk/base/version.h"
#include "tools/cli/console.h"
#include "tools/cli/program.h"
#include "tools/commands/registry.h"

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  const castor::Program program{
      .name = "castor",
      .version = std::string(castor::kVersion),
      .summary =
          "Castor packs a model's parameters into equal chunks and plans where "
          "they live.",
      .commands = castor::AllCommands()};
  return castor::RunProgram(program,
                            std::vector<std::string>(argv + 1, argv + argc),
                            castor::Console::Standard());
}
