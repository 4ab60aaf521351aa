// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "chunk/layout/tensor_fields.h"
#include "chunk/text/json_fields.h"
#include "chunk/text/quote.h"
#include "chunk/text/strict_json.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_manifest_check.h"
#include "collectives/checkpoint/files/tensor_digest.h"
#include "placement/state_kind.h"

namespace castor {
namespace {

constexpr int64_t kMostSteps = (int64_t{1} << 31) - 2;
constexpr int64_t kMostRanks = int64_t{1} << 20;
constexpr int64_t kMostParts = (int64_t{1} << 31) - 2;
constexpr std::string_view kSchemaFamily = "castor.checkpoint/";
constexpr std::string_view kSchemaWithoutDigest = "castor.checkpoint/1";

using Keys = std::vector<std::string>;

// What a path leads to: the root, an element of a list, or one of its lists.
enum Place : size_t { kRoot, kFile, kParam, kState, kPlaces };

const Keys& KeysOf(size_t place) {
  static const std::array<Keys, kPlaces> keys = {
      Keys{"schema", "step", "world", "stage", "optimizer", "engine", "files",
           "parameters", "digest"},
      Keys{"name", "bytes", "digest"},
      Keys{"name", "dtype", "shape", "trainable", "steps", "states"},
      Keys{"state", "dtype", "file", "digest"}};
  return keys[place];
}

Result<std::string> TextOf(const JsonPath& path, const JsonScalar& scalar) {
  if (scalar.kind != JsonKind::kString) {
    return WrongJsonType(path, JsonScalarText(scalar), "a string");
  }
  return std::string(scalar.text);
}

Result<DType> DTypeOf(const JsonPath& path, const JsonScalar& scalar) {
  CASTOR_ASSIGN_OR_RETURN(const std::string text, TextOf(path, scalar));
  const Result<DType> dtype = ReadDType(text, DTypeSpelling::kExact);
  if (!dtype.ok()) return dtype.status().WithContext(JsonPathText(path));
  return dtype;
}

Result<uint64_t> DigestOf(const JsonPath& path, const JsonScalar& scalar) {
  CASTOR_ASSIGN_OR_RETURN(const std::string text, TextOf(path, scalar));
  const Result<uint64_t> digest = ParseDigest(text);
  if (!digest.ok()) return digest.status().WithContext(JsonPathText(path));
  return digest;
}

// What an optimizer calls its states, and weights and masters are called.
Result<std::string> StateOf(const JsonPath& path, const JsonScalar& scalar) {
  CASTOR_ASSIGN_OR_RETURN(std::string text, TextOf(path, scalar));
  const bool saved = text == kParamName || text == kMasterName;
  if (saved || AreOptimizerStates({&text, 1})) return text;
  return Malformed(fmt::format(
      "{} is {}, which is no state that is saved: param, master, and what the "
      "optimizer keeps, with names of at most {} letters, digits and "
      "underscores",
      JsonPathText(path), Quoted(text), kMaxStateNameBytes));
}

// Somebody else's manifest must not make a reader open files that nobody
// offered.
Status CheckFileName(const std::string& name) {
  std::string_view why;
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('/', at), name.size());
    const std::string_view part(name.data() + at, end - at);
    if (part == "." || part == ".." || (part.empty() && !name.empty())) {
      why = "leads out of the folder";
    }
    at = end + 1;
  }
  if (name.empty()) why = "is empty";
  if (name.starts_with('/')) why = "is an absolute path";
  if (name.find('\0') != name.npos) why = "holds a zero byte";
  if (why.empty()) return OkStatus();
  return Malformed(fmt::format(
      "the file name {} {}; files lie in the checkpoint's own folder",
      Quoted(name), why));
}

// A newer version's manifest is said to be one.
Status CheckCheckpointSchema(const JsonScalar& scalar) {
  const Status exact = CheckSchema(scalar, kCheckpointSchema);
  if (exact.ok() || scalar.kind != JsonKind::kString ||
      !scalar.text.starts_with(kSchemaFamily)) {
    return exact;
  }
  return exact.WithContext(
      "the checkpoint was written by another version of Castor; read it with "
      "that one, or a newer one than this");
}

class ManifestHandler final : public JsonHandler {
 public:
  CheckpointManifest Take() { return std::move(manifest_); }

