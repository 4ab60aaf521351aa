// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/files/tensor_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/layout/safetensors_format.h"
#include "chunk/text/json_value.h"
#include "chunk/text/quote.h"

namespace castor {
namespace {

std::string IndexOf(std::span<const ParamSpec> tensors, const TensorFiles& plan,
                    uint64_t data_bytes) {
  std::string text = fmt::format(
      "{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n"
      "  \"weight_map\": {{",
      data_bytes);
  for (size_t t = 0; t < tensors.size(); ++t) {
    text += fmt::format("{}\n    {}: {}", t == 0 ? "" : ",",
                        JsonText(tensors[t].name),
                        JsonText(plan.files[plan.places[t].file].name));
  }
  return text + "\n  }\n}\n";
}

// A name may stand once in all files together.
Status CheckNames(std::span<const ParamSpec> tensors) {
  std::unordered_set<std::string_view> names;
  for (const ParamSpec& tensor : tensors) {
    if (names.insert(tensor.name).second) continue;
    return InvalidArgument(fmt::format(
        "two tensors are called {}: a checkpoint finds tensors by their names, "
        "so give each its own",
        Quoted(tensor.name)));
  }
  return OkStatus();
}

}  // namespace

Result<TensorFiles> PlanTensorFiles(std::string_view stem,
                                    std::span<const ParamSpec> tensors,
                                    Bytes max_file) {
  CASTOR_RETURN_IF_ERROR(CheckNames(tensors));
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tuple(-DTypeBits(tensors[a].dtype), a) <
           std::tuple(-DTypeBits(tensors[b].dtype), b);
  });
  TensorFiles plan;
  plan.places.resize(tensors.size());
  std::vector<std::vector<SafetensorsEntry>> entries;  // by file
  const uint64_t most = static_cast<uint64_t>(max_file.count());
  uint64_t data_bytes = 0;
  for (const size_t t : order) {
    const ParamSpec& tensor = tensors[t];
    CASTOR_ASSIGN_OR_RETURN(const Elements elements,
                            CountElements(tensor.shape, tensor.dtype));
    const uint64_t bytes =
        static_cast<uint64_t>(BytesOf(elements, tensor.dtype).count());
    uint64_t begin = 0;
    if (!entries.empty() && !entries.back().empty()) {
      begin = entries.back().back().end;
    }
    if (entries.empty() || (begin > 0 && begin + bytes > most)) {
      entries.emplace_back();
      plan.files.emplace_back();
      begin = 0;
    }
    entries.back().push_back(
        {tensor.name, tensor.dtype, tensor.shape, begin, begin + bytes});
    plan.files.back().tensors.push_back(t);
    plan.places[t] = {plan.files.size() - 1, begin};
    data_bytes += bytes;
  }
  // Readers that load into PyTorch ask for it.
  const std::pair<std::string, std::string> metadata[] = {{"format", "pt"}};
  const size_t count = plan.files.size();
  for (size_t f = 0; f < count; ++f) {
    TensorFile& file = plan.files[f];
    file.name = count == 1 ? fmt::format("{}.safetensors", stem)
                           : fmt::format("{}-{:05}-of-{:05}.safetensors", stem,
                                         f + 1, count);
    CASTOR_ASSIGN_OR_RETURN(file.head,
                            WriteSafetensorsHeader(entries[f], metadata));
    file.bytes = file.head.size() + entries[f].back().end;
  }
  for (TensorPlace& place : plan.places) {
    place.offset += plan.files[place.file].head.size();
  }
  if (count > 1) {
    plan.index_name = fmt::format("{}.safetensors.index.json", stem);
    plan.index = IndexOf(tensors, plan, data_bytes);
  }
  return plan;
}

}  // namespace castor
