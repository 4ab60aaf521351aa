// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/c_api/tensor.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/text/quote.h"

namespace castor::c_api {

Result<ParamSpec> SpecOf(const castor_tensor& tensor, size_t index) {
  if (tensor.name == nullptr || tensor.dtype == nullptr ||
      tensor.dim_count < 0 ||
      (tensor.dims == nullptr && tensor.dim_count > 0)) {
    return InvalidArgument(fmt::format(
        "tensor {} lacks its name, its dtype or its dims; set all three",
        index));
  }
  const std::optional<DType> dtype = ParseDType(tensor.dtype);
  if (!dtype.has_value()) {
    return InvalidArgument(fmt::format(
        "tensor {} {} has dtype {}, which is none; use a safetensors name, for "
        "example BF16",
        index, Quoted(tensor.name), Quoted(tensor.dtype)));
  }
  ParamSpec spec;
  spec.name = tensor.name;
  spec.shape.assign(tensor.dims, tensor.dims + tensor.dim_count);
  spec.dtype = *dtype;
  spec.trainable = tensor.frozen == 0;
  return spec;
}

Result<std::vector<ParamSpec>> SpecsOf(TensorList tensors) {
  std::vector<ParamSpec> params;
  params.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    CASTOR_ASSIGN_OR_RETURN(ParamSpec spec, SpecOf(tensors[i], i));
    params.push_back(std::move(spec));
  }
  return params;
}

Status AnswerAsText(const castor_tensor* tensors, size_t count,
                    const char* options, TextQuestion ask, std::string* kept,
                    const char** json) {
  if (json == nullptr || (tensors == nullptr && count > 0)) {
    return InvalidArgument(
        "tensors or json is null; give a list, and a place for the text");
  }
  *json = nullptr;
  CASTOR_ASSIGN_OR_RETURN(
      *kept, ask({tensors, count}, options == nullptr ? "{}" : options));
  *json = kept->c_str();
  return OkStatus();
}

}  // namespace castor::c_api
