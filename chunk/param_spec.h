// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_PARAM_SPEC_H_
#define CASTOR_CHUNK_PARAM_SPEC_H_

// What a trainer or a model file says of one parameter, before any memory
// exists. A list of specs is in initialization order. Values.

#include <cstdint>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"

namespace castor {

struct ParamSpec {
  std::string name;
  std::vector<int64_t> shape;  // empty for a scalar; a zero makes it empty
  DType dtype = DType::kF32;
  // Frozen parameters are packed in groups of their own, without gradient or
  // optimizer chunks.
  bool trainable = true;
  // Its optimizer updates it as a whole, so no border of optimizer shards cuts
  // it (PackOptions::shards).
  bool whole = false;
  // How many states its optimizer keeps of it, where optimizers differ in that;
  // -1: as many as of any. Parameters that differ do not share chunks.
  int states = -1;
  // Its moments are kept in blocks of 8 bits, beside others in float32. It
  // begins at a multiple of kScaleBlock, and shares chunks with its like alone.
  bool moments8 = false;
};

// The product of `shape`. Malformed when a dimension is negative or the product
// or its size in bits does not fit 63 bits; the message names the shape.
Result<Elements> CountElements(const std::vector<int64_t>& shape, DType dtype);

}  // namespace castor

#endif  // CASTOR_CHUNK_PARAM_SPEC_H_
