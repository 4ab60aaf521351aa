// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_FAMILIES_FAMILIES_TEXT_H_
#define CASTOR_TOOLS_MODELS_FAMILIES_FAMILIES_TEXT_H_

// What families.txt holds.

#include <string_view>

namespace castor {

extern const std::string_view kFamiliesText;

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_FAMILIES_FAMILIES_TEXT_H_
