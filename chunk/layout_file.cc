// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/layout_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/layout/layout_parts.h"
#include "chunk/layout/tensor_fields.h"
#include "chunk/text/json_fields.h"
#include "chunk/text/strict_json.h"

namespace castor {
namespace {

constexpr int64_t kMostRanks = int64_t{1} << 20;
constexpr int64_t kMostElements = int64_t{1} << 60;
constexpr int64_t kMostParts = (int64_t{1} << 31) - 2;  // of each kind

using Keys = std::vector<std::string>;

const Keys& RootKeys() {
  static const Keys keys = {"schema",           "world",  "align_elements",
                            "quantum_elements", "groups", "chunks",
                            "parameters"};
  return keys;
}

enum class Section : uint8_t { kGroups, kChunks, kParameters };

const Keys& FieldsOf(Section section) {
  static const std::array<Keys, 3> keys = {
      Keys{"dtype", "trainable", "chunk_elements", "moments8"},
      Keys{"group", "elements", "oversize"},
      Keys{"name", "shape", "dtype", "trainable", "chunk", "offset"}};
  return keys[static_cast<size_t>(section)];
}

// Depth 1 is a number or a section, 2 an element of it, 3 a field of that, 4 a
// dimension of a shape.
class LayoutHandler final : public JsonHandler {
 public:
  LayoutParts Take() { return std::move(parts_); }

  Status Open(const JsonPath& path, JsonContainer container) override {
    CASTOR_RETURN_IF_ERROR(CheckKey(path));
    const bool object = container == JsonContainer::kObject;
    if (Belongs(path) != (object ? "an object" : "an array")) {
      return WrongJsonType(path, object ? "an object" : "an array",
                           Belongs(path));
    }
    if (path.size() == 1) See(RootKeys(), path[0].key);
    if (path.size() == 2) return Begin(path);
    if (path.size() == 3) See(FieldsOf(section_), path[2].key);
    return OkStatus();
  }

  Status Scalar(const JsonPath& path, const JsonScalar& scalar) override {
    CASTOR_RETURN_IF_ERROR(CheckKey(path));
    const std::string_view belongs = Belongs(path);
    if (belongs == "an object" || belongs == "an array") {
      return WrongJsonType(path, JsonScalarText(scalar), belongs);
    }
    if (path.size() == 1) {
      See(RootKeys(), path[0].key);
      return TakeRoot(path, scalar);
    }
    if (path.size() == 4) {
      const Status status = AppendDim(scalar, &parts_.params.back().shape);
      return status.ok() ? status : status.WithContext(JsonPathText(path));
    }
    See(FieldsOf(section_), path[2].key);
    switch (section_) {
      case Section::kGroups:
        return TakeGroupField(path, scalar);
      case Section::kChunks:
        return TakeChunkField(path, scalar);
      case Section::kParameters:
        return TakeParamField(path, scalar);
    }
    return OkStatus();
  }

  Status Close(const JsonPath& path) override {
    if (path.empty()) return CheckAllSeen(path, RootKeys(), root_seen_);
    if (path.size() == 2) {
      // Few groups say so.
      if (section_ == Section::kGroups) See(FieldsOf(section_), "moments8");
      return CheckAllSeen(path, FieldsOf(section_), fields_seen_);
    }
    return OkStatus();
  }

 private:
  static Section SectionOf(const std::string& key) {
    if (key == "groups") return Section::kGroups;
    return key == "chunks" ? Section::kChunks : Section::kParameters;
  }

  // What a reader expects at `path`, whose key is known.
  std::string_view Belongs(const JsonPath& path) const {
    switch (path.size()) {
      case 0:
      case 2:
        return "an object";
      case 1: {
        const std::string& key = path[0].key;
        const bool section =
            key == "groups" || key == "chunks" || key == "parameters";
        return section ? "an array" : "a string or a number";
      }
      case 3:
        return path[2].key == "shape" ? "an array" : "a plain value";
      default:
        return "a dimension";
    }
  }

  Status CheckKey(const JsonPath& path) const {
    if (path.size() == 1) return CheckKnownKey(path, RootKeys());
    if (path.size() == 3) return CheckKnownKey(path, FieldsOf(section_));
    return OkStatus();
  }

  void See(const Keys& keys, const std::string& key) {
    const auto at = std::find(keys.begin(), keys.end(), key) - keys.begin();
    uint32_t& seen = &keys == &RootKeys() ? root_seen_ : fields_seen_;
    seen |= uint32_t{1} << at;
  }

  static Status CheckAllSeen(const JsonPath& path, const Keys& keys,
                             uint32_t seen) {
    for (size_t i = 0; i < keys.size(); ++i) {
      if ((seen >> i & 1) == 0) return MissingKey(path, keys[i]);
    }
    return OkStatus();
  }

