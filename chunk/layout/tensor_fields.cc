// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/layout/tensor_fields.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <string>

#include "chunk/param_spec.h"
#include "chunk/text/did_you_mean.h"
#include "chunk/text/quote.h"

namespace castor {
namespace {

std::vector<std::string> DTypeNames() {
  std::vector<std::string> names;
  for (int i = 0; i <= static_cast<int>(DType::kC64); ++i) {
    names.emplace_back(DTypeName(static_cast<DType>(i)));
  }
  return names;
}

}  // namespace

Result<DType> ReadDType(std::string_view name, DTypeSpelling spelling) {
  const std::optional<DType> dtype = ParseDType(name);
  if (dtype &&
      (spelling == DTypeSpelling::kLenient || DTypeName(*dtype) == name)) {
    return *dtype;
  }
  return Malformed(fmt::format("dtype {} is unknown{}", Quoted(name),
                               SuggestName(name, DTypeNames())));
}

Status AppendDim(const JsonScalar& scalar, std::vector<int64_t>* shape) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  if (scalar.kind != JsonKind::kUnsigned || scalar.number > kMax) {
    return Malformed(
        fmt::format("its shape holds {}, and a dimension is a whole number "
                    "from 0 to {}",
                    JsonScalarText(scalar), kMax));
  }
  if (shape->size() == kMaxRank) {
    return Malformed(
        fmt::format("its shape has more than {} dimensions", kMaxRank));
  }
  shape->push_back(static_cast<int64_t>(scalar.number));
  return OkStatus();
}

Result<Bytes> TensorBytes(const std::vector<int64_t>& shape, DType dtype) {
  CASTOR_ASSIGN_OR_RETURN(const Elements count, CountElements(shape, dtype));
  const int bits = DTypeBits(dtype);
  // CountElements has checked that the size in bits does not overflow.
  if (count.count() * (bits % 8) % 8 != 0) {
    return Malformed(
        fmt::format("{} elements of {} ({} bits each) do not end on a byte",
                    count.count(), DTypeName(dtype), bits));
  }
  return BytesOf(count, dtype);
}

}  // namespace castor
