// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/memory_passes.h"

namespace castor {

Bytes UpdateBytes(const UpdatePass& pass, Elements elements) {
  Bytes bytes = BytesOf(elements, pass.grad);
  bytes += BytesOf(elements, DType::kF32) * 2;
  bytes += BytesOf(elements, pass.state) * (2 * pass.states);
  if (pass.param != DType::kF32) bytes += BytesOf(elements, pass.param);
  return bytes;
}

Bytes DepositBytes(Bytes grad, bool adds) { return grad * (adds ? 3 : 2); }

Bytes SquaresBytes(Bytes grad) { return grad; }

}  // namespace castor
