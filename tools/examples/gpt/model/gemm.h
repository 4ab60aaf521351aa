// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_MODEL_GEMM_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_MODEL_GEMM_H_

// Part of the layers (layers.h). Matrix products, by OpenBLAS. Row-major.
// Thread-safe.

#include <cstdint>

#include "chunk/base/status.h"

namespace castor::gpt {

// Opens OpenBLAS before the first product would, which then cannot fail.
// Unavailable where there is none, or too few addresses (ulimit -v, ulimit -d):
// OpenBLAS itself would ask for its buffers for ever.
Status LoadBlas();

// A factor: `data` with `stride` elements from one row to the next, taken
// transposed or as it is.
struct Factor {
  const float* data = nullptr;
  int64_t stride = 0;
  bool transposed = false;
};

inline Factor Transposed(const float* data, int64_t stride) {
  return {data, stride, true};
}

struct ProductShape {
  int64_t rows = 0;     // of the product and the left factor
  int64_t columns = 0;  // of the product and the right factor
  int64_t inner = 0;
};

enum class Into : uint8_t { kOverwrite, kAdd };

// to (`stride` elements per row) = or += scale * left * right.
void Multiply(const ProductShape& shape, const Factor& left,
              const Factor& right, Into into, float* to, int64_t stride,
              float scale = 1.0f);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_MODEL_GEMM_H_
