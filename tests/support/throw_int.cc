// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/support/throw_int.h"

namespace castor {

void ThrowInt() { throw 1; }

}  // namespace castor
