// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/checkpoint_writer.h"

#include <filesystem>
#include <utility>

#include "chunk/param_spec.h"
#include "collectives/checkpoint/files/tensor_digest.h"
#include "collectives/checkpoint/files/tensor_files.h"

namespace castor {
namespace {

std::string At(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

}  // namespace

Result<CheckpointWriter> CheckpointWriter::Plan(
    std::string directory, int64_t step, std::vector<ParamWithStates> params,
    StateNames names, Bytes max_file) {
  CheckpointWriter writer;
  CASTOR_ASSIGN_OR_RETURN(writer.plan_,
                          PlanCheckpoint(params, names, max_file));
  writer.directory_ = std::move(directory);
  writer.step_ = step;
  writer.params_ = std::move(params);
  writer.names_ = std::move(names);
  writer.files_.resize(writer.plan_.files.size());
  writer.digests_.resize(writer.params_.size() * kStateKinds);
  return writer;
}

std::string CheckpointWriter::path() const {
  return At(directory_, CheckpointName(step_));
}

Status CheckpointWriter::CreateFiles() {
  CASTOR_RETURN_IF_ERROR(CheckMayReplace(directory_, step_));
  CASTOR_ASSIGN_OR_RETURN(
      CheckpointDraft draft,
      CheckpointDraft::Create(directory_, step_, kOptimizerFolder));
  draft_.emplace(std::move(draft));
  for (size_t f = 0; f < plan_.files.size(); ++f) {
    const TensorFile& file = plan_.files[f];
    CASTOR_ASSIGN_OR_RETURN(
        DataFile made,
        DataFile::Create(At(draft_->path(), file.name), file.bytes));
    CASTOR_RETURN_IF_ERROR(made.WriteAt(0, file.head.data(), file.head.size()));
    files_[f].emplace(std::move(made));
  }
  return OkStatus();
}

Result<DataFile*> CheckpointWriter::FileAt(size_t index) {
  std::optional<DataFile>& file = files_[index];
  if (!file.has_value()) {
    CASTOR_ASSIGN_OR_RETURN(
        DataFile opened, DataFile::OpenToWrite(At(DraftPath(directory_, step_),
                                                  plan_.files[index].name)));
    file.emplace(std::move(opened));
  }
  return &*file;
}

Status CheckpointWriter::Write(size_t param, StateKind state, DType dtype,
                               int64_t begin, int64_t count,
                               const std::byte* data) {
  const TensorPlace& place = plan_.places[param][static_cast<size_t>(state)];
  CASTOR_ASSIGN_OR_RETURN(DataFile* const file, FileAt(place.file));
  CASTOR_RETURN_IF_ERROR(file->WriteAt(
      place.offset +
          static_cast<uint64_t>(BytesOf(Elements(begin), dtype).count()),
      data, static_cast<uint64_t>(BytesOf(Elements(count), dtype).count())));
  digests_[param * kStateKinds + static_cast<size_t>(state)] +=
      DigestOfElements(data, dtype, begin, count);
  return OkStatus();
}

Status CheckpointWriter::Sync() {
  for (std::optional<DataFile>& file : files_) {
    if (file.has_value()) CASTOR_RETURN_IF_ERROR(file->Sync());
  }
  return OkStatus();
}

void CheckpointWriter::Describe(std::span<const int64_t> steps,
                                std::string_view trainer,
                                CheckpointManifest* manifest) const {
  for (size_t p = 0; p < params_.size(); ++p) {
    const ParamSpec& spec = params_[p].spec;
    SavedParam saved{spec.name,      spec.dtype, spec.shape,
                     spec.trainable, steps[p],   {}};
    for (const ParamWithStates::State& state : params_[p].states) {
      const size_t k = static_cast<size_t>(state.state);
      saved.states.push_back({std::string(names_.of(state.state)), state.dtype,
                              static_cast<int32_t>(plan_.places[p][k].file),
                              digests_[p * kStateKinds + k]});
    }
    manifest->params.push_back(std::move(saved));
  }
  for (size_t f = 0; f < plan_.files.size(); ++f) {
    manifest->files.push_back(
        {plan_.files[f].name, plan_.files[f].bytes, DigestOf(f, *manifest)});
  }
  const auto add_text = [&](const std::string& name, std::string_view bytes) {
    manifest->files.push_back({name, bytes.size(), DigestOfFile(bytes, {})});
  };
  for (const auto& [name, text] : plan_.indexes) add_text(name, text);
  if (!trainer.empty()) add_text(kTrainerFileName, trainer);
}

uint64_t CheckpointWriter::DigestOf(size_t file,
                                    const CheckpointManifest& manifest) const {
  std::vector<uint64_t> tensors;
  for (const size_t param : plan_.files[file].tensors) {
    for (const SavedState& state : manifest.params[param].states) {
      if (static_cast<size_t>(state.file) == file) {
        tensors.push_back(state.digest);
      }
    }
  }
  return DigestOfFile(plan_.files[file].head, tensors);
}

Result<std::string> CheckpointWriter::Commit(const CheckpointManifest& manifest,
                                             std::string_view trainer,
                                             bool* in_place) {
  for (const auto& [name, text] : plan_.indexes) {
    CASTOR_RETURN_IF_ERROR(WriteNewFile(At(draft_->path(), name), text));
  }
  if (!trainer.empty()) {
    CASTOR_RETURN_IF_ERROR(
        WriteNewFile(At(draft_->path(), kTrainerFileName), trainer));
  }
  CASTOR_RETURN_IF_ERROR(
      WriteNewFile(At(draft_->path(), kManifestName), WriteManifest(manifest)));
  files_.clear();
  return draft_->Commit(in_place);
}

}  // namespace castor
