// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/param_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace castor {
namespace {

Status BadShape(const std::vector<int64_t>& shape, std::string_view why) {
  return Malformed(fmt::format(
      "shape [{}] {}; a shape lists dimensions of zero or more whose product "
      "fits the address space",
      fmt::join(shape, ", "), why));
}

}  // namespace

Result<Elements> CountElements(const std::vector<int64_t>& shape, DType dtype) {
  bool empty = false;
  for (const int64_t dim : shape) {
    if (dim < 0) {
      return BadShape(shape, fmt::format("has the negative dimension {}", dim));
    }
    empty = empty || dim == 0;
  }
  // However large the other dimensions are, a zero makes the product zero.
  if (empty) return Elements(0);
  const int bits = DTypeBits(dtype);
  int64_t product = 1;
  int64_t total_bits = bits;
  for (const int64_t dim : shape) {
    if (__builtin_mul_overflow(total_bits, dim, &total_bits)) {
      return BadShape(shape, fmt::format("of {} holds more than 2^63 bits",
                                         DTypeName(dtype)));
    }
    product *= dim;
  }
  return Elements(product);
}

}  // namespace castor
