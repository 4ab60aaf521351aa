// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_CLI_CONSOLE_H_
#define CASTOR_TOOLS_CLI_CONSOLE_H_

// Where a command speaks: the result goes to `out`, everything else to `err`,
// so that a pipe sees the result only. Colour and progress are for terminals.
// A view of streams that outlive it. Owner thread only.

#include <iosfwd>
#include <string_view>

#include "chunk/base/status.h"

namespace castor {

struct Console {
  std::ostream& out;
  std::ostream& err;
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  // A terminal whose user did not refuse colour (NO_COLOR, TERM=dumb).
  bool colour = false;

  // The process's own standard streams.
  static Console Standard();

  // "castor: note: ..." on `err`: what a person should know beside the result.
  void Note(std::string_view text) const;
};

// Says on `err` what went wrong, if anything, with `who` before it, and gives
// its exit code.
int ReportStatus(const Status& status, std::string_view who,
                 const Console& console);

// IoError where the result could not be written whole, for example to a full
// disk: a command that says nothing then would exit 0 with half an answer.
Status FlushOutput(const Console& console);

}  // namespace castor

#endif  // CASTOR_TOOLS_CLI_CONSOLE_H_
