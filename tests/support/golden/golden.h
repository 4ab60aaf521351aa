// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_GOLDEN_GOLDEN_H_
#define CASTOR_TESTS_SUPPORT_GOLDEN_GOLDEN_H_

// Forecasts in files. A changed forecast shows as a changed line of a file. A
// line holds the name of a case, a tab, and the forecast.

#include <string>
#include <string_view>

namespace castor {

enum class GoldenLines {
  kAll,   // of the file
  kSome,  // others were not foretold, as where a sanitizer watches
};

// Fails, naming the first lines that differ, where `text` is not what the file
// holds. `path`: of the file in the repository, a data dependency of the test.
// The file is written instead where CASTOR_WRITE_GOLDEN is the repository's
// folder, as in `bazel test --test_env=CASTOR_WRITE_GOLDEN=$PWD
// --spawn_strategy=local TEST`.
void ExpectGolden(std::string_view path, const std::string& text,
                  GoldenLines which = GoldenLines::kAll);

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_GOLDEN_GOLDEN_H_
