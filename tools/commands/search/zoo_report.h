// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SEARCH_ZOO_REPORT_H_
#define CASTOR_TOOLS_COMMANDS_SEARCH_ZOO_REPORT_H_

// `castor search --zoo`: one row for each public model. The same options give
// the same bytes in each form. Thread-compatible.

#include <span>
#include <string>

#include "chunk/base/json_value.h"
#include "chunk/base/status.h"
#include "chunk/chunk_size_search.h"
#include "tools/cli/console.h"
#include "tools/zoo/zoo.h"

namespace castor {

enum class ZooForm { kPage, kPlain, kJson };

// A table for people, of at most 100 columns.
std::string ZooText(std::span<const ZooRow> rows, const SearchOptions& options);

// A tab-separated line for each row, after one of column names.
std::string ZooPlain(std::span<const ZooRow> rows);

// Schema "castor.search.zoo/1".
JsonValue ZooJson(std::span<const ZooRow> rows, const SearchOptions& options);

// Searches every model and prints the rows. Errors as SearchZoo.
Status RunZoo(const Console& console, ZooForm form,
              const SearchOptions& options);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SEARCH_ZOO_REPORT_H_