  Status Begin(const JsonPath& path) {
    if (path[1].index >= static_cast<size_t>(kMostParts)) {
      return Malformed(fmt::format("{} is one too many", JsonPathText(path)));
    }
    section_ = SectionOf(path[0].key);
    fields_seen_ = 0;
    switch (section_) {
      case Section::kGroups:
        parts_.groups.emplace_back();
        break;
      case Section::kChunks:
        parts_.chunks.emplace_back();
        break;
      case Section::kParameters:
        parts_.params.emplace_back();
        parts_.places.emplace_back();
        break;
    }
    return OkStatus();
  }

  Status TakeRoot(const JsonPath& path, const JsonScalar& scalar) {
    const std::string& key = path[0].key;
    if (key == "schema") return CheckSchema(scalar, kLayoutSchema);
    if (key == "world") {
      CASTOR_ASSIGN_OR_RETURN(parts_.world,
                              ReadJsonCount(path, scalar, 1, kMostRanks));
      return OkStatus();
    }
    int64_t& number = key == "align_elements" ? parts_.align : parts_.quantum;
    CASTOR_ASSIGN_OR_RETURN(number,
                            ReadJsonCount(path, scalar, 1, kMostElements));
    return OkStatus();
  }

  Status TakeGroupField(const JsonPath& path, const JsonScalar& scalar) {
    LayoutParts::Group& group = parts_.groups.back();
    const std::string& field = path[2].key;
    if (field == "dtype") return TakeDType(path, scalar, &group.dtype);
    if (field == "trainable") return TakeBool(path, scalar, &group.trainable);
    if (field == "moments8") return TakeBool(path, scalar, &group.moments8);
    CASTOR_ASSIGN_OR_RETURN(group.chunk_elements,
                            ReadJsonCount(path, scalar, 1, kMostElements));
    return OkStatus();
  }

  Status TakeChunkField(const JsonPath& path, const JsonScalar& scalar) {
    LayoutParts::Chunk& chunk = parts_.chunks.back();
    const std::string& field = path[2].key;
    if (field == "oversize") return TakeBool(path, scalar, &chunk.oversize);
    const bool group = field == "group";
    CASTOR_ASSIGN_OR_RETURN((group ? chunk.group : chunk.elements),
                            ReadJsonCount(path, scalar, group ? 0 : 1,
                                          group ? kMostParts : kMostElements));
    return OkStatus();
  }

  Status TakeParamField(const JsonPath& path, const JsonScalar& scalar) {
    ParamSpec& spec = parts_.params.back();
    LayoutParts::Place& place = parts_.places.back();
    const std::string& field = path[2].key;
    if (field == "dtype") return TakeDType(path, scalar, &spec.dtype);
    if (field == "trainable") return TakeBool(path, scalar, &spec.trainable);
    if (field == "name") {
      if (scalar.kind != JsonKind::kString) {
        return WrongJsonType(path, JsonScalarText(scalar), "a string");
      }
      spec.name = scalar.text;
      return OkStatus();
    }
    if (scalar.kind == JsonKind::kNull) return OkStatus();  // as it is
    const bool chunk = field == "chunk";
    CASTOR_ASSIGN_OR_RETURN(
        (chunk ? place.chunk : place.offset),
        ReadJsonCount(path, scalar, 0, chunk ? kMostParts : kMostElements));
    return OkStatus();
  }

  static Status TakeBool(const JsonPath& path, const JsonScalar& scalar,
                         bool* out) {
    CASTOR_ASSIGN_OR_RETURN(*out, ReadJsonBool(path, scalar));
    return OkStatus();
  }

  static Status TakeDType(const JsonPath& path, const JsonScalar& scalar,
                          DType* out) {
    if (scalar.kind != JsonKind::kString) {
      return WrongJsonType(path, JsonScalarText(scalar), "a string");
    }
    const Result<DType> dtype = ReadDType(scalar.text, DTypeSpelling::kExact);
    if (!dtype.ok()) return dtype.status().WithContext(JsonPathText(path));
    *out = *dtype;
    return OkStatus();
  }

  LayoutParts parts_;
  Section section_ = Section::kGroups;  // being read
  uint32_t root_seen_ = 0;              // by index into RootKeys()
  uint32_t fields_seen_ = 0;            // of the element being read
};

}  // namespace

Result<LayoutFile> ParseLayout(std::string_view text) {
  if (text.size() > kMaxLayoutBytes) {
    return Malformed(fmt::format("it has {} bytes, and a layout at most {}",
                                 text.size(), kMaxLayoutBytes));
  }
  LayoutHandler handler;
  CASTOR_RETURN_IF_ERROR(ReadStrictJson(text, handler));
  LayoutParts parts = handler.Take();
  CASTOR_ASSIGN_OR_RETURN(ChunkLayout layout, AssembleLayout(parts));
  return LayoutFile{std::move(parts.params), std::move(layout)};
}

}  // namespace castor
