// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/param_writer.h"

#include <fmt/format.h>

#include <utility>

namespace castor {

ParamWriter::ParamWriter(DType dtype, std::vector<ParamSpec>* params)
    : dtype_(dtype), params_(params) {}

void ParamWriter::Add(std::string name, std::vector<int64_t> shape) {
  params_->push_back({std::move(name), std::move(shape), dtype_});
}

void ParamWriter::Linear(const std::string& name, int64_t in, int64_t out,
                         bool bias) {
  Add(name + ".weight", {out, in});
  if (bias) Add(name + ".bias", {out});
}

void ParamWriter::Conv1d(const std::string& name, int64_t in, int64_t out) {
  Add(name + ".weight", {in, out});
  Add(name + ".bias", {out});
}

void ParamWriter::RmsNorm(const std::string& name, int64_t width) {
  Add(name + ".weight", {width});
}

void ParamWriter::LayerNorm(const std::string& name, int64_t width) {
  Add(name + ".weight", {width});
  Add(name + ".bias", {width});
}

void ParamWriter::GatedMlp(const std::string& prefix, int64_t width,
                           int64_t inner, bool bias) {
  Linear(prefix + "gate_proj", width, inner, bias);
  Linear(prefix + "up_proj", width, inner, bias);
  Linear(prefix + "down_proj", inner, width, bias);
}

void ParamWriter::Experts(const std::string& name, const ExpertSizes& sizes,
                          ExpertLayout layout, ExpertNames names) {
  const auto& [count, width, inner] = sizes;
  if (layout == ExpertLayout::kFused) {
    Add(name + ".gate_up_proj", {count, 2 * inner, width});
    Add(name + ".down_proj", {count, width, inner});
    return;
  }
  for (int64_t expert = 0; expert < count; ++expert) {
    const std::string prefix = fmt::format("{}.{}.", name, expert);
    if (names == ExpertNames::kProjections) {
      GatedMlp(prefix, width, inner);
    } else {
      Linear(prefix + "w1", width, inner);
      Linear(prefix + "w2", inner, width);
      Linear(prefix + "w3", width, inner);
    }
  }
}

}  // namespace castor
