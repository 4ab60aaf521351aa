// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_BASE_CHECK_H_
#define CASTOR_CHUNK_BASE_CHECK_H_

// CASTOR_CHECK states an invariant of Castor's own code. A broken one prints
// the condition, both operands where there are two, and a message, and ends the
// process: going on would mean wrong numbers. What can go wrong in a correct
// program is a Status (chunk/base/status.h), never a check. Nothing with a side
// effect belongs inside one. Thread-safe.

#include <sstream>
#include <string>
#include <string_view>

namespace castor::internal {

[[noreturn]] void CheckFailed(const char* file, int line,
                              std::string_view condition,
                              std::string_view operands);

template <typename A, typename B>
[[noreturn]] void CheckOpFailed(const char* file, int line,
                                std::string_view condition, const A& a,
                                const B& b) {
  std::ostringstream operands;
  operands << a << " vs " << b;
  CheckFailed(file, line, condition, operands.str());
}

}  // namespace castor::internal

#define CASTOR_CHECK(condition)                                            \
  do {                                                                     \
    if (!(condition)) [[unlikely]]                                         \
      ::castor::internal::CheckFailed(__FILE__, __LINE__, #condition, ""); \
  } while (false)

#define CASTOR_CHECK_OP_(a, op, b)                                             \
  do {                                                                         \
    const auto& castor_check_a = (a);                                          \
    const auto& castor_check_b = (b);                                          \
    if (!(castor_check_a op castor_check_b)) [[unlikely]]                      \
      ::castor::internal::CheckOpFailed(__FILE__, __LINE__, #a " " #op " " #b, \
                                        castor_check_a, castor_check_b);       \
  } while (false)

#define CASTOR_CHECK_EQ(a, b) CASTOR_CHECK_OP_(a, ==, b)
#define CASTOR_CHECK_NE(a, b) CASTOR_CHECK_OP_(a, !=, b)
#define CASTOR_CHECK_LE(a, b) CASTOR_CHECK_OP_(a, <=, b)
#define CASTOR_CHECK_LT(a, b) CASTOR_CHECK_OP_(a, <, b)
#define CASTOR_CHECK_GE(a, b) CASTOR_CHECK_OP_(a, >=, b)
#define CASTOR_CHECK_GT(a, b) CASTOR_CHECK_OP_(a, >, b)

#endif  // CASTOR_CHUNK_BASE_CHECK_H_
