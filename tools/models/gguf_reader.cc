// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/gguf_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace castor {
namespace {

constexpr uint64_t kBlock = uint64_t{64} << 10;
constexpr uint64_t kStringHead = 8;  // its length
constexpr uint64_t kArrayHead = 12;  // element type and count

struct TypeFacts {
  std::string_view name;
  uint64_t bytes;  // of a value; for those of variable size, the least
};

constexpr std::array<TypeFacts, 13> kTypes = {{{"u8", 1},
                                               {"i8", 1},
                                               {"u16", 2},
                                               {"i16", 2},
                                               {"u32", 4},
                                               {"i32", 4},
                                               {"f32", 4},
                                               {"bool", 1},
                                               {"string", kStringHead},
                                               {"array", kArrayHead},
                                               {"u64", 8},
                                               {"i64", 8},
                                               {"f64", 8}}};

const TypeFacts& FactsOf(GgufType type) {
  return kTypes[static_cast<size_t>(type)];
}

uint64_t LittleEndian(std::string_view bytes) {
  uint64_t number = 0;
  for (size_t i = bytes.size(); i-- > 0;) {
    number = number << 8 | static_cast<uint8_t>(bytes[i]);
  }
  return number;
}

}  // namespace

std::string_view GgufTypeName(GgufType type) { return FactsOf(type).name; }

Status GgufReader::CheckLeft(uint64_t length, std::string_view what) const {
  if (length > left()) {
    return Malformed(
        fmt::format("{} needs {} bytes, but only {} are left in the file; it "
                    "is cut short or no GGUF file",
                    what, length, left()));
  }
  if (length > kMaxGgufHeader - at_) {
    return Malformed(fmt::format(
        "{} brings the header to more than {} bytes, which is refused", what,
        kMaxGgufHeader));
  }
  return OkStatus();
}

Result<std::string_view> GgufReader::Take(uint64_t length,
                                          std::string_view what) {
  CASTOR_RETURN_IF_ERROR(CheckLeft(length, what));
  const bool here =
      at_ >= block_at_ && at_ + length <= block_at_ + block_.size();
  if (!here) {
    const uint64_t wanted = std::min(std::max(length, kBlock), left());
    CASTOR_ASSIGN_OR_RETURN(block_, (*read_)(at_, wanted));
    block_at_ = at_;
  }
  const std::string_view taken =
      std::string_view(block_).substr(at_ - block_at_, length);
  at_ += length;
  return taken;
}

Status GgufReader::Pass(uint64_t length, std::string_view what) {
  CASTOR_RETURN_IF_ERROR(CheckLeft(length, what));
  at_ += length;
  return OkStatus();
}

Result<uint32_t> GgufReader::U32(std::string_view what) {
  CASTOR_ASSIGN_OR_RETURN(const std::string_view bytes, Take(4, what));
  return static_cast<uint32_t>(LittleEndian(bytes));
}

Result<uint64_t> GgufReader::U64(std::string_view what) {
  CASTOR_ASSIGN_OR_RETURN(const std::string_view bytes, Take(8, what));
  return LittleEndian(bytes);
}

Result<std::string> GgufReader::String(uint64_t limit, std::string_view what) {
  CASTOR_ASSIGN_OR_RETURN(const uint64_t length, U64(what));
  CASTOR_RETURN_IF_ERROR(CheckLeft(length, what));
  if (length > limit) {
    return Malformed(fmt::format("{} is {} bytes long; more than {} is refused",
                                 what, length, limit));
  }
  CASTOR_ASSIGN_OR_RETURN(const std::string_view bytes, Take(length, what));
  return std::string(bytes);
}

Result<GgufType> GgufReader::Type(std::string_view what) {
  CASTOR_ASSIGN_OR_RETURN(const uint32_t number, U32(what));
  if (number >= kTypes.size()) {
    return Malformed(
        fmt::format("{} has the unknown type {}; known are 0 to "
                    "{}",
                    what, number, kTypes.size() - 1));
  }
  return static_cast<GgufType>(number);
}

Result<uint64_t> GgufReader::Unsigned(GgufType type, std::string_view what) {
  const bool is_signed = type == GgufType::kI8 || type == GgufType::kI16 ||
                         type == GgufType::kI32 || type == GgufType::kI64;
  const bool is_unsigned = type == GgufType::kU8 || type == GgufType::kU16 ||
                           type == GgufType::kU32 || type == GgufType::kU64;
  if (!is_signed && !is_unsigned) {
    return Malformed(
        fmt::format("{} is of type {} where a whole number "
                    "belongs",
                    what, GgufTypeName(type)));
  }
  const uint64_t bytes = FactsOf(type).bytes;
  CASTOR_ASSIGN_OR_RETURN(const std::string_view text, Take(bytes, what));
  const uint64_t number = LittleEndian(text);
  if (is_signed && number >> (8 * bytes - 1) != 0) {
    return Malformed(fmt::format("{} is negative", what));
  }
  return number;
}

Status GgufReader::SkipValue(GgufType type, std::string_view what) {
  switch (type) {
    case GgufType::kString: {
      CASTOR_ASSIGN_OR_RETURN(const uint64_t length, U64(what));
      return Pass(length, what);
    }
    case GgufType::kArray:
      return SkipArray(1, what);
    case GgufType::kBool:
      return SkipBools(1, what);
    default:
      return Pass(FactsOf(type).bytes, what);
  }
}

Status GgufReader::SkipArray(int depth, std::string_view what) {
  if (depth > kMaxGgufDepth) {
    return Malformed(
        fmt::format("{} nests arrays more than {} deep", what, kMaxGgufDepth));
  }
  CASTOR_ASSIGN_OR_RETURN(const GgufType type, Type(what));
  CASTOR_ASSIGN_OR_RETURN(const uint64_t count, U64(what));
  const uint64_t least = FactsOf(type).bytes;
  if (count > left() / least) {
    return Malformed(fmt::format(
        "{} says that it holds {} values of type {}, but only {} bytes are "
        "left in the file",
        what, count, GgufTypeName(type), left()));
  }
  if (type == GgufType::kBool) return SkipBools(count, what);
  if (type != GgufType::kString && type != GgufType::kArray) {
    return Pass(count * least, what);
  }
  for (uint64_t i = 0; i < count; ++i) {
    CASTOR_RETURN_IF_ERROR(type == GgufType::kArray ? SkipArray(depth + 1, what)
                                                    : SkipValue(type, what));
  }
  return OkStatus();
}

Status GgufReader::SkipBools(uint64_t count, std::string_view what) {
  for (uint64_t i = 0; i < count; ++i) {
    CASTOR_ASSIGN_OR_RETURN(const std::string_view byte, Take(1, what));
    if (static_cast<uint8_t>(byte[0]) > 1) {
      return Malformed(
          fmt::format("{} holds the bool {}; a bool is 0 or 1", what,
                      static_cast<int>(static_cast<uint8_t>(byte[0]))));
    }
  }
  return OkStatus();
}

}  // namespace castor
