// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_BASE_VERSION_H_
#define CASTOR_CHUNK_BASE_VERSION_H_

// The version of Castor, as `--version` and the C ABI tell it. A constant.

#include <string_view>

namespace castor {

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace castor

#endif  // CASTOR_CHUNK_BASE_VERSION_H_
