// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/json_out.h"

#include <ostream>

namespace castor {

void WriteJson(const JsonValue& document, std::ostream& out) {
  out << document.Dump(2) << '\n';
}

}  // namespace castor
