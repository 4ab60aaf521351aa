// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_TOOLS_COMMANDS_SEARCH_MADE_REPORT_H_
#define CASTOR_TESTS_TOOLS_COMMANDS_SEARCH_MADE_REPORT_H_

// Reports of small models made up for tests, and what tests ask of the text
// that shows them.

#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "chunk/chunk_size_search.h"
#include "chunk/param_spec.h"
#include "chunk/search/search_result.h"
#include "tools/commands/search/search_run.h"

namespace castor {

// The search of `params` with chunks from `min` to 64 KiB.
inline SearchReport MadeReport(std::vector<ParamSpec> params,
                               Bytes min = KiB(1),
                               std::vector<SearchMode> modes = {
                                   SearchMode::kUniform}) {
  SearchReport report;
  report.request.model = "my model.tsv";
  report.model.name = "tiny";
  report.model.source = "my model.tsv";
  report.model.params = std::move(params);
  report.search.min_chunk = min;
  report.search.max_chunk = KiB(64);
  report.search.modes = std::move(modes);
  report.result = SearchChunkSize(report.model.params, report.search).value();
  return report;
}

// Many trade-offs: sizes without a common measure.
inline std::vector<ParamSpec> Irregular() {
  std::vector<ParamSpec> params;
  int64_t size = 700;
  for (int i = 0; i < 60; ++i) {
    size = size * 31 % 6007;
    params.push_back({"p" + std::to_string(i), {size}, DType::kF32});
  }
  return params;
}

// An embedding, 12 equal layers of five parameters, and a norm.
inline std::vector<ParamSpec> Layered(DType dtype = DType::kF32) {
  std::vector<ParamSpec> params = {{"embed", {5000}, dtype}};
  for (int i = 0; i < 12; ++i) {
    const std::string layer = "layer." + std::to_string(i) + ".";
    for (const int64_t size : {1200, 64, 3000, 2900, 64}) {
      params.push_back({layer + std::to_string(size), {size}, dtype});
    }
  }
  params.push_back({"norm", {64}, dtype});
  return params;
}

inline std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace castor

#endif  // CASTOR_TESTS_TOOLS_COMMANDS_SEARCH_MADE_REPORT_H_
