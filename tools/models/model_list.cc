// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/model_list.h"

#include <cstddef>

namespace castor {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// The run of digits at `*at`, without leading zeros; moves `*at` past it.
std::string_view TakeNumber(std::string_view text, size_t* at) {
  while (*at < text.size() && text[*at] == '0') ++*at;
  const size_t begin = *at;
  while (*at < text.size() && IsDigit(text[*at])) ++*at;
  return text.substr(begin, *at - begin);
}

}  // namespace

std::string_view ParamOrderName(ParamOrder order) {
  switch (order) {
    case ParamOrder::kFamily:
      return "family";
    case ParamOrder::kFile:
      return "file";
    case ParamOrder::kNatural:
      return "natural";
    case ParamOrder::kTrace:
      return "trace";
  }
  return "unknown";
}

std::string_view ExpertLayoutName(ExpertLayout layout) {
  return layout == ExpertLayout::kFused ? "fused" : "per-expert";
}

bool NaturalLess(std::string_view a, std::string_view b) {
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (IsDigit(a[i]) && IsDigit(b[j])) {
      const std::string_view x = TakeNumber(a, &i);
      const std::string_view y = TakeNumber(b, &j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
      continue;
    }
    if (a[i] != b[j]) {
      return static_cast<unsigned char>(a[i]) <
             static_cast<unsigned char>(b[j]);
    }
    ++i;
    ++j;
  }
  if (i < a.size() || j < b.size()) return i == a.size();
  // Alike but for leading zeros.
  return a < b;
}

}  // namespace castor
