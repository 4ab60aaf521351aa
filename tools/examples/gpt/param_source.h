// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_PARAM_SOURCE_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_PARAM_SOURCE_H_

// Part of the model (model.h). How a model reaches its parameters: it holds the
// ones an operation needs just around it, and hands back gradients as they
// become complete. Where the bytes live, and in which dtype, is the source's
// business; the model computes in T. Not thread-safe: one model, one thread,
// one source.

#include <array>
#include <initializer_list>
#include <span>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"

namespace castor::gpt {

enum class GradUse : uint8_t {
  kMoreToCome,  // the parameter is used again: another gradient follows
  kComplete,    // the micro-batch's gradient of this parameter is all there
};

template <typename T>
class ParamSource {
 public:
  virtual ~ParamSource() = default;

  // values[i] = the values of params[i], row-major, until Release. REQUIRES:
  // nothing held.
  virtual Status Hold(std::span<const ParamId> params,
                      std::span<const T*> values) = 0;
  virtual void Release() = 0;

  // Where to add to the gradient of `param`, until CloseGrad. Several may be
  // open.
  virtual Result<T*> OpenGrad(ParamId param) = 0;
  virtual Status CloseGrad(ParamId param, GradUse use) = 0;

  // Gradients are written over their parameters: these are released before,
  // and not held again until the step.
  virtual bool grads_in_place() const { return false; }
};

// Parameters held until the end of its life. Move-only.
template <typename T>
class Held {
 public:
  static constexpr size_t kMost = 2;

  static Result<Held> Hold(ParamSource<T>& source,
                           std::initializer_list<ParamId> params) {
    CASTOR_CHECK_LE(params.size(), kMost);
    Held held;
    CASTOR_RETURN_IF_ERROR(
        source.Hold(std::span(params.begin(), params.size()),
                    std::span(held.values_).first(params.size())));
    held.source_ = &source;
    return held;
  }

  Held(Held&& other) noexcept
      : source_(std::exchange(other.source_, nullptr)),
        values_(other.values_) {}
  Held& operator=(Held&&) = delete;
  ~Held() {
    if (source_ != nullptr) source_->Release();
  }

  const T* operator[](size_t i) const { return values_[i]; }

 private:
  Held() = default;

  ParamSource<T>* source_ = nullptr;
  std::array<const T*, kMost> values_{};
};

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_PARAM_SOURCE_H_
