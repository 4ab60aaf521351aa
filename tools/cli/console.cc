// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "chunk/text/printable.h"

namespace castor {
namespace {

bool ColourWanted() {
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  const char* term = std::getenv("TERM");
  return term != nullptr && std::strcmp(term, "dumb") != 0;
}

}  // namespace

Console Console::Standard() {
  const bool out_is_terminal = isatty(STDOUT_FILENO) == 1;
  return Console{.out = std::cout,
                 .err = std::cerr,
                 .out_is_terminal = out_is_terminal,
                 .err_is_terminal = isatty(STDERR_FILENO) == 1,
                 .colour = out_is_terminal && ColourWanted()};
}

void Console::Note(std::string_view text) const {
  err << "castor: note: " << Printable(text) << '\n';
}

int ReportStatus(const Status& status, std::string_view who,
                 const Console& console) {
  if (!status.ok()) {
    // In one piece: ranks share a terminal.
    console.err << fmt::format("{}: {}\n", who, Printable(status.message()));
  }
  return ExitCode(status.code());
}

Status FlushOutput(const Console& console) {
  errno = 0;
  console.out.flush();
  if (console.out.good()) return OkStatus();
  const int error = errno;
  return IoError(fmt::format(
      "the result could not be written to the standard output{}{}; free some "
      "space or write it elsewhere",
      error == 0 ? "" : ": ", error == 0 ? "" : std::strerror(error)));
}

}  // namespace castor
