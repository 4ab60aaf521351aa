// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_TOOLS_COMMANDS_SEARCH_SEARCH_DOCUMENT_H_
#define CASTOR_TESTS_TOOLS_COMMANDS_SEARCH_SEARCH_DOCUMENT_H_

// Checks the JSON document of `castor search` against the parameters' sizes:
// costs against a second packer, written from the words of the design, and
// proofs with the library's verifiers, from the document's numbers alone.

#include <cstdint>
#include <vector>

#include "chunk/base/json_value.h"

namespace castor {

// What a document was made from: one group of parameters, in order.
struct SearchedModel {
  std::vector<int64_t> sizes;
  int64_t world = 1;
  int64_t align = 64;
  int64_t bytes_each = 4;
  int64_t gathered_slots = 3;
};

// Fails the running test for the first number of each kind that is wrong.
void CheckSearchDocument(const JsonValue& document, const SearchedModel& model);

}  // namespace castor

#endif  // CASTOR_TESTS_TOOLS_COMMANDS_SEARCH_SEARCH_DOCUMENT_H_
