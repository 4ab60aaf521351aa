// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/layout/safetensors_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <unordered_set>

#include "chunk/layout/tensor_fields.h"
#include "chunk/text/did_you_mean.h"
#include "chunk/text/json_value.h"
#include "chunk/text/quote.h"
#include "chunk/text/strict_json.h"

namespace castor {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr std::string_view kMetadata = "__metadata__";

Status BadTensor(std::string_view name, std::string_view why) {
  return Malformed(fmt::format("tensor {}: {}", Quoted(name), why));
}

// The document's depth decides what an event means: 1 a tensor, 2 a field of
// it, 3 a dimension or an offset.
class HeaderHandler final : public JsonHandler {
 public:
  SafetensorsHeader Take() { return std::move(header_); }

  Status Open(const JsonPath& path, JsonContainer container) override {
    const bool object = container == JsonContainer::kObject;
    if (path.size() <= 1) {
      if (!object) {
        return Malformed(fmt::format("{} is an array where an object belongs",
                                     JsonPathText(path)));
      }
      if (path.size() == 1) BeginTensor(path[0].key);
      return OkStatus();
    }
    if (in_metadata_) return BadMetadata(path);
    CASTOR_RETURN_IF_ERROR(KnownField(path[1].key));
    const bool list = path[1].key == "shape" || path[1].key == "data_offsets";
    if (object || !list || path.size() > 2) {
      return BadTensor(
          entry_.name,
          fmt::format("its {} holds {} where none belongs", path[1].key,
                      object ? "an object" : "an array"));
    }
    (path[1].key == "shape" ? has_shape_ : has_offsets_) = true;
    return OkStatus();
  }

  Status Close(const JsonPath& path) override {
    if (path.size() != 1 || in_metadata_) return OkStatus();
    std::string_view missing;
    if (!has_dtype_) missing = "dtype";
    if (!has_shape_) missing = "shape";
    if (!has_offsets_) missing = "data_offsets";
    if (!missing.empty()) {
      return BadTensor(entry_.name, fmt::format("it has no {}", missing));
    }
    if (offsets_ != 2) {
      return BadTensor(
          entry_.name,
          fmt::format("its data_offsets are {} numbers, not 2", offsets_));
    }
    header_.entries.push_back(std::move(entry_));
    return OkStatus();
  }

  Status Scalar(const JsonPath& path, const JsonScalar& scalar) override {
    if (path.size() <= 1) {
      return Malformed(fmt::format("{} is {} where an object belongs",
                                   JsonPathText(path), JsonScalarText(scalar)));
    }
    if (in_metadata_) {
      if (scalar.kind != JsonKind::kString) return BadMetadata(path);
      header_.metadata.emplace_back(path[1].key, scalar.text);
      return OkStatus();
    }
    const std::string& field = path[1].key;
    CASTOR_RETURN_IF_ERROR(KnownField(field));
    const Status status = path.size() == 2   ? SetField(field, scalar)
                          : field == "shape" ? AppendDim(scalar, &entry_.shape)
                                             : SetOffset(scalar);
    return status.ok() ? status : BadTensor(entry_.name, status.message());
  }

 private:
  void BeginTensor(const std::string& name) {
    in_metadata_ = name == kMetadata;
    entry_ = SafetensorsEntry{};
    entry_.name = name;
    has_dtype_ = has_shape_ = has_offsets_ = false;
    offsets_ = 0;
  }

  Status BadMetadata(const JsonPath& path) const {
    return Malformed(
        fmt::format("{} is no string, and __metadata__ holds strings only",
                    JsonPathText(path)));
  }

  Status KnownField(const std::string& field) const {
    static const std::vector<std::string> kFields = {"dtype", "shape",
                                                     "data_offsets"};
    if (std::find(kFields.begin(), kFields.end(), field) != kFields.end()) {
      return OkStatus();
    }
    return BadTensor(entry_.name, fmt::format("unknown key {}{}", Quoted(field),
                                              SuggestName(field, kFields)));
  }

