// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_NATURAL_ORDER_H_
#define CASTOR_TOOLS_MODELS_NATURAL_ORDER_H_

// Names in the order a person expects: runs of digits compare as numbers of any
// length, everything else byte by byte. A strict total order on distinct
// strings, so sorting by it has one result. Pure function, thread-safe.

#include <string_view>

namespace castor {

bool NaturalLess(std::string_view a, std::string_view b);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_NATURAL_ORDER_H_
