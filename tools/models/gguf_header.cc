// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/gguf_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/base/quote.h"
#include "chunk/base/units.h"
#include "chunk/param_spec.h"

namespace castor {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint64_t kFixedBytes = 24;  // magic, version and both counts
// The least that a key-value and a tensor take, with empty names.
constexpr uint64_t kLeastKeyValue = 8 + 4 + 1;
constexpr uint64_t kLeastTensor = 8 + 4 + 4 + 8;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 31;

Status BadTensor(std::string_view name, std::string_view why) {
  return Malformed(fmt::format("tensor {}: {}", Quoted(name), why));
}

Status CheckVersion(uint32_t version) {
  if (version == 2 || version == 3) return OkStatus();
  if (version == 1) {
    return InvalidArgument(
        "it is of GGUF version 1, which counts in 32 bits; 2 and 3 are read, "
        "so convert the model again, or give its config.json or .safetensors");
  }
  // A small number with its bytes in the other order.
  if (version != 0 && (version & 0xFFFF) == 0) {
    return InvalidArgument(
        "it is a GGUF file of a big-endian machine, and only little-endian "
        "ones are read; convert it with gguf_convert_endian.py of llama.cpp, "
        "or give the model's config.json or .safetensors");
  }
  return Malformed(fmt::format(
      "it says that it is of GGUF version {}; 2 and 3 are known", version));
}

// Shown as it is, so it must be the plain word that all writers use.
Status CheckArchitecture(std::string_view name) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  constexpr size_t kLongest = 64;
  if (name.size() <= kLongest &&
      name.find_first_not_of(kAllowed) == name.npos) {
    return OkStatus();
  }
  return Malformed(
      fmt::format("general.architecture is {}; it is a word of up to {} "
                  "letters, digits and ._-",
                  Quoted(name), kLongest));
}

class HeaderParser {
 public:
  HeaderParser(uint64_t size, const GgufBytes& read) : reader_(size, read) {}

  Result<GgufHeader> Parse() {
    Status status = ParseAll();
    if (status.ok()) return std::move(header_);
    // What the data's places are found to be has no byte of the header.
    if (status.code() != ErrorCode::kMalformed || in_places_) return status;
    return Malformed(
        fmt::format("{} (at byte {})", status.message(), reader_.at()));
  }

 private:
  Status ParseAll() {
    uint64_t tensors = 0;
    uint64_t key_values = 0;
    CASTOR_RETURN_IF_ERROR(ReadFixed(&tensors, &key_values));
    for (uint64_t i = 0; i < key_values; ++i) {
      CASTOR_RETURN_IF_ERROR(ReadKeyValue(i, key_values));
    }
    for (uint64_t i = 0; i < tensors; ++i) {
      CASTOR_RETURN_IF_ERROR(ReadTensor(i, tensors));
    }
    in_places_ = true;
    const uint64_t a = header_.alignment;
    header_.data_begin = (reader_.at() + a - 1) / a * a;
    return CheckPlaces();
  }

  Status ReadFixed(uint64_t* tensors, uint64_t* key_values) {
    if (reader_.left() < kFixedBytes) {
      return Malformed(
          fmt::format("it holds {} bytes; a GGUF file begins with {} bytes of "
                      "magic, version and counts",
                      reader_.left(), kFixedBytes));
    }
    CASTOR_ASSIGN_OR_RETURN(const uint32_t magic, reader_.U32("the magic"));
    std::string text;
    for (int i = 0; i < 4; ++i) text += static_cast<char>(magic >> 8 * i);
    if (text == "vers") {
      return Malformed(
          "it is a Git LFS pointer, not the file it stands for; fetch that "
          "with git lfs pull");
    }
    if (text != kMagic) {
      return Malformed(
          fmt::format("it begins with {} where {} belongs; it is no GGUF file",
                      Quoted(text), Quoted(kMagic)));
    }
    CASTOR_ASSIGN_OR_RETURN(header_.version, reader_.U32("the version"));
    CASTOR_RETURN_IF_ERROR(CheckVersion(header_.version));
    CASTOR_ASSIGN_OR_RETURN(*tensors, reader_.U64("the number of tensors"));
    CASTOR_ASSIGN_OR_RETURN(*key_values,
                            reader_.U64("the number of key-values"));
    const uint64_t left = reader_.left();
    if (*tensors > left / kLeastTensor ||
        *key_values > (left - *tensors * kLeastTensor) / kLeastKeyValue) {
      return Malformed(fmt::format(
          "it says that it holds {} tensors and {} key-values, but only {} "
          "bytes follow; it is cut short or damaged",
          *tensors, *key_values, left));
    }
    return OkStatus();
  }