  Status Open(const JsonPath& path, JsonContainer container) override {
    CASTOR_RETURN_IF_ERROR(See(path));
    const bool object = container == JsonContainer::kObject;
    const std::string_view belongs = Belongs(path);
    if (belongs != (object ? "an object" : "an array")) {
      return WrongJsonType(path, object ? "an object" : "an array", belongs);
    }
    const std::optional<size_t> place = PlaceOf(path);
    if (!place.has_value()) return OkStatus();
    if (path.size() > 1 &&
        path.back().index >= static_cast<size_t>(kMostParts)) {
      return Malformed(fmt::format("{} is one too many", JsonPathText(path)));
    }
    seen_[*place] = 0;
    if (*place == kFile) manifest_.files.emplace_back();
    if (*place == kParam) manifest_.params.emplace_back();
    if (*place == kState) manifest_.params.back().states.emplace_back();
    return OkStatus();
  }

  Status Close(const JsonPath& path) override {
    const std::optional<size_t> place = PlaceOf(path);
    if (!place.has_value()) return OkStatus();
    const Keys& keys = KeysOf(*place);
    for (size_t i = 0; i < keys.size(); ++i) {
      const bool seen = (seen_[*place] >> i & 1) != 0;
      if (*place == kRoot && keys[i] == "digest" && !manifest_.has_digest) {
        if (!seen) continue;
        return Malformed(fmt::format("{} has no \"digest\", and this text has",
                                     kSchemaWithoutDigest));
      }
      if (!seen) return MissingKey(path, keys[i]);
    }
    return OkStatus();
  }

  Status Scalar(const JsonPath& path, const JsonScalar& scalar) override {
    CASTOR_RETURN_IF_ERROR(See(path));
    const std::string_view belongs = Belongs(path);
    if (belongs == "an object" || belongs == "an array") {
      return WrongJsonType(path, JsonScalarText(scalar), belongs);
    }
    if (path[0].key == "engine") return TakeEngine(path, scalar);
    if (path.size() == 1) return TakeRoot(path, scalar);
    if (path[0].key == "files") return TakeFile(path, scalar);
    if (path.size() == 3) return TakeParam(path, scalar);
    if (path[2].key == "shape") {
      const Status status = AppendDim(scalar, &manifest_.params.back().shape);
      return status.ok() ? status : status.WithContext(JsonPathText(path));
    }
    return TakeState(path, scalar);
  }

 private:
  // Of an object that has known keys.
  static std::optional<size_t> PlaceOf(const JsonPath& path) {
    if (path.empty()) return kRoot;
    if (path.size() == 2 && path[0].key == "files") return kFile;
    if (path.size() == 2 && path[0].key == "parameters") return kParam;
    if (path.size() == 4 && path[2].key == "states") return kState;
    return std::nullopt;
  }

  static std::string_view Belongs(const JsonPath& path) {
    if (PlaceOf(path).has_value()) return "an object";
    const std::string& key = path.back().key;
    if (path.size() == 1) {
      if (key == "engine") return "an object";
      if (key == "files" || key == "parameters") return "an array";
    }
    if (path.size() == 3 && path[0].key == "parameters" &&
        (key == "shape" || key == "states")) {
      return "an array";
    }
    return "a plain value";
  }

  // The key is known, and noted.
  Status See(const JsonPath& path) {
    if (path.empty() || !path.back().in_object) return OkStatus();
    const std::optional<size_t> place =
        PlaceOf(JsonPath(path.begin(), path.end() - 1));
    if (!place.has_value()) return OkStatus();
    const Keys& keys = KeysOf(*place);
    CASTOR_RETURN_IF_ERROR(CheckKnownKey(path, keys));
    const auto at = std::find(keys.begin(), keys.end(), path.back().key);
    seen_[*place] |= uint32_t{1} << (at - keys.begin());
    return OkStatus();
  }

  Status TakeRoot(const JsonPath& path, const JsonScalar& scalar) {
    const std::string& key = path[0].key;
    if (key == "schema") {
      manifest_.has_digest = scalar.kind != JsonKind::kString ||
                             scalar.text != kSchemaWithoutDigest;
      return manifest_.has_digest ? CheckCheckpointSchema(scalar) : OkStatus();
    }
    // Compared where all of the text is at hand.
    if (key == "digest") return DigestOf(path, scalar).status();
    if (key == "optimizer") {
      CASTOR_ASSIGN_OR_RETURN(manifest_.optimizer, TextOf(path, scalar));
      return OkStatus();
    }
    if (key == "world") {
      CASTOR_ASSIGN_OR_RETURN(manifest_.world,
                              ReadJsonCount(path, scalar, 1, kMostRanks));
      return OkStatus();
    }
    CASTOR_ASSIGN_OR_RETURN(
        (key == "step" ? manifest_.step : manifest_.stage),
        ReadJsonCount(path, scalar, 0, key == "step" ? kMostSteps : 3));
    return OkStatus();
  }

