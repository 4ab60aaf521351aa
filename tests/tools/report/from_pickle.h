// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_TOOLS_REPORT_FROM_PICKLE_H_
#define CASTOR_TESTS_TOOLS_REPORT_FROM_PICKLE_H_

// What Python reads from a pickle, for tests. Owner thread only.

#include <string>

#include "chunk/text/json_value.h"
#include "gtest/gtest.h"
#include "tests/tools/run_process.h"

namespace castor {

// Fails the test, and is null, where Python refuses it.
inline JsonValue FromPickle(const std::string& pickle) {
  const ProcessOutcome outcome =
      RunProcess({"/usr/bin/env", "python3", "-c",
                  "import json, pickle, sys\n"
                  "json.dump(pickle.load(sys.stdin.buffer), sys.stdout)\n"},
                 pickle);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  if (outcome.exit_code != 0) return JsonValue();
  return ParseJson(outcome.out).value();
}

}  // namespace castor

#endif  // CASTOR_TESTS_TOOLS_REPORT_FROM_PICKLE_H_
