// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/trace_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "chunk/base/did_you_mean.h"
#include "chunk/base/quote.h"

namespace castor {
namespace {

std::string Nearest(std::string_view name,
                    const std::vector<std::string>& known) {
  const std::optional<std::string> nearest = NearestName(name, known);
  return nearest ? fmt::format(", the nearest being {}", Quoted(*nearest)) : "";
}

}  // namespace

Status ApplyTraceOrder(const TraceFile& trace, ModelList& list) {
  if (trace.params.empty()) {
    return Malformed(
        "the trace does not name its parameters, so it tells no order of them; "
        "record one with train_gpt --trace, or ZeroEngine::RecordedTrace of "
        "parameters with names of their own");
  }
  std::unordered_map<std::string_view, size_t> place;
  for (size_t i = 0; i < trace.params.size(); ++i) place[trace.params[i]] = i;
  std::vector<std::string> names;
  for (const ParamSpec& spec : list.params) names.push_back(spec.name);
  for (const std::string& name : names) {
    if (place.contains(name)) continue;
    return Malformed(fmt::format(
        "the trace lacks parameter {} of the model{}: it was recorded of "
        "another one",
        Quoted(name), Nearest(name, trace.params)));
  }
  // Names of a model may stand for more than one tensor, names of a trace not.
  std::vector<bool> found(trace.params.size(), false);
  for (const std::string& name : names) found[place[name]] = true;
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i]) continue;
    return Malformed(fmt::format(
        "the trace has parameter {}, which the model has not{}: it was "
        "recorded of another one",
        Quoted(trace.params[i]), Nearest(trace.params[i], names)));
  }
  std::vector<size_t> order(list.params.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const size_t first = place[names[a]];
    const size_t second = place[names[b]];
    return first != second ? first < second : a < b;
  });
  std::vector<ParamSpec> sorted;
  sorted.reserve(order.size());
  for (size_t i : order) sorted.push_back(std::move(list.params[i]));
  list.params = std::move(sorted);
  list.order = ParamOrder::kTrace;
  return OkStatus();
}

}  // namespace castor
