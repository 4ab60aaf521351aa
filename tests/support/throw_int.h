// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_THROW_INT_H_
#define CASTOR_TESTS_SUPPORT_THROW_INT_H_

namespace castor {

// Throws, for tests that are compiled without exceptions.
[[noreturn]] void ThrowInt();

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_THROW_INT_H_
