// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_CLI_FLAGS_H_
#define CASTOR_TOOLS_CLI_FLAGS_H_

// Flags with one behaviour in every program: each is a row of a table
// (collectives/options/option_table.h), and every mistake is a sentence with
// the nearest known flag or value instead of the parser's own text and exit
// code. Owner thread only; a variable given to an Add function must outlive
// `app`, and keeps its value, the default, where the flag is absent.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/options/option_table.h"

namespace CLI {
class App;
}  // namespace CLI

namespace castor {

// An argument or a flag, as the help shows it.
struct FlagHelp {
  std::vector<std::string> names = {};  // {"-o", "--output"}; {"MODEL"}
  std::string form = {};  // stands for the value: "SIZE", "a|b"; or empty
  std::string help = {};
  bool positional = false;
  bool required = false;
};

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
  // What the help is made of.
  std::vector<FlagHelp> Flags() const;
  std::string Footer() const;

 private:
  const std::unique_ptr<CLI::App> app_;
};

// Declares the rows that have a flag, and adds to `given` the flags that are
// given, once they are parsed. The table's members and `given` outlive `app`.
void DeclareOptions(CLI::App& app, const OptionTable& table,
                    std::vector<std::string>* given = nullptr);
void DeclareOption(CLI::App& app, const Option& row,
                   std::vector<std::string>* given = nullptr);

// The same for single flags: `name` with its dashes, `help` one line with the
// default. `value` may be a std::optional.

template <typename To>
void AddSizeFlag(CLI::App& app, const std::string& name, To* value,
                 const std::string& help) {
  OptionTable t;
  DeclareOption(app, t.Size("", value).Flag(name, help).Default(""));
}

// A whole number from `least` to `most`.
template <typename To>
void AddIntFlag(CLI::App& app, const std::string& name, To* value,
                int64_t least, int64_t most, const std::string& help) {
  OptionTable t;
  DeclareOption(app,
                t.Whole("", value, least, most).Flag(name, help).Default(""));
}

// A finite number from `least` to `most`.
inline void AddRealFlag(CLI::App& app, const std::string& name, double* value,
                        double least, double most, const std::string& help) {
  OptionTable t;
  DeclareOption(app,
                t.Real("", value, least, most).Flag(name, help).Default(""));
}

// One of `choices`, spelled exactly.
inline void AddChoiceFlag(CLI::App& app, const std::string& name,
                          std::string* value,
                          const std::vector<std::string>& choices,
                          const std::string& help) {
  OptionTable t;
  DeclareOption(app, t.Choice("", value, choices).Flag(name, help).Default(""));
}

// `kind` stands for the value in the help.
template <typename To>
void AddTextFlag(CLI::App& app, const std::string& name, To* value,
                 const std::string& help, const std::string& kind = "TEXT") {
  OptionTable t;
  DeclareOption(app, t.Text("", value).Form(kind).Flag(name, help).Default(""));
}

// May be given several times; each value is added at the end.
inline void AddTextListFlag(CLI::App& app, const std::string& name,
                            std::vector<std::string>* values,
                            const std::string& help) {
  OptionTable t;
  DeclareOption(app, t.Texts(values).Flag(name, help).Default(""));
}

// Present or not; given a value or twice it is an error.
inline void AddSwitch(CLI::App& app, const std::string& name, bool* value,
                      const std::string& help) {
  OptionTable t;
  DeclareOption(app, t.Switch("", value).Flag(name, help).Default(""));
}

// A required argument without a name, shown as `NAME` in the help.
void AddPositional(CLI::App& app, const std::string& name, std::string* value,
                   const std::string& help);

// The same, but it may be absent: the command says itself when that is wrong.
void AddOptionalPositional(CLI::App& app, const std::string& name,
                           std::string* value, const std::string& help);

// What the help shows below the flags: examples, for instance.
void SetHelpFooter(CLI::App& app, const std::string& text);

enum class ParseOutcome { kRun, kHelpAsked };

// Whether the command line that was parsed gives the flag, "--device-budget".
bool IsGiven(const CLI::App& app, std::string_view flag);

// Reads `args` (without the program's name) into the variables. InvalidArgument
// with a sentence where they cannot be read. Nothing is thrown.
Result<ParseOutcome> ParseFlags(CLI::App& app,
                                const std::vector<std::string>& args);

}  // namespace castor

#endif  // CASTOR_TOOLS_CLI_FLAGS_H_
