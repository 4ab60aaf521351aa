// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_CHUNK_RANDOM_LAYOUT_H_
#define CASTOR_TESTS_CHUNK_RANDOM_LAYOUT_H_

// Models with everything a layout can hold, packed: several types, frozen,
// empty, scalar and oversize parameters. Pure functions of the generator.

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/layout_file.h"
#include "chunk/param_spec.h"

namespace castor {

// Below `limit`.
inline int64_t Draw(std::mt19937_64& random, int64_t limit) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(limit));
}

inline LayoutFile RandomLayoutFile(std::mt19937_64& random) {
  const std::vector<std::string> names = {"layer",     "größe", "a\"b\\c",
                                          "tab\there", "\x7f",  "模型"};
  const DType dtypes[] = {DType::kF32, DType::kBF16, DType::kF4};
  std::vector<ParamSpec> params(static_cast<size_t>(Draw(random, 24)));
  for (size_t i = 0; i < params.size(); ++i) {
    ParamSpec& param = params[i];
    param.name =
        names[static_cast<size_t>(Draw(random, 6))] + "." + std::to_string(i);
    for (int64_t d = Draw(random, 4); d > 0; --d) {
      param.shape.push_back(Draw(random, 12));
    }
    if (Draw(random, 4) == 0) param.shape.push_back(1 + Draw(random, 900));
    param.dtype = dtypes[Draw(random, 3)];
    param.trainable = Draw(random, 4) != 0;
  }
  PackOptions pack;
  pack.world = static_cast<int>(1 + Draw(random, 4));
  pack.align = Elements(64) * (1 + Draw(random, 3));
  if (pack.align == kScaleBlock) {
    for (ParamSpec& param : params) param.moments8 = Draw(random, 2) == 0;
  }
  std::vector<Elements> sizes;
  for (size_t g = 0; g < GroupParams(params).size(); ++g) {
    sizes.push_back(ChunkQuantum(pack.world) * (1 + Draw(random, 5)));
  }
  ChunkLayout layout = PackChunks(params, sizes, pack).value();
  return {std::move(params), std::move(layout)};
}

}  // namespace castor

#endif  // CASTOR_TESTS_CHUNK_RANDOM_LAYOUT_H_