  Status ReadKeyValue(uint64_t i, uint64_t count) {
    const std::string where = fmt::format("key {} of {}", i + 1, count);
    CASTOR_ASSIGN_OR_RETURN(std::string key,
                            reader_.String(kMaxGgufKey, where));
    if (key.empty()) return Malformed(where + " is empty");
    const std::string what = fmt::format("the value of {}", Quoted(key));
    if (!keys_.insert(key).second) {
      return Malformed(fmt::format("key {} is given twice", Quoted(key)));
    }
    CASTOR_ASSIGN_OR_RETURN(const GgufType type, reader_.Type(what));
    if (key == "general.architecture") {
      CASTOR_RETURN_IF_ERROR(ReadText(type, what, &header_.architecture));
      return CheckArchitecture(header_.architecture);
    }
    if (key == "general.name") return ReadText(type, what, &header_.name);
    if (key == "split.count") {
      return ReadNumber(type, what, &header_.split_count);
    }
    if (key == "split.no") return ReadNumber(type, what, &header_.split_number);
    if (key == "general.alignment") {
      CASTOR_RETURN_IF_ERROR(ReadNumber(type, what, &header_.alignment));
      if (std::has_single_bit(header_.alignment) &&
          header_.alignment <= kMaxAlignment) {
        return OkStatus();
      }
      return Malformed(fmt::format("{} is {}; it is a power of two up to {}",
                                   what, header_.alignment, kMaxAlignment));
    }
    return reader_.SkipValue(type, what);
  }

  Status ReadText(GgufType type, const std::string& what, std::string* text) {
    if (type != GgufType::kString) {
      return Malformed(fmt::format("{} is of type {} where a string belongs",
                                   what, GgufTypeName(type)));
    }
    CASTOR_ASSIGN_OR_RETURN(*text, reader_.String(kMaxGgufKey, what));
    return OkStatus();
  }

  Status ReadNumber(GgufType type, const std::string& what, uint64_t* number) {
    CASTOR_ASSIGN_OR_RETURN(*number, reader_.Unsigned(type, what));
    return OkStatus();
  }

