// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_C_API_TENSOR_H_
#define CASTOR_COLLECTIVES_C_API_TENSOR_H_

// A parameter as programs in C describe it. Pure function, thread-safe.

#include <cstddef>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/param_spec.h"
#include "collectives/c_api/castor.h"

namespace castor::c_api {

// InvalidArgument, naming it and its `index`, where a field is missing or its
// dtype is none. Shapes are for others to check.
Result<ParamSpec> SpecOf(const castor_tensor& tensor, size_t index);

// The same of `count` of them, in order.
Result<std::vector<ParamSpec>> SpecsOf(const castor_tensor* tensors,
                                       size_t count);

}  // namespace castor::c_api

#endif  // CASTOR_COLLECTIVES_C_API_TENSOR_H_
