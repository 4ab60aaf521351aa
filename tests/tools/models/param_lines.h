// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_TOOLS_MODELS_PARAM_LINES_H_
#define CASTOR_TESTS_TOOLS_MODELS_PARAM_LINES_H_

// Parameters as text, for expectations that people read. Pure function,
// thread-safe.

#include <string>
#include <string_view>
#include <vector>

#include "chunk/param_spec.h"

namespace castor {

// "name d0,d1", in order, of those whose names begin with `prefix`, which is
// left out.
inline std::vector<std::string> ParamLines(const std::vector<ParamSpec>& params,
                                           std::string_view prefix = "") {
  std::vector<std::string> lines;
  for (const ParamSpec& spec : params) {
    if (!spec.name.starts_with(prefix)) continue;
    std::string line = spec.name.substr(prefix.size()) + " ";
    for (size_t i = 0; i < spec.shape.size(); ++i) {
      line += (i == 0 ? "" : ",") + std::to_string(spec.shape[i]);
    }
    lines.push_back(line);
  }
  return lines;
}

}  // namespace castor

#endif  // CASTOR_TESTS_TOOLS_MODELS_PARAM_LINES_H_
