// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "chunk/param_spec.h"
#include "chunk/text/quote.h"
#include "chunk/text/units_text.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_plan.h"
#include "collectives/checkpoint/checkpoint_reader.h"
#include "collectives/checkpoint/checkpoint_verify.h"
#include "collectives/checkpoint/files/data_file.h"
#include "collectives/checkpoint/files/tensor_digest.h"
#include "offload/kernels/convert.h"
#include "placement/run_event.h"
#include "tools/cli/text/text_forms.h"
#include "tools/commands/ckpt/ckpt.h"

namespace castor {
namespace {

namespace fs = std::filesystem;

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

// A folder under a name of its own beside the one that is asked for, which goes
// unless it is given that.
class NewFolder {
 public:
  NewFolder() = default;
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder() {
    std::error_code ignored;
    if (!name_.empty()) fs::remove_all(name_, ignored);
  }

  Status Make(const std::string& path) {
    std::error_code error;
    if (fs::exists(fs::symlink_status(path, error))) {
      return InvalidArgument(fmt::format(
          "{} is there already: name a folder that is not", QuotedPath(path)));
    }
    for (int i = 0; i < 1000; ++i) {
      const std::string name =
          fmt::format("{}.castor-{}-{}", path, getpid(), i);
      if (mkdir(name.c_str(), 0777) == 0) {
        name_ = name;
        return OkStatus();
      }
      if (errno != EEXIST) break;
    }
    return IoError(fmt::format(
        "{} could not be made: {}; name a folder in one that exists and may be "
        "written",
        QuotedPath(path), std::strerror(errno)));
  }
  std::string At(const std::string& file) const {
    return (fs::path(name_) / file).string();
  }
  Status Keep(const std::string& path) {
    CASTOR_RETURN_IF_ERROR(SyncFolder(name_));
    if (std::rename(name_.c_str(), path.c_str()) != 0) {
      return IoError(fmt::format("{} could not be given its name: {}",
                                 QuotedPath(path), std::strerror(errno)));
    }
    name_.clear();
    const std::string parent = fs::path(path).lexically_normal().parent_path();
    return SyncFolder(parent.empty() ? "." : parent);
  }

