// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/json_out.h"

#include <nlohmann/json.hpp>
#include <ostream>

namespace castor {

void WriteJson(const nlohmann::ordered_json& document, std::ostream& out) {
  out << document.dump(2, ' ', /*ensure_ascii=*/false,
                       nlohmann::ordered_json::error_handler_t::replace)
      << '\n';
}

}  // namespace castor