  Status TakeEngine(const JsonPath& path, const JsonScalar& scalar) {
    JsonValue& value = manifest_.engine[path[1].key];
    switch (scalar.kind) {
      case JsonKind::kNull:
        return WrongJsonType(path, "null", "a number or a text");
      case JsonKind::kBool:
        value = scalar.boolean;
        break;
      case JsonKind::kUnsigned:
        value = scalar.number;
        break;
      case JsonKind::kNegative:
        value = scalar.negative;
        break;
      case JsonKind::kReal:
        value = scalar.real;
        break;
      case JsonKind::kString:
        value = scalar.text;
        break;
    }
    return OkStatus();
  }

  Status TakeFile(const JsonPath& path, const JsonScalar& scalar) {
    SavedFile& file = manifest_.files.back();
    const std::string& key = path[2].key;
    if (key == "name") {
      CASTOR_ASSIGN_OR_RETURN(file.name, TextOf(path, scalar));
      return CheckFileName(file.name);
    }
    if (key == "digest") {
      CASTOR_ASSIGN_OR_RETURN(file.digest, DigestOf(path, scalar));
      return OkStatus();
    }
    CASTOR_ASSIGN_OR_RETURN(
        const int64_t bytes,
        ReadJsonCount(path, scalar, 0, internal::kMostBytes));
    file.bytes = static_cast<uint64_t>(bytes);
    return OkStatus();
  }

  Status TakeParam(const JsonPath& path, const JsonScalar& scalar) {
    SavedParam& param = manifest_.params.back();
    const std::string& key = path[2].key;
    if (key == "name") {
      CASTOR_ASSIGN_OR_RETURN(param.name, TextOf(path, scalar));
    } else if (key == "dtype") {
      CASTOR_ASSIGN_OR_RETURN(param.dtype, DTypeOf(path, scalar));
    } else if (key == "trainable") {
      CASTOR_ASSIGN_OR_RETURN(param.trainable, ReadJsonBool(path, scalar));
    } else {
      CASTOR_ASSIGN_OR_RETURN(param.steps,
                              ReadJsonCount(path, scalar, 0, kMostSteps));
    }
    return OkStatus();
  }

  Status TakeState(const JsonPath& path, const JsonScalar& scalar) {
    SavedState& state = manifest_.params.back().states.back();
    const std::string& key = path[4].key;
    if (key == "state") {
      CASTOR_ASSIGN_OR_RETURN(state.state, StateOf(path, scalar));
    } else if (key == "dtype") {
      CASTOR_ASSIGN_OR_RETURN(state.dtype, DTypeOf(path, scalar));
    } else if (key == "digest") {
      CASTOR_ASSIGN_OR_RETURN(state.digest, DigestOf(path, scalar));
    } else {
      CASTOR_ASSIGN_OR_RETURN(const int64_t file,
                              ReadJsonCount(path, scalar, 0, kMostParts));
      state.file = static_cast<int32_t>(file);
    }
    return OkStatus();
  }

  CheckpointManifest manifest_;
  std::array<uint32_t, kPlaces> seen_ = {};  // keys of what is being read
};

Status CheckManifestEnd(std::string_view text) {
  const size_t size = ManifestEnd("").size();  // whatever it is of
  if (text.size() > size &&
      text.ends_with(ManifestEnd(text.substr(0, text.size() - size)))) {
    return OkStatus();
  }
  return Malformed(
      "it is not the text that was saved: its last line is not the digest of "
      "those before; copy the checkpoint again, or use an older one");
}

}  // namespace

Result<CheckpointManifest> ParseManifest(std::string_view text) {
  if (text.size() > kMaxManifestBytes) {
    return Malformed(fmt::format("it has {} bytes, and a manifest at most {}",
                                 text.size(), kMaxManifestBytes));
  }
  ManifestHandler handler;
  CASTOR_RETURN_IF_ERROR(ReadStrictJson(text, handler));
  CheckpointManifest manifest = handler.Take();
  CASTOR_RETURN_IF_ERROR(internal::CheckManifest(manifest));
  if (manifest.has_digest) CASTOR_RETURN_IF_ERROR(CheckManifestEnd(text));
  return manifest;
}

}  // namespace castor