  Status SetField(const std::string& field, const JsonScalar& scalar) {
    if (field != "dtype") {
      return Malformed(fmt::format("its {} is {} where an array belongs", field,
                                   JsonScalarText(scalar)));
    }
    if (scalar.kind != JsonKind::kString) {
      return Malformed(fmt::format("its dtype is {} where a string belongs",
                                   JsonScalarText(scalar)));
    }
    has_dtype_ = true;
    CASTOR_ASSIGN_OR_RETURN(entry_.dtype,
                            ReadDType(scalar.text, DTypeSpelling::kExact));
    return OkStatus();
  }

  Status SetOffset(const JsonScalar& scalar) {
    if (scalar.kind != JsonKind::kUnsigned) {
      return Malformed(
          fmt::format("its data_offsets hold {}, and an offset is a whole "
                      "number of bytes",
                      JsonScalarText(scalar)));
    }
    if (offsets_ == 0) entry_.begin = scalar.number;
    if (offsets_ == 1) entry_.end = scalar.number;
    ++offsets_;
    return OkStatus();
  }

  SafetensorsHeader header_;
  SafetensorsEntry entry_;  // being read
  bool in_metadata_ = false;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  size_t offsets_ = 0;  // numbers seen in data_offsets
};

// Each tensor's own numbers agree with each other.
Status CheckEntry(const SafetensorsEntry& entry) {
  const Result<Bytes> bytes = TensorBytes(entry.shape, entry.dtype);
  if (!bytes.ok()) return BadTensor(entry.name, bytes.status().message());
  if (entry.end < entry.begin ||
      entry.end - entry.begin != static_cast<uint64_t>(bytes->count())) {
    return BadTensor(
        entry.name,
        fmt::format("its data_offsets [{}, {}] do not span the {} bytes of its "
                    "shape and dtype {}",
                    entry.begin, entry.end, bytes->count(),
                    DTypeName(entry.dtype)));
  }
  return OkStatus();
}

// The tensors lie one behind the other and fill the file.
Status CheckPlaces(const std::vector<SafetensorsEntry>& entries,
                   uint64_t data_bytes) {
  uint64_t end = 0;
  const SafetensorsEntry* before = nullptr;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != end) {
      const bool hole = entry.begin > end;
      return BadTensor(
          entry.name,
          fmt::format("its data begins at byte {}, but {} ends at byte {}: {} "
                      "of {} bytes",
                      entry.begin, before ? Quoted(before->name) : "the header",
                      end, hole ? "a hole" : "an overlap",
                      hole ? entry.begin - end : end - entry.begin));
    }
    end = entry.end;
    before = &entry;
  }
  if (end != data_bytes) {
    return Malformed(fmt::format(
        "the tensors end at byte {} of the data, but the file holds {} bytes "
        "of data: it is {}",
        end, data_bytes,
        end > data_bytes ? "cut short; copy or download it again"
                         : "followed by something that is no tensor"));
  }
  return OkStatus();
}

}  // namespace

Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json,
                                                 uint64_t data_bytes) {
  if (json.empty() || json.front() != '{') {
    return Malformed(
        fmt::format("the header does not begin with {{ (at byte "
                    "{})",
                    kLengthBytes));
  }
  // The reader below takes any white space for padding; the format, spaces.
  const size_t last = json.find_last_not_of(' ');
  if (json[last] != '}') {
    return Malformed(
        fmt::format("the header ends with {} where a closing brace and spaces "
                    "belong (at byte {})",
                    Quoted(json.substr(last, 1)), kLengthBytes + last));
  }
  HeaderHandler handler;
  CASTOR_RETURN_IF_ERROR(ReadStrictJson(json, handler, kLengthBytes));
  SafetensorsHeader header = handler.Take();
  for (const SafetensorsEntry& entry : header.entries) {
    CASTOR_RETURN_IF_ERROR(CheckEntry(entry));
  }
  // Tensors of no bytes lie where another begins, so they come before it.
  std::sort(header.entries.begin(), header.entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tie(a.begin, a.end, a.name) <
                     std::tie(b.begin, b.end, b.name);
            });
  CASTOR_RETURN_IF_ERROR(CheckPlaces(header.entries, data_bytes));
  return header;
}

