// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_FAMILIES_CONFIG_VALUES_H_
#define CASTOR_TOOLS_MODELS_FAMILIES_CONFIG_VALUES_H_

// The keys of a Hugging Face config.json that say which parameters a model has.
// Such files are written as differences from the class's defaults, so a missing
// key is no error: whoever asks for it gives the family's default. Immutable
// once read, hence thread-safe.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/text/strict_json.h"

namespace castor {

// A longer config is refused.
inline constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;

class ConfigValues {
 public:
  // Where the file describes several parts of a model (`text_config`), these
  // are the values of the language part. Infinity, which older files have and
  // JSON does not, reads as null.
  static Result<ConfigValues> Parse(std::string_view json);

  // The values of the whole model, where Parse took those of a part.
  ConfigValues Whole() const;

  // Empty where the file does not say; Malformed where it is no string.
  Result<std::string> model_type() const { return Text("model_type"); }
  // The first of `architectures`, empty where the file does not say.
  Result<std::string> architecture() const { return Text("architectures"); }
  // `dtype`, or `torch_dtype` as older files name it; F32 where the file does
  // not say, as the reference code has it.
  Result<DType> dtype() const;
  bool quantized() const;
  // Parts of the model that `text_config` leaves out: "vision_config", ...
  const std::vector<std::string>& other_parts() const { return other_parts_; }

  // Whether the key is there, and is null.
  bool IsNull(std::string_view key) const;
  // Whether the key is there, and is an array.
  bool IsList(std::string_view key) const;
  // A whole number from `least` to 2^31 - 1; `fallback` where the key is
  // missing. Malformed otherwise, null included.
  Result<int64_t> Int(const std::string& key, int64_t fallback,
                      int64_t least = 1) const;
  // The same for keys that may be null, which means `if_null`.
  Result<int64_t> IntOrNull(const std::string& key, int64_t fallback,
                            int64_t if_null) const;
  // Where another name of `key` is also read. Malformed where both are there
  // and say different numbers.
  Result<int64_t> IntAlias(const std::string& key, const std::string& alias,
                           int64_t fallback, int64_t least = 1) const;
  Result<bool> Bool(const std::string& key, bool fallback) const;
  // The same for keys that may be null, which means no.
  Result<bool> BoolOrNull(const std::string& key, bool fallback) const;
  Result<std::string> String(const std::string& key,
                             const std::string& fallback) const;
  // An array of whole numbers up to 2^31 - 1; empty where the key is missing or
  // null.
  Result<std::vector<int64_t>> IntList(const std::string& key) const;

 private:
  friend class ConfigHandler;

  struct Value {
    JsonKind kind = JsonKind::kNull;
    bool boolean = false;
    bool container = false;  // an object or array, whose inside is skipped
    uint64_t number = 0;
    std::string text;  // of a string; otherwise as it reads in a message
    std::vector<uint64_t> list;  // of an array of whole numbers
    bool list_of_numbers = false;
  };
  using Values = std::map<std::string, Value, std::less<>>;

  const Value* Find(std::string_view key) const;
  Result<std::string> Text(std::string_view key) const;

  Values values_;
  Values outer_;  // around text_config
  std::vector<std::string> other_parts_;
};

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_FAMILIES_CONFIG_VALUES_H_
