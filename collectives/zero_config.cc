// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/zero_config.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/json_fields.h"
#include "chunk/base/quote.h"
#include "chunk/base/strict_json.h"
#include "chunk/layout_file.h"
#include "collectives/internal/config_fields.h"
#include "collectives/zero_config_parts.h"
#include "placement/tier_model_file.h"

namespace castor {
namespace {

constexpr char kSchema[] = "castor.config/1";

// Whether it is for a trainer to do what may be said.
enum class Reader : uint8_t { kEngine, kTrainer };

void AddFields(internal::ConfigFields& fields, Reader reader,
               ZeroConfig* config) {
  fields.Add("schema", [](const JsonPath&, const JsonScalar& scalar) {
    return CheckSchema(scalar, kSchema);
  });
  internal::AddTrainingFields(fields, &config->engine);
  internal::AddMemoryFields(fields, config);
  internal::AddOptimizerFields(fields, &config->engine);
  internal::AddHomeFields(fields, &config->engine);
  if (reader == Reader::kTrainer) internal::AddTrainerFields(fields, config);
}

Status ReadConfig(std::string_view text, Reader reader, ZeroConfig* config,
                  std::vector<std::string>* said) {
  internal::ConfigFields fields;
  AddFields(fields, reader, config);
  if (const Status read = ReadStrictJsonByLine(text, fields); !read.ok()) {
    // Of the caller's own, as a flag is.
    return InvalidArgument(std::string(read.message()));
  }
  said->insert(said->end(), fields.said().begin(), fields.said().end());
  if (!config->layout_file.empty() && config->engine.chunk_size) {
    return InvalidArgument(
        "chunk.layout and chunk.bytes exclude each other: a layout has its own "
        "chunks; leave one away");
  }
  return OkStatus();
}

Result<std::string> TextOf(const std::string& path, uint64_t limit) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 65536> part;
  while (file) {
    file.read(part.data(), part.size());
    text.append(part.data(), static_cast<size_t>(file.gcount()));
    if (text.size() > limit) {
      return InvalidArgument(
          fmt::format("{} has more than {} bytes, which is no such file",
                      QuotedPath(path), limit));
    }
  }
  if (file.eof()) return text;
  return InvalidArgument(fmt::format(
      "cannot read {}: name a file that is there, from the working directory",
      QuotedPath(path)));
}

}  // namespace

Result<ZeroConfig> ParseTrainerConfig(std::string_view text, ZeroConfig base,
                                      std::vector<std::string>* said) {
  CASTOR_RETURN_IF_ERROR(ReadConfig(text, Reader::kTrainer, &base, said));
  return base;
}

std::vector<std::string> ConfigKeys() {
  ZeroConfig config;
  internal::ConfigFields fields;
  AddFields(fields, Reader::kTrainer, &config);
  return fields.names();
}

Status ReadFilesOf(ZeroConfig* config) {
  if (!config->layout_file.empty()) {
    CASTOR_ASSIGN_OR_RETURN(const std::string text,
                            TextOf(config->layout_file, kMaxLayoutBytes));
    Result<LayoutFile> layout = ParseLayout(text);
    if (!layout.ok()) {
      return layout.status().WithContext(QuotedPath(config->layout_file));
    }
    config->engine.layout =
        std::make_shared<const LayoutFile>(*std::move(layout));
  }
  if (!config->machine_file.empty()) {
    CASTOR_ASSIGN_OR_RETURN(const std::string text,
                            TextOf(config->machine_file, kMaxTierModelBytes));
    const Result<TierModel> machine = ParseTierModel(text);
    if (!machine.ok()) {
      return machine.status().WithContext(QuotedPath(config->machine_file));
    }
    config->engine.machine = *machine;
  }
  return OkStatus();
}

Result<ZeroOptions> ReadZeroConfig(std::string_view text) {
  ZeroConfig config;
  std::vector<std::string> said;
  CASTOR_RETURN_IF_ERROR(ReadConfig(text, Reader::kEngine, &config, &said));
  CASTOR_RETURN_IF_ERROR(ReadFilesOf(&config));
  return std::move(config.engine);
}

}  // namespace castor