Result<SafetensorsHeader> ReadSafetensorsHeader(std::string_view path,
                                                uint64_t file_size,
                                                const ReadFileAt& read_at) {
  const std::string where = QuotedPath(path);
  if (file_size < kLengthBytes) {
    return Malformed(fmt::format(
        "{} holds {} bytes; a safetensors file begins with 8 bytes of header "
        "length",
        where, file_size));
  }
  CASTOR_ASSIGN_OR_RETURN(const std::string length_text,
                          read_at(0, kLengthBytes));
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8 | static_cast<uint8_t>(length_text[i]);
  }
  const uint64_t behind = file_size - kLengthBytes;
  if (length_text == "version ") {
    return Malformed(fmt::format(
        "{} is a Git LFS pointer, not the file it stands for; fetch that with "
        "git lfs pull",
        where));
  }
  if (length > behind) {
    return Malformed(fmt::format(
        "{}: the first 8 bytes say that the header is {} bytes long, but only "
        "{} bytes follow; the file is cut short or no safetensors file",
        where, length, behind));
  }
  if (length > kMaxSafetensorsHeader) {
    return Malformed(fmt::format(
        "{}: the first 8 bytes say that the header is {} bytes long; more than "
        "{} is refused",
        where, length, kMaxSafetensorsHeader));
  }
  CASTOR_ASSIGN_OR_RETURN(const std::string json,
                          read_at(kLengthBytes, length));
  Result<SafetensorsHeader> header =
      ParseSafetensorsHeader(json, behind - length);
  if (!header.ok()) return header.status().WithContext(where);
  header->data_begin = kLengthBytes + length;
  return header;
}

Result<std::string> WriteSafetensorsHeader(
    std::span<const SafetensorsEntry> entries,
    std::span<const std::pair<std::string, std::string>> metadata) {
  std::string json = "{";
  if (!metadata.empty()) {
    std::string pairs;
    for (const auto& [key, value] : metadata) {
      pairs += fmt::format("{}{}:{}", pairs.empty() ? "" : ",", JsonText(key),
                           JsonText(value));
    }
    json += fmt::format("\"{}\":{{{}}}", kMetadata, pairs);
  }
  std::unordered_set<std::string_view> names = {kMetadata};
  for (const SafetensorsEntry& entry : entries) {
    const std::string name = JsonText(entry.name);
    if (entry.name.empty() || name.empty() ||
        !names.insert(entry.name).second) {
      return InvalidArgument(fmt::format(
          "a tensor cannot be called {}: names are UTF-8, not empty, not {}, "
          "and each is given once",
          Quoted(entry.name), kMetadata));
    }
    std::string shape;
    for (const int64_t dim : entry.shape) {
      shape += fmt::format("{}{}", shape.empty() ? "" : ",", dim);
    }
    json += fmt::format(
        "{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
        json.size() > 1 ? "," : "", name, DTypeName(entry.dtype), shape,
        entry.begin, entry.end);
  }
  json += '}';
  // The data then lies where every type can be read in place.
  json.resize((json.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes,
              ' ');
  if (json.size() > kMaxSafetensorsHeader) {
    return InvalidArgument(fmt::format(
        "a header of {} bytes is longer than the {} that readers take; put the "
        "tensors into more files",
        json.size(), kMaxSafetensorsHeader));
  }
  std::string head(kLengthBytes, '\0');
  for (size_t i = 0; i < kLengthBytes; ++i) {
    head[i] = static_cast<char>(json.size() >> (8 * i) & 0xff);
  }
  return head + json;
}

}  // namespace castor
