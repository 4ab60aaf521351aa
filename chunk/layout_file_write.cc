// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_set>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/layout_file.h"
#include "chunk/text/json_value.h"
#include "chunk/text/quote.h"

namespace castor {
namespace {

// A line for each element of `list`, with commas between them.
template <typename List, typename Line>
void AppendSection(std::string_view name, const List& list, const Line& line,
                   std::string* text) {
  *text += fmt::format("\"{}\": [\n", name);
  for (size_t i = 0; i < list.size(); ++i) {
    *text += line(i);
    *text += i + 1 < list.size() ? ",\n" : "\n";
  }
  *text += ']';
}

}  // namespace

Result<std::string> WriteLayout(std::span<const ParamSpec> params,
                                const ChunkLayout& layout) {
  CASTOR_CHECK_EQ(params.size(), layout.places().size());
  std::unordered_set<std::string_view> names;
  for (const ParamSpec& param : params) {
    if (param.name.empty() || JsonText(param.name).empty() ||
        !names.insert(param.name).second) {
      return InvalidArgument(fmt::format(
          "parameter {} cannot be written to a layout: names are UTF-8, not "
          "empty, and each is given once",
          Quoted(param.name)));
    }
  }
  std::string text = fmt::format(
      "{{\n\"schema\": \"{}\",\n\"world\": {},\n\"align_elements\": {},\n"
      "\"quantum_elements\": {},\n",
      kLayoutSchema, layout.world(), layout.align().count(),
      layout.quantum().count());
  AppendSection(
      "groups", layout.groups(),
      [&](size_t i) {
        const GroupInfo& group = layout.groups()[i];
        return fmt::format(
            R"({{"dtype": "{}", "trainable": {}, "chunk_elements": {}{}}})",
            DTypeName(group.dtype), group.trainable, group.chunk_size.count(),
            group.moments8 ? R"(, "moments8": true)" : "");
      },
      &text);
  text += ",\n";
  AppendSection(
      "chunks", layout.chunks(),
      [&](size_t i) {
        const ChunkInfo& chunk = layout.chunks()[i];
        return fmt::format(R"({{"group": {}, "elements": {}, "oversize": {}}})",
                           chunk.group, chunk.size.count(), chunk.oversize);
      },
      &text);
  text += ",\n";
  AppendSection(
      "parameters", params,
      [&](size_t i) {
        const ParamSpec& param = params[i];
        const ParamPlace& place = layout.places()[i];
        const bool placed = place.chunk.valid();
        return fmt::format(
            R"({{"name": {}, "shape": [{}], "dtype": "{}", "trainable": {}, )"
            R"("chunk": {}, "offset": {}}})",
            JsonText(param.name), fmt::join(param.shape, ", "),
            DTypeName(param.dtype), param.trainable,
            placed ? fmt::to_string(place.chunk.value()) : "null",
            placed ? fmt::to_string(place.offset.count()) : "null");
      },
      &text);
  return text + "\n}\n";
}

}  // namespace castor
