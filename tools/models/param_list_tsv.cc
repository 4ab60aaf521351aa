// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>

#include "chunk/base/quote.h"
#include "chunk/tensor_fields.h"
#include "tools/models/param_list.h"

namespace castor {
namespace {

// What precedes the next `separator`, which is consumed.
std::string_view TakeField(std::string_view* rest, char separator) {
  const size_t end = rest->find(separator);
  const std::string_view field = rest->substr(0, end);
  rest->remove_prefix(end == rest->npos ? rest->size() : end + 1);
  return field;
}

Result<std::vector<int64_t>> ParseDims(std::string_view text) {
  std::vector<int64_t> shape;
  if (text.empty()) return shape;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view dim = text.substr(0, comma);
    uint64_t value = 0;
    const auto [stop, error] =
        std::from_chars(dim.data(), dim.data() + dim.size(), value);
    if (error != std::errc() || stop != dim.data() + dim.size() ||
        value > std::numeric_limits<int64_t>::max()) {
      return Malformed(
          fmt::format("its dimension {} is no whole number from 0 "
                      "to 9223372036854775807",
                      Quoted(dim)));
    }
    if (shape.size() == kMaxRank) {
      return Malformed(
          fmt::format("its shape has more than {} dimensions", kMaxRank));
    }
    shape.push_back(static_cast<int64_t>(value));
    if (comma == text.npos) return shape;
    text.remove_prefix(comma + 1);
  }
}

Result<ParamSpec> ParseLine(std::string_view line) {
  const size_t first_tab = line.find('\t');
  const size_t second_tab =
      first_tab == line.npos ? line.npos : line.find('\t', first_tab + 1);
  if (second_tab == line.npos || line.find('\t', second_tab + 1) != line.npos) {
    return Malformed(fmt::format(
        "{} is not three fields with tabs between them: name, dimensions with "
        "commas between them, dtype",
        Quoted(line)));
  }
  ParamSpec spec;
  spec.name = TakeField(&line, '\t');
  if (spec.name.empty()) return Malformed("the name is empty");
  const std::string where = fmt::format("parameter {}", Quoted(spec.name));
  Result<std::vector<int64_t>> shape = ParseDims(TakeField(&line, '\t'));
  if (!shape.ok()) return shape.status().WithContext(where);
  spec.shape = *std::move(shape);
  const Result<DType> dtype = ReadDType(line, DTypeSpelling::kLenient);
  if (!dtype.ok()) return dtype.status().WithContext(where);
  spec.dtype = *dtype;
  const Result<Bytes> bytes = TensorBytes(spec.shape, spec.dtype);
  if (!bytes.ok()) return bytes.status().WithContext(where);
  return spec;
}

}  // namespace

Result<std::vector<ParamSpec>> ParseTsvList(std::string_view text) {
  std::vector<ParamSpec> params;
  std::unordered_map<std::string, int64_t> line_of;
  int64_t number = 0;
  while (!text.empty()) {
    std::string_view line = TakeField(&text, '\n');
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    Result<ParamSpec> spec = ParseLine(line);
    if (!spec.ok()) {
      return spec.status().WithContext(fmt::format("line {}", number));
    }
    const auto [seen, is_new] = line_of.emplace(spec->name, number);
    if (!is_new) {
      return Malformed(fmt::format(
          "line {}: parameter {} was listed in line {} already; names are "
          "unique",
          number, Quoted(spec->name), seen->second));
    }
    params.push_back(*std::move(spec));
  }
  return params;
}

}  // namespace castor