 private:
  std::string name_;  // empty once kept
};

// A parameter's weights on their way.
struct Weights {
  size_t param = 0;
  const SavedState* from = nullptr;
  DType to = DType::kF32;
};

Result<std::vector<Weights>> Choose(const CheckpointManifest& manifest,
                                    std::optional<DType> dtype) {
  std::vector<Weights> chosen;
  for (size_t p = 0; p < manifest.params.size(); ++p) {
    const SavedParam& param = manifest.params[p];
    Weights weights{p, param.Find(kParamName), dtype.value_or(param.dtype)};
    const SavedState* master = param.Find(kMasterName);
    if (weights.to != param.dtype && master != nullptr) weights.from = master;
    if (weights.from->dtype != weights.to && !IsFloat(weights.from->dtype)) {
      return InvalidArgument(fmt::format(
          "parameter {} is {}, which is not converted to {}: leave --dtype "
          "away",
          Quoted(param.name), DTypeName(weights.from->dtype),
          DTypeName(weights.to)));
    }
    chosen.push_back(weights);
  }
  return chosen;
}

// Damage is not passed on: what is read must be what was saved.
Status Write(const CheckpointReader& reader, const Weights& weights,
             uint64_t offset, DataFile* file) {
  const DType from = weights.from->dtype;
  const uint64_t size = static_cast<uint64_t>(DTypeBits(weights.to) / 8);
  std::vector<float> values;
  std::vector<std::byte> converted;
  uint64_t digest = 0;
  Status written;
  CASTOR_RETURN_IF_ERROR(ForEachPiece(
      reader, weights.param, *weights.from,
      [&](int64_t begin, int64_t count, const void* data) {
        digest += DigestOfElements(data, from, begin, count);
        if (from != weights.to) {
          values.resize(static_cast<size_t>(count));
          converted.resize(static_cast<size_t>(count) * size);
          ConvertToFloat(data, from, count, values.data());
          ConvertFromFloat(values.data(), count, weights.to, converted.data());
          data = converted.data();
        }
        if (!written.ok()) return;
        written = file->WriteAt(offset + static_cast<uint64_t>(begin) * size,
                                data, static_cast<uint64_t>(count) * size);
      }));
  CASTOR_RETURN_IF_ERROR(written);
  if (reader.weights_only() || digest == weights.from->digest) {
    return OkStatus();
  }
  const SavedParam& param = reader.manifest().params[weights.param];
  return DataLoss(fmt::format(
      "{}: tensor {} does not hold what was saved; copy the checkpoint again, "
      "or convert an older one",
      QuotedPath(reader.folder()),
      Quoted(TensorNameOf(param.name, weights.from->state))));
}

Document ConvertDocument(const CkptRequest& request,
                         const CheckpointReader& reader,
                         const TensorFiles& plan) {
  uint64_t bytes = 0;
  for (const TensorFile& file : plan.files) bytes += file.bytes;
  Document document("castor.ckpt.convert/1");
  document.Set("from", reader.folder());
  document.Set("step",
               reader.weights_only() ? Value() : Value(reader.manifest().step));
  document.Set("to", request.out);
  document.Set("dtype",
               request.dtype ? Value(DTypeName(*request.dtype)) : Value());
  document.Set("size_bytes", bytes);
  document.Set(
      "files", ListOf(plan.files, [](const TensorFile& file) {
        return Fields({{"name", file.name}, {"size_bytes", file.bytes}});
      }));
  document.Text(fmt::format(
      "{}: {} of weights in {}{}{}\n", request.out,
      FormatSize(Bytes(static_cast<int64_t>(bytes))),
      Plural(std::ssize(plan.files), "file"),
      reader.weights_only()
          ? ""
          : fmt::format(", of step {}", reader.manifest().step),
      request.dtype ? fmt::format(", as {}", DTypeName(*request.dtype)) : ""));
  return document;
}

}  // namespace

Status RunCkptConvert(const CkptRequest& request, const Console& console) {
  CASTOR_ASSIGN_OR_RETURN(
      const CheckpointReader reader,
      CheckpointReader::Find(request.directory, request.step));
  CASTOR_ASSIGN_OR_RETURN(const std::vector<Weights> chosen,
                          Choose(reader.manifest(), request.dtype));
  std::vector<ParamSpec> tensors;
  for (const Weights& weights : chosen) {
    const SavedParam& param = reader.manifest().params[weights.param];
    tensors.push_back({param.name, param.shape, weights.to, param.trainable});
  }
  CASTOR_ASSIGN_OR_RETURN(
      const TensorFiles plan,
      PlanTensorFiles(kModelStem, tensors, request.max_file));
  NewFolder folder;
  CASTOR_RETURN_IF_ERROR(folder.Make(request.out));
  for (size_t f = 0; f < plan.files.size(); ++f) {
    const TensorFile& planned = plan.files[f];
    CASTOR_ASSIGN_OR_RETURN(
        DataFile file,
        DataFile::Create(folder.At(planned.name), planned.bytes));
    CASTOR_RETURN_IF_ERROR(
        file.WriteAt(0, planned.head.data(), planned.head.size()));
    for (const size_t t : planned.tensors) {
      CASTOR_RETURN_IF_ERROR(
          Write(reader, chosen[t], plan.places[t].offset, &file));
    }
    CASTOR_RETURN_IF_ERROR(file.Sync());
  }
  if (!plan.index.empty()) {
    CASTOR_RETURN_IF_ERROR(
        WriteNewFile(folder.At(plan.index_name), plan.index));
  }
  CASTOR_RETURN_IF_ERROR(folder.Keep(request.out));
  Print(ConvertDocument(request, reader, plan), request.form, console);
  return OkStatus();
}

}  // namespace castor
