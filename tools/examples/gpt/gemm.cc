// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/gemm.h"

#include <cblas.h>

#include <type_traits>

namespace castor::gpt {

void UseOneThreadPerCaller() { openblas_set_num_threads(1); }

template <typename T>
void Multiply(const ProductShape& shape, const Factor<T>& left,
              const Factor<T>& right, Into into, T* to, int64_t stride,
              T scale) {
  const auto order = [](const Factor<T>& f) {
    return f.transposed ? CblasTrans : CblasNoTrans;
  };
  const auto narrow = [](int64_t n) { return static_cast<blasint>(n); };
  const T keep = into == Into::kAdd ? T{1} : T{0};
  if constexpr (std::is_same_v<T, float>) {
    cblas_sgemm(CblasRowMajor, order(left), order(right), narrow(shape.rows),
                narrow(shape.columns), narrow(shape.inner), scale, left.data,
                narrow(left.stride), right.data, narrow(right.stride), keep, to,
                narrow(stride));
  } else {
    cblas_dgemm(CblasRowMajor, order(left), order(right), narrow(shape.rows),
                narrow(shape.columns), narrow(shape.inner), scale, left.data,
                narrow(left.stride), right.data, narrow(right.stride), keep, to,
                narrow(stride));
  }
}

template void Multiply<float>(const ProductShape&, const Factor<float>&,
                              const Factor<float>&, Into, float*, int64_t,
                              float);
template void Multiply<double>(const ProductShape&, const Factor<double>&,
                               const Factor<double>&, Into, double*, int64_t,
                               double);

}  // namespace castor::gpt
