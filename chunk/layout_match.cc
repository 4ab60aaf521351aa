// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "chunk/base/dtype.h"
#include "chunk/layout_file.h"
#include "chunk/text/quote.h"

namespace castor {
namespace {

constexpr char kRemedy[] =
    "make a layout from the model's own list of parameters, in the order in "
    "which they are registered";

bool Same(const ParamSpec& a, const ParamSpec& b) {
  return a.name == b.name && a.shape == b.shape && a.dtype == b.dtype &&
         a.trainable == b.trainable;
}

std::string Described(const ParamSpec& param) {
  return fmt::format("{} ({} [{}]{})", Quoted(param.name),
                     DTypeName(param.dtype), fmt::join(param.shape, ", "),
                     param.trainable ? "" : ", frozen");
}

}  // namespace

Status CheckLayoutFits(const LayoutFile& file,
                       std::span<const ParamSpec> params, int world) {
  if (file.layout.world() != world) {
    return InvalidArgument(
        fmt::format("the layout is for {} ranks and there are {}: shards would "
                    "differ; make "
                    "one with castor search --world {}",
                    file.layout.world(), world, world));
  }
  const size_t both = std::min(file.params.size(), params.size());
  for (size_t i = 0; i < both; ++i) {
    if (Same(file.params[i], params[i])) continue;
    return InvalidArgument(fmt::format(
        "the layout is not of this model: its parameter {} is {}, and the one "
        "registered is {}; {}",
        i, Described(file.params[i]), Described(params[i]), kRemedy));
  }
  if (file.params.size() == params.size()) return OkStatus();
  const bool more = params.size() > both;
  return InvalidArgument(fmt::format(
      "the layout is not of this model: it has {} parameters and {} are "
      "registered; the first that {} lacks is {}; {}",
      file.params.size(), params.size(), more ? "the layout" : "the model",
      Described(more ? params[both] : file.params[both]), kRemedy));
}

}  // namespace castor
