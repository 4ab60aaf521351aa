// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_MODEL_GPT_PARAMS_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_MODEL_GPT_PARAMS_H_

// Part of the model (model.h). The parameters of a GPT-2: which there are, in
// initialization order, with the names and shapes that GPT-2's own checkpoints
// use (weights are [in, out]). The head is tied to the token embedding, so it
// is no parameter of its own. Values, immutable.

#include <cstdint>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/param_spec.h"

namespace castor::gpt {

struct GptConfig {
  int vocab = 256;  // bytes
  int context = 256;
  int layers = 9;
  int heads = 8;
  int embd = 512;
};

// InvalidArgument, naming the field, where a model cannot be that.
Status Validate(const GptConfig& config);

enum class InitialValue : uint8_t {
  kZero,
  kOne,
  kNormal,    // standard deviation 0.02
  kResidual,  // the same over sqrt(2 * layers): what is added to the residual
};

struct GptParam {
  std::string name;
  std::vector<int64_t> shape;
  InitialValue initial = InitialValue::kZero;

  int64_t elements() const;
  // Norms and biases are none.
  bool is_matrix() const { return shape.size() > 1; }
};

// Of a block.
inline constexpr int kBlockParams = 12;

class GptParams {
 public:
  // REQUIRES: a valid config.
  explicit GptParams(const GptConfig& config);

  // By ParamId.
  const std::vector<GptParam>& all() const { return params_; }
  const GptParam& param(ParamId id) const { return params_[id.index()]; }
  int64_t elements() const;

  ParamId token_embedding() const { return ParamId(0); }
  ParamId position_embedding() const { return ParamId(1); }
  // The block's parameter of that number, in initialization order.
  ParamId block(int layer, int number) const {
    return ParamId(2 + kBlockParams * layer + number);
  }
  ParamId final_ln_weight() const { return block(layers_, 0); }
  ParamId final_ln_bias() const { return block(layers_, 1); }

 private:
  int layers_;
  std::vector<GptParam> params_;
};

// As the trainer registers them. REQUIRES: a valid config.
std::vector<ParamSpec> SpecsOf(const GptConfig& config, DType dtype);

// Random numbers are by counter. A value depends on the seed and on what it is
// for, never on who asks or in what order. So any rank can make any range of a
// parameter.

// 64 random bits for the counter (stream, index).
uint64_t RandomBits(uint64_t seed, uint64_t stream, uint64_t index);

// Elements [begin, end) of the initial values of parameter `id`.
void FillInitialValues(const GptConfig& config, const GptParam& param,
                       ParamId id, uint64_t seed, int64_t begin, int64_t end,
                       float* out);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_MODEL_GPT_PARAMS_H_