  Status ReadTensor(uint64_t i, uint64_t count) {
    const std::string where = fmt::format("tensor {} of {}", i + 1, count);
    GgufTensor tensor;
    CASTOR_ASSIGN_OR_RETURN(tensor.name, reader_.String(kMaxGgufKey, where));
    if (tensor.name.empty()) return Malformed(where + " has an empty name");
    const std::string what = "tensor " + Quoted(tensor.name);
    if (!names_.insert(tensor.name).second) {
      return Malformed(what + " is listed twice; names are unique");
    }
    CASTOR_ASSIGN_OR_RETURN(const uint32_t rank, reader_.U32(what));
    if (rank > kMaxGgufRank) {
      return BadTensor(tensor.name,
                       fmt::format("it has {} dimensions; ggml knows up to {}",
                                   rank, kMaxGgufRank));
    }
    for (uint32_t d = 0; d < rank; ++d) {
      CASTOR_ASSIGN_OR_RETURN(const uint64_t dim, reader_.U64(what));
      if (dim > std::numeric_limits<int64_t>::max()) {
        return BadTensor(tensor.name,
                         fmt::format("its dimension {} is above {}", dim,
                                     std::numeric_limits<int64_t>::max()));
      }
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(dim));
    }
    CASTOR_ASSIGN_OR_RETURN(const uint32_t type, reader_.U32(what));
    tensor.type = FindGgmlType(type);
    if (tensor.type == nullptr) {
      return BadTensor(tensor.name, fmt::format("its ggml type {} is {}", type,
                                                MissingGgmlType(type)));
    }
    CASTOR_ASSIGN_OR_RETURN(tensor.offset, reader_.U64(what));
    CASTOR_RETURN_IF_ERROR(SetBytes(&tensor));
    header_.tensors.push_back(std::move(tensor));
    return OkStatus();
  }

  Status SetBytes(GgufTensor* tensor) const {
    const GgmlType& type = *tensor->type;
    const Result<Elements> count =
        CountElements(tensor->shape, type.plain.value_or(DType::kBF16));
    if (!count.ok()) return BadTensor(tensor->name, count.status().message());
    const int64_t row = tensor->shape.empty() ? 1 : tensor->shape.back();
    if (row % type.block_elements != 0) {
      return BadTensor(
          tensor->name,
          fmt::format("its rows of {} elements are no whole number of {}'s "
                      "blocks of {}",
                      row, type.name, type.block_elements));
    }
    // A plain element takes the bits that CountElements has checked, one of a
    // block fewer than the 16 of BF16.
    tensor->bytes = static_cast<uint64_t>(count->count() / type.block_elements *
                                          type.block_bytes);
    if (tensor->offset % header_.alignment != 0) {
      return BadTensor(tensor->name,
                       fmt::format("its offset {} is no multiple of the "
                                   "alignment {}",
                                   tensor->offset, header_.alignment));
    }
    return OkStatus();
  }

  // Inside the file, and none on another.
  Status CheckPlaces() const {
    const uint64_t end_of_file = reader_.at() + reader_.left();
    const uint64_t data =
        end_of_file > header_.data_begin ? end_of_file - header_.data_begin : 0;
    std::vector<const GgufTensor*> by_place;
    for (const GgufTensor& tensor : header_.tensors) {
      if (tensor.bytes > data || tensor.offset > data - tensor.bytes) {
        return BadTensor(
            tensor.name,
            fmt::format("its {} bytes begin at byte {} of the data, but the "
                        "file holds only {} bytes of data; it is cut short, so "
                        "copy or download it again",
                        tensor.bytes, tensor.offset, data));
      }
      by_place.push_back(&tensor);
    }
    std::sort(by_place.begin(), by_place.end(),
              [](const GgufTensor* a, const GgufTensor* b) {
                return std::tie(a->offset, a->bytes, a->name) <
                       std::tie(b->offset, b->bytes, b->name);
              });
    for (size_t i = 1; i < by_place.size(); ++i) {
      const GgufTensor& before = *by_place[i - 1];
      const GgufTensor& tensor = *by_place[i];
      if (tensor.offset < before.offset + before.bytes) {
        return BadTensor(
            tensor.name,
            fmt::format("its data begins at byte {}, but {} ends at byte {}: "
                        "an overlap of {} bytes",
                        tensor.offset, Quoted(before.name),
                        before.offset + before.bytes,
                        before.offset + before.bytes - tensor.offset));
      }
    }
    return OkStatus();
  }

  GgufReader reader_;
  GgufHeader header_;
  std::unordered_set<std::string> keys_;
  std::unordered_set<std::string> names_;
  bool in_places_ = false;
};

}  // namespace

Result<GgufHeader> ParseGgufHeader(uint64_t size, const GgufBytes& read) {
  return HeaderParser(size, read).Parse();
}

Result<GgufHeader> ReadGgufHeader(const InputFile& file) {
  Result<GgufHeader> header =
      ParseGgufHeader(file.size(), [&](uint64_t offset, uint64_t length) {
        return file.ReadAt(offset, length);
      });
  if (!header.ok()) {
    return header.status().WithContext(QuotedPath(file.path()));
  }
  return header;
}

}  // namespace castor
