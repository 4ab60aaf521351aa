// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_FUZZ_LIST_CHECKS_H_
#define CASTOR_TESTS_FUZZ_LIST_CHECKS_H_

// What holds of a list of parameters however it was written: it is refused with
// a sentence, or its names are unique and its sizes can be counted. Pure
// function, thread-safe.

#include <string_view>
#include <unordered_set>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/status.h"
#include "chunk/param_spec.h"

namespace castor {

inline void CheckList(const Result<std::vector<ParamSpec>>& list) {
  if (!list.ok()) {
    CASTOR_CHECK_EQ(ExitCode(list.status().code()), 4);
    CASTOR_CHECK(!list.status().message().empty());
    return;
  }
  std::unordered_set<std::string_view> names;
  for (const ParamSpec& spec : *list) {
    CASTOR_CHECK(!spec.name.empty());
    CASTOR_CHECK(names.insert(spec.name).second);
    CASTOR_CHECK(CountElements(spec.shape, spec.dtype).ok());
  }
}

}  // namespace castor

#endif  // CASTOR_TESTS_FUZZ_LIST_CHECKS_H_
