// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_COLLECTIVES_C_API_TENSOR_LIST_H_
#define CASTOR_TESTS_COLLECTIVES_C_API_TENSOR_LIST_H_

// A list of tensors, as the C ABI takes it and as the command reads it.

#include <cstdint>
#include <string>
#include <vector>

#include "chunk/text/json_value.h"
#include "collectives/c_api/castor.h"

namespace castor {

struct ListedTensor {
  std::string name;
  std::vector<int64_t> dims;
  std::string dtype = "BF16";
};

// Points into `list`, which has to live as long.
inline std::vector<castor_tensor> ForC(const std::vector<ListedTensor>& list) {
  std::vector<castor_tensor> tensors;
  for (const ListedTensor& tensor : list) {
    tensors.push_back({tensor.name.c_str(), tensor.dims.data(),
                       static_cast<int32_t>(tensor.dims.size()), 0,
                       tensor.dtype.c_str()});
  }
  return tensors;
}

inline std::string ForTheCommand(const std::vector<ListedTensor>& list) {
  JsonValue model = JsonValue::Array();
  for (const ListedTensor& tensor : list) {
    JsonValue& one = model.Append(JsonValue::Object());
    one["name"] = tensor.name;
    one["shape"] = JsonValue::Array();
    for (const int64_t dim : tensor.dims) one["shape"].Append(dim);
    one["dtype"] = tensor.dtype;
  }
  return model.Dump();
}

}  // namespace castor

#endif  // CASTOR_TESTS_COLLECTIVES_C_API_TENSOR_LIST_H_
