// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_BENCH_SUPPORT_MODEL_SHAPES_H_
#define CASTOR_TOOLS_BENCH_SUPPORT_MODEL_SHAPES_H_

// Parameter lists of public model families, by formula, in the registration
// order of their reference code; for benchmarks and for tests that want real
// shapes without a file. Pure functions, thread-safe.

#include <cstdint>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/param_spec.h"

namespace castor {

struct Gpt2Shape {
  int64_t layers = 48;
  int64_t hidden = 1600;
  int64_t vocabulary = 50257;
  int64_t positions = 1024;
};

struct LlamaShape {
  int64_t layers = 32;
  int64_t hidden = 4096;
  int64_t kv_hidden = 1024;  // key and value heads times their width
  int64_t mlp = 14336;
  int64_t vocabulary = 128256;
};

// GPT-2 XL by default; 12 tensors a layer and 4 more, the head tied.
std::vector<ParamSpec> Gpt2Params(const Gpt2Shape& shape, DType dtype);

// Llama-3-8B by default; 9 tensors a layer and 3 more.
std::vector<ParamSpec> LlamaParams(const LlamaShape& shape, DType dtype);
LlamaShape Llama3With70B();

// 45,395 tensors with the shapes of DeepSeek-V3, as its files count them (58 of
// them are buffers): 61 layers, the first 3 dense, the others with 256 routed
// experts each.
std::vector<ParamSpec> DeepSeekV3Params(DType dtype);

// `count` one-dimensional tensors of 1 to `largest` elements, evenly drawn.
std::vector<ParamSpec> RandomParams(int64_t count, int64_t largest,
                                    uint64_t seed, DType dtype);

}  // namespace castor

#endif  // CASTOR_TOOLS_BENCH_SUPPORT_MODEL_SHAPES_H_
