// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_FILE_TEXT_H_
#define CASTOR_TESTS_SUPPORT_FILE_TEXT_H_

// What a file holds, for tests. Thread-safe.

#include <string>

namespace castor {

// Empty where there is no such file.
std::string FileText(const std::string& path);

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_FILE_TEXT_H_
