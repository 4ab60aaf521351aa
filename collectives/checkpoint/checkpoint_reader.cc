// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/checkpoint_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <map>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/layout/safetensors_format.h"
#include "chunk/text/quote.h"
#include "collectives/checkpoint/checkpoint_folder.h"
#include "collectives/checkpoint/files/tensor_digest.h"
#include "collectives/checkpoint/files/weight_files.h"
#include "placement/run_event.h"

namespace castor {
namespace {

constexpr std::string_view kRemedy =
    "copy it again, or use an older checkpoint";

std::string At(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

Result<SafetensorsHeader> HeaderOf(const DataFile& file) {
  return ReadSafetensorsHeader(
      file.path(), file.size(),
      [&](uint64_t offset, uint64_t length) -> Result<std::string> {
        std::string bytes(length, '\0');
        CASTOR_RETURN_IF_ERROR(file.ReadAt(offset, bytes.data(), length));
        return bytes;
      });
}

}  // namespace

Result<CheckpointManifest> ReadManifest(const std::string& folder) {
  const std::string path = At(folder, kManifestName);
  CASTOR_ASSIGN_OR_RETURN(const std::string text,
                          ReadWholeFile(path, kMaxManifestBytes));
  Result<CheckpointManifest> manifest = ParseManifest(text);
  if (!manifest.ok()) return manifest.status().WithContext(QuotedPath(path));
  const std::filesystem::path named(At(folder, ""));  // it ends with a slash
  const std::optional<int64_t> step =
      StepOfCheckpointName(named.parent_path().filename().string());
  if (step.has_value() && *step != manifest->step) {
    return Malformed(fmt::format(
        "{} is of step {}, and its folder bears the name of step {}: give the "
        "folder the name {}",
        QuotedPath(path), manifest->step, *step,
        CheckpointName(manifest->step)));
  }
  return manifest;
}

Status NameOlderCheckpoint(const Status& failure, const std::string& folder) {
  if (failure.code() != ErrorCode::kMalformed &&
      failure.code() != ErrorCode::kDataLoss) {
    return failure;
  }
  const std::filesystem::path path =
      std::filesystem::path(At(folder, "")).parent_path();
  const std::optional<int64_t> step =
      StepOfCheckpointName(path.filename().string());
  if (!step.has_value()) return failure;
  const Result<std::vector<FoundCheckpoint>> beside =
      ListCheckpoints(At(path.parent_path(), "."));
  if (!beside.ok()) return failure;
  for (auto older = beside->rbegin(); older != beside->rend(); ++older) {
    if (older->step >= *step) continue;
    const std::string other = path.parent_path() / CheckpointName(older->step);
    if (!CheckpointReader::Open(other).ok()) continue;
    return Status(failure.code(),
                  fmt::format("{}; the newest older one is {}",
                              failure.message(), QuotedPath(other)));
  }
  return failure;
}

Result<CheckpointReader> CheckpointReader::Open(const std::string& folder) {
  CheckpointReader reader;
  reader.folder_ = folder;
  CASTOR_ASSIGN_OR_RETURN(reader.manifest_, ReadManifest(folder));
  // The same manifest gives the same text.
  reader.manifest_digest_ = DigestOfFile(WriteManifest(reader.manifest_), {});
  CASTOR_RETURN_IF_ERROR(reader.OpenFiles());
  return reader;
}

Result<CheckpointReader> CheckpointReader::OpenWeights(
    const std::string& file) {
  const std::filesystem::path path(file);
  CheckpointReader reader;
  reader.folder_ = path.has_parent_path() ? path.parent_path().string() : ".";
  reader.weights_only_ = true;
  if (path.extension() != ".json") {
    CASTOR_RETURN_IF_ERROR(
        reader.AddWeightFile(path.filename().string(), nullptr));
  } else {
    CASTOR_ASSIGN_OR_RETURN(const std::string text,
                            ReadWholeFile(file, kMaxWeightIndexBytes));
    const Result<WeightIndex> index = ParseWeightIndex(text);
    if (!index.ok()) return index.status().WithContext(QuotedPath(file));
    for (const auto& [name, tensors] : *index) {
      CASTOR_RETURN_IF_ERROR(reader.AddWeightFile(name, &tensors));
    }
  }
  CASTOR_RETURN_IF_ERROR(reader.TakeDigests());
  reader.manifest_digest_ = DigestOfFile(WriteManifest(reader.manifest_), {});
  return reader;
}

Status CheckpointReader::TakeDigests() {
  has_digests_ = false;
  std::error_code ignored;
  if (!std::filesystem::exists(At(folder_, kManifestName), ignored)) {
    return OkStatus();
  }
  CASTOR_ASSIGN_OR_RETURN(const CheckpointManifest saved,
                          ReadManifest(folder_));
  std::map<std::string_view, uint64_t> digests;
  for (const SavedParam& param : saved.params) {
    for (const SavedState& state : param.states) {
      if (state.state == kParamName) digests[param.name] = state.digest;
    }
  }
  for (SavedParam& param : manifest_.params) {
    const auto found = digests.find(param.name);
    if (found == digests.end()) return OkStatus();
    for (SavedState& state : param.states) state.digest = found->second;
  }
  has_digests_ = true;
  return OkStatus();
}

Result<CheckpointReader> CheckpointReader::Find(const std::string& path,
                                                std::optional<int64_t> step) {
  const Result<std::string> found = FindCheckpoint(path, step);
  if (found.ok()) {
    Result<CheckpointReader> reader = Open(*found);
    if (reader.ok()) return reader;
    return NameOlderCheckpoint(reader.status(), *found);
  }
  const std::string weights = FindWeightFiles(path);
  if (weights.empty()) return found.status();
  if (!step.has_value()) return OpenWeights(weights);
  return InvalidArgument(fmt::format(
      "{} is a model of weights alone, which has no step {}: name no step",
      QuotedPath(path), *step));
}

Status CheckpointReader::AddWeightFile(const std::string& name,
                                       const std::vector<std::string>* named) {
  CASTOR_ASSIGN_OR_RETURN(DataFile data,
                          DataFile::OpenToRead(At(folder_, name)));
  const std::string where = QuotedPath(data.path());
  CASTOR_ASSIGN_OR_RETURN(const SafetensorsHeader header, HeaderOf(data));
  const auto number = static_cast<int32_t>(files_.size());
  manifest_.files.push_back({name, data.size(), 0});
  File file{std::move(data), header.data_begin, {}};
  std::set<std::string_view> missing;
  if (named != nullptr) missing.insert(named->begin(), named->end());
  for (const SafetensorsEntry& entry : header.entries) {
    if (named != nullptr && missing.erase(entry.name) == 0) {
      return Malformed(fmt::format(
          "{} holds tensor {}, which the index does not send there; {}", where,
          Quoted(entry.name), kRemedy));
    }
    if (DTypeBits(entry.dtype) % 8 != 0) {
      return Malformed(fmt::format(
          "{}: tensor {} is {}, which has no whole bytes and is not read here",
          where, Quoted(entry.name), DTypeName(entry.dtype)));
    }
    file.tensors.push_back({manifest_.params.size(), 0});
    manifest_.params.push_back(
        {.name = entry.name,
         .dtype = entry.dtype,
         .shape = entry.shape,
         .states = {{std::string(kParamName), entry.dtype, number, 0}}});
    offsets_.push_back({header.data_begin + entry.begin});
  }
  if (!missing.empty()) {
    return Malformed(fmt::format(
        "{} does not hold tensor {}, which the index sends there; {}", where,
        Quoted(*missing.begin()), kRemedy));
  }
  files_.push_back(std::move(file));
  return OkStatus();
}

Status CheckpointReader::OpenFiles() {
  // By file, the tensors that the manifest sends there.
  std::vector<std::map<std::string, Tensor>> expected(manifest_.files.size());
  for (size_t p = 0; p < manifest_.params.size(); ++p) {
    const SavedParam& param = manifest_.params[p];
    offsets_.emplace_back(param.states.size());
    for (size_t s = 0; s < param.states.size(); ++s) {
      const SavedState& state = param.states[s];
      expected[static_cast<size_t>(state.file)].emplace(
          TensorNameOf(param.name, state.state), Tensor{p, s});
    }
  }
  for (size_t f = 0; f < manifest_.files.size(); ++f) {
    const SavedFile& saved = manifest_.files[f];
    CASTOR_ASSIGN_OR_RETURN(DataFile data,
                            DataFile::OpenToRead(At(folder_, saved.name)));
    const std::string where = QuotedPath(data.path());
    if (data.size() != saved.bytes) {
      return Malformed(
          fmt::format("{} has {} bytes, and the manifest says {}; {}", where,
                      data.size(), saved.bytes, kRemedy));
    }
    File file{std::move(data), saved.bytes, {}};
    if (!expected[f].empty()) {
      CASTOR_ASSIGN_OR_RETURN(const SafetensorsHeader header,
                              HeaderOf(file.data));
      file.head = header.data_begin;
      for (const SafetensorsEntry& entry : header.entries) {
        const auto at = expected[f].find(entry.name);
        if (at == expected[f].end()) {
          return Malformed(
              fmt::format("{} holds tensor {}, which the manifest does not "
                          "send there; {}",
                          where, Quoted(entry.name), kRemedy));
        }
        const Tensor tensor = at->second;
        const SavedParam& param = manifest_.params[tensor.param];
        const DType dtype = param.states[tensor.state].dtype;
        if (entry.shape != param.shape || entry.dtype != dtype) {
          return Malformed(fmt::format(
              "{}: tensor {} is {} [{}], and the manifest says {} [{}]; {}",
              where, Quoted(entry.name), DTypeName(entry.dtype),
              fmt::join(entry.shape, ", "), DTypeName(dtype),
              fmt::join(param.shape, ", "), kRemedy));
        }
        offsets_[tensor.param][tensor.state] = header.data_begin + entry.begin;
        file.tensors.push_back(tensor);
        expected[f].erase(at);
      }
      if (!expected[f].empty()) {
        return Malformed(fmt::format(
            "{} does not hold tensor {}, which the manifest sends there; {}",
            where, Quoted(expected[f].begin()->first), kRemedy));
      }
    }
    files_.push_back(std::move(file));
  }
  return OkStatus();
}

Status CheckpointReader::Read(size_t param, const SavedState& state,
                              int64_t begin, int64_t count, void* to) const {
  const std::vector<SavedState>& states = manifest_.params[param].states;
  const size_t s = static_cast<size_t>(&state - states.data());
  CASTOR_CHECK_LT(s, states.size());
  const uint64_t size = static_cast<uint64_t>(DTypeBits(state.dtype) / 8);
  return files_[static_cast<size_t>(state.file)].data.ReadAt(
      offsets_[param][s] + static_cast<uint64_t>(begin) * size, to,
      static_cast<uint64_t>(count) * size);
}

Result<std::string> CheckpointReader::ReadTrainer() const {
  for (size_t f = 0; f < files_.size(); ++f) {
    if (manifest_.files[f].name != kTrainerFileName) continue;
    CASTOR_ASSIGN_OR_RETURN(std::string bytes, ReadHead(f));
    if (DigestOfFile(bytes, {}) != manifest_.files[f].digest) {
      return DataLoss(
          fmt::format("{} does not hold the bytes that were saved; {}",
                      QuotedPath(files_[f].data.path()), kRemedy));
    }
    return bytes;
  }
  return std::string();
}

Result<std::string> CheckpointReader::ReadHead(size_t file) const {
  std::string bytes(files_[file].head, '\0');
  CASTOR_RETURN_IF_ERROR(
      files_[file].data.ReadAt(0, bytes.data(), bytes.size()));
  return bytes;
}

}  // namespace castor
