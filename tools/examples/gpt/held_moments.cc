// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/held_moments.h"

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/status.h"
#include "tools/examples/gpt/model.h"
#include "tools/examples/gpt/param_source.h"

namespace castor::gpt {
namespace {

// Serves every parameter from the same few zeros and writes down what is asked.
class Observer final : public ParamSource<double> {
 public:
  explicit Observer(bool in_place) : in_place_(in_place) {}

  Status Hold(std::span<const ParamId> params,
              std::span<const double*> values) override {
    now_.params.assign(params.begin(), params.end());
    for (const double*& value : values) value = zeros_.data();
    moments_.push_back(now_);
    return OkStatus();
  }
  void Release() override { now_.params.clear(); }

  Result<double*> OpenGrad(ParamId param) override {
    std::erase(now_.grads, param);
    now_.grads.push_back(param);
    moments_.push_back(now_);
    return gradient_.data();
  }
  Status CloseGrad(ParamId param, GradUse use) override {
    if (use == GradUse::kComplete) std::erase(now_.grads, param);
    return OkStatus();
  }

  bool grads_in_place() const override { return in_place_; }

  std::vector<HeldMoment> Take() { return std::move(moments_); }

 private:
  const bool in_place_;
  // Of the model below, no parameter has more elements.
  std::array<double, 4> zeros_{};
  std::array<double, 4> gradient_{};
  HeldMoment now_;
  std::vector<HeldMoment> moments_;
};

}  // namespace

std::vector<HeldMoment> HeldMoments(const GptConfig& config, bool in_place) {
  const GptConfig narrow = {
      .vocab = 1, .context = 1, .layers = config.layers, .heads = 1, .embd = 1};
  Gpt<double> model(narrow, 1);
  Observer observer(in_place);
  const std::array<int, 1> token = {0};
  CASTOR_CHECK(model.Forward(observer, token, token).ok());
  CASTOR_CHECK(model.Backward(observer).ok());
  return observer.Take();
}

}  // namespace castor::gpt
