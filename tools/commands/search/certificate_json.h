// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SEARCH_CERTIFICATE_JSON_H_
#define CASTOR_TOOLS_COMMANDS_SEARCH_CERTIFICATE_JSON_H_

// The proof of each mode of a search as JSON, complete: whoever has the
// parameters' sizes can check it from these numbers alone. Pure functions,
// thread-safe.

#include <string>

#include "chunk/base/json_value.h"
#include "chunk/search_result.h"

namespace castor {

// `group` is left out where it is empty. Keys after those of every mode:
//   uniform  intervals
//   layer    repeat {first, params, repeats} and steps
JsonValue CertificateJson(const ModeResult& mode, const std::string& group);

// The proof of nothing: no parameter, no chunk, no waste.
JsonValue EmptyCertificateJson();

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SEARCH_CERTIFICATE_JSON_H_
