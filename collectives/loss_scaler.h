// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_LOSS_SCALER_H_
#define CASTOR_COLLECTIVES_LOSS_SCALER_H_

// The factor that a trainer multiplies its loss by, so that small gradients do
// not vanish in fp16, and how it follows overflows (Micikevicius et al. 2018,
// "Mixed Precision Training"): it grows after so many steps without one and
// falls at one. What is updated does not depend on it: gradients are divided by
// it again. Thread-compatible.

#include <cstdint>

#include "chunk/base/status.h"

namespace castor {

enum class LossScalingKind : uint8_t {
  // The loss is not scaled. An overflow is found, and its step skipped, only
  // where the norm is counted: clipped, or with ZeroOptions::count_norm.
  kNone,
  kStatic,   // by `initial`, always
  kDynamic,  // from `initial` on
};

struct LossScaling {
  LossScalingKind kind = LossScalingKind::kNone;
  double initial = 65536;
  double growth = 2;  // factor after `growth_interval` clean steps
  int64_t growth_interval = 2000;
  double backoff = 0.5;  // factor at an overflow
  // The scale falls at this overflow since it last grew and at every one after
  // it: a single one may be the data's fault.
  int32_t hysteresis = 1;
  double least = 1;
  double most = 4294967296.0;  // 2^32
};

// InvalidArgument, with the numbers, where scaling has no meaning.
Status CheckLossScaling(const LossScaling& scaling);

// All that a scaler knows and its options do not: for checkpoints.
struct LossScaleState {
  double scale = 1;
  int64_t clean_steps = 0;     // since it grew or an overflow came
  int32_t overflows_left = 1;  // until it falls
  int64_t skipped_steps = 0;   // since the start

  friend bool operator==(const LossScaleState&,
                         const LossScaleState&) = default;
};

class LossScaler {
 public:
  // REQUIRES: CheckLossScaling is ok.
  explicit LossScaler(const LossScaling& scaling);

  // Whether steps with an overflow are skipped, also without clipping.
  bool looks_for_overflow() const {
    return scaling_.kind != LossScalingKind::kNone;
  }
  double scale() const { return state_.scale; }
  const LossScaleState& state() const { return state_; }
  // A scale that is not dynamic stays as the options say. InvalidArgument
  // where a run of these options never has such a state.
  Status Restore(const LossScaleState& state);

  // A step is over. Returns false where the scale would fall and is as low as
  // it may be: gradients overflow at any scale.
  bool Update(bool overflowed);

 private:
  LossScaling scaling_;
  LossScaleState state_;
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_LOSS_SCALER_H_
