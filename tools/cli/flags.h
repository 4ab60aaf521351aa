// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_CLI_FLAGS_H_
#define CASTOR_TOOLS_CLI_FLAGS_H_

// Flags with one behaviour in every program: sizes through ParseSize, numbers
// within stated limits, choices by name, and every mistake a sentence with the
// nearest known flag or value instead of the parser's own text and exit code.
// Owner thread only; a variable given to an Add function must outlive `app`,
// and keeps its value, the default, where the flag is absent.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"

namespace CLI {
class App;
}  // namespace CLI

namespace castor {

// Holds the App that flags are declared on, whose own header takes seconds to
// compile.
class CommandLine {
 public:
  // `program` as the user calls it; `summary` opens the help.
  CommandLine(const std::string& program, const std::string& summary);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  CLI::App& app() { return *app_; }
  // Every line with its end.
  std::string Help() const;

 private:
  const std::unique_ptr<CLI::App> app_;
};

// `name` is the flag with its dashes, "--min"; `help` one line.
void AddSizeFlag(CLI::App& app, const std::string& name, Bytes* value,
                 const std::string& help);
void AddSizeFlag(CLI::App& app, const std::string& name,
                 std::optional<Bytes>* value, const std::string& help);

// A whole number from `least` to `most`.
void AddIntFlag(CLI::App& app, const std::string& name, int64_t* value,
                int64_t least, int64_t most, const std::string& help);

void AddIntFlag(CLI::App& app, const std::string& name,
                std::optional<int64_t>* value, int64_t least, int64_t most,
                const std::string& help);

// A finite number from `least` to `most`.
void AddRealFlag(CLI::App& app, const std::string& name, double* value,
                 double least, double most, const std::string& help);

// One of `choices`, spelled exactly.
void AddChoiceFlag(CLI::App& app, const std::string& name, std::string* value,
                   const std::vector<std::string>& choices,
                   const std::string& help);

// `kind` stands for the value in the help.
void AddTextFlag(CLI::App& app, const std::string& name, std::string* value,
                 const std::string& help, const std::string& kind = "TEXT");
void AddTextFlag(CLI::App& app, const std::string& name,
                 std::optional<std::string>* value, const std::string& help,
                 const std::string& kind = "TEXT");

// May be given several times; each value is added at the end.
void AddTextListFlag(CLI::App& app, const std::string& name,
                     std::vector<std::string>* values, const std::string& help);

// Present or not; given a value or twice it is an error.
void AddSwitch(CLI::App& app, const std::string& name, bool* value,
               const std::string& help);

// A required argument without a name, shown as `NAME` in the help.
void AddPositional(CLI::App& app, const std::string& name, std::string* value,
                   const std::string& help);

// The same, but it may be absent: the command says itself when that is wrong.
void AddOptionalPositional(CLI::App& app, const std::string& name,
                           std::string* value, const std::string& help);

// What the help shows below the flags: examples, for instance.
void SetHelpFooter(CLI::App& app, const std::string& text);

// A flag that an earlier version had: giving it is an error that says
// `instead`, what to do now. The help does not show it.
void RefuseFlag(CLI::App& app, const std::string& name,
                const std::string& instead);

// After a parsing, `names` holds the flags of `app` that were given, each as it
// was added. REQUIRES: called once.
void NoteGivenFlags(CLI::App& app, std::vector<std::string>* names);

enum class ParseOutcome { kRun, kHelpAsked };

// Reads `args` (without the program's name) into the variables. InvalidArgument
// with a sentence where they cannot be read. Nothing is thrown.
Result<ParseOutcome> ParseFlags(CLI::App& app,
                                const std::vector<std::string>& args);

}  // namespace castor

#endif  // CASTOR_TOOLS_CLI_FLAGS_H_
