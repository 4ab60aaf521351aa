// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/plain_params.h"

#include <algorithm>

#include "tools/examples/gpt/initial_values.h"

namespace castor::gpt {

template <typename T>
PlainParams<T>::PlainParams(const GptConfig& config, Precision precision,
                            uint64_t seed)
    : precision_(precision) {
  const GptParams params(config);
  arrays_.resize(params.all().size());
  open_.resize(params.all().size());
  for (int32_t i = 0; i < size(); ++i) {
    const ParamId id(i);
    const GptParam& param = params.param(id);
    std::vector<float> initial(static_cast<size_t>(param.elements()));
    FillInitialValues(config, param, id, seed, 0, param.elements(),
                      initial.data());
    Arrays& arrays = arrays_[id.index()];
    arrays.values.assign(initial.begin(), initial.end());
    if (precision == Precision::kBf16) {
      arrays.master = arrays.values;
      RoundFromMaster(id);
    }
  }
}

template <typename T>
T PlainParams<T>::Round(T value) const {
  if (precision_ == Precision::kFull) return value;
  return static_cast<T>(WidenBf16(RoundToBf16(static_cast<float>(value))));
}

template <typename T>
std::span<T> PlainParams<T>::master(ParamId param) {
  Arrays& arrays = arrays_[param.index()];
  return precision_ == Precision::kFull ? arrays.values : arrays.master;
}

template <typename T>
void PlainParams<T>::RoundFromMaster(ParamId param) {
  if (precision_ == Precision::kFull) return;
  Arrays& arrays = arrays_[param.index()];
  std::transform(arrays.master.begin(), arrays.master.end(),
                 arrays.values.begin(), [this](T x) { return Round(x); });
}

template <typename T>
void PlainParams<T>::BeginMicroBatch(bool first) {
  first_ = first;
  for (Arrays& arrays : arrays_) {
    (first ? arrays.sum : arrays.part).assign(arrays.values.size(), T{0});
  }
}

template <typename T>
void PlainParams<T>::EndMicroBatch() {
  if (first_) return;
  for (Arrays& arrays : arrays_) {
    for (size_t i = 0; i < arrays.sum.size(); ++i) {
      arrays.sum[i] = Round(arrays.sum[i] + arrays.part[i]);
    }
  }
}

template <typename T>
std::vector<T>& PlainParams<T>::Place(ParamId param) {
  Arrays& arrays = arrays_[param.index()];
  return first_ ? arrays.sum : arrays.part;
}

template <typename T>
Status PlainParams<T>::Hold(std::span<const ParamId> params,
                            std::span<const T*> values) {
  for (size_t i = 0; i < params.size(); ++i) {
    values[i] = arrays_[params[i].index()].values.data();
  }
  return OkStatus();
}

template <typename T>
Result<T*> PlainParams<T>::OpenGrad(ParamId param) {
  if (precision_ == Precision::kFull) return Place(param).data();
  std::vector<T>& open = open_[param.index()];
  open.assign(arrays_[param.index()].values.size(), T{0});
  return open.data();
}

template <typename T>
Status PlainParams<T>::CloseGrad(ParamId param, GradUse) {
  if (precision_ == Precision::kFull) return OkStatus();
  std::vector<T>& place = Place(param);
  std::vector<T>& open = open_[param.index()];
  for (size_t i = 0; i < place.size(); ++i) {
    place[i] = Round(place[i] + open[i]);
  }
  std::vector<T>().swap(open);
  return OkStatus();
}

template class PlainParams<float>;
template class PlainParams<double>;

}  // namespace castor::gpt
