// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_CLI_COMMAND_H_
#define CASTOR_TOOLS_CLI_COMMAND_H_

// One subcommand of `castor`. A command is a file of its own with a function
// that makes it, in tools/commands/registry.h. Owner thread only.

#include <string_view>

#include "chunk/base/status.h"
#include "tools/cli/console.h"

namespace CLI {
class App;
}  // namespace CLI

namespace castor {

class Command {
 public:
  virtual ~Command() = default;

  virtual std::string_view name() const = 0;
  // One line for `castor help`.
  virtual std::string_view summary() const = 0;

  // Declares arguments and flags with the functions of tools/cli/flags.h, into
  // members of this object. Called once, before Run.
  virtual void Declare(CLI::App& app) = 0;

  // The result goes to console.out, notes to console.err; the caller prints a
  // failure and turns it into the exit code.
  virtual Status Run(const Console& console) = 0;
};

}  // namespace castor

#endif  // CASTOR_TOOLS_CLI_COMMAND_H_
