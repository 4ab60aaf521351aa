// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_C_API_TENSOR_H_
#define CASTOR_COLLECTIVES_C_API_TENSOR_H_

// Parameters as programs in C describe them, and questions about lists of these
// that are answered by a text. Thread-safe.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/param_spec.h"
#include "collectives/c_api/castor.h"

namespace castor::c_api {

// InvalidArgument, naming it and its `index`, where a field is missing or its
// dtype is none. Shapes are for others to check.
Result<ParamSpec> SpecOf(const castor_tensor& tensor, size_t index);

using TensorList = std::span<const castor_tensor>;

// The same of all of a list, in order.
Result<std::vector<ParamSpec>> SpecsOf(TensorList tensors);

using TextQuestion = Result<std::string> (*)(TensorList tensors,
                                             std::string_view options);

// Sets `json` to what `ask` answers, which `kept` owns; to null where it fails.
// Null options are "{}". InvalidArgument for a null list or place.
Status AnswerAsText(const castor_tensor* tensors, size_t count,
                    const char* options, TextQuestion ask, std::string* kept,
                    const char** json);

}  // namespace castor::c_api

#endif  // CASTOR_COLLECTIVES_C_API_TENSOR_H_
