// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// How an engine's states become a checkpoint. Rank 0 makes the files, of the
// size they will have, and every rank writes the elements it counts where they
// belong: files of whole tensors, and nothing passes between ranks but digests.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/quote.h"
#include "collectives/checkpoint/checkpoint_folder.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_plan.h"
#include "collectives/checkpoint/data_file.h"
#include "collectives/checkpoint/tensor_digest.h"
#include "collectives/zero_engine_impl.h"
#include "offload/kernels/optimizer_options.h"

namespace castor {
namespace {

// Of a failure that one rank tells the others.
constexpr size_t kMostMessage = 2048;

std::string At(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

}  // namespace

class ZeroEngine::Impl::Saving {
 public:
  Saving(Impl* engine, const SaveOptions& options)
      : engine_(*engine), options_(options) {}

  // Where it will be, and its size as far as it is known.
  const SaveResult& coming() const { return result_; }

  // What ranks do together before the first element is written.
  Status Begin() {
    result_.step = engine_.step_;
    result_.path = At(options_.directory, CheckpointName(result_.step));
    scalars_ = engine_.Scalars();
    for (const Param& param : engine_.params_) steps_.push_back(param.steps);
    Status status = Plan();
    if (status.ok() && first()) status = Prepare();
    return engine_.AgreeOn(status, HashOfInputs(), "save");
  }

  void Write() { status_ = WriteShards(); }

  // As Write, but on a lane of its own, behind what is queued on the states
  // now: what is queued later waits until they are read.
  void QueueWrites() {
    lane_ = std::make_unique<WorkerLane>(
        fmt::format("rank {} save", engine_.comm_->rank()),
        engine_.options_.executor);
    ForEachShard([this](ChunkId chunk, StateKind kind) {
      QueueShard(chunk, kind);
      return OkStatus();
    }).IgnoreError();
    lane_->Run([this] {
      if (status_.ok()) status_ = SyncFiles();
      return OkStatus();
    });
  }

  // Waits for what was queued, and makes it a checkpoint.
  Result<SaveResult> End() {
    if (lane_ != nullptr) {
      const Status drained = lane_->Drain();
      if (status_.ok()) status_ = drained;
    }
    // What the engine itself lost ends the world.
    CASTOR_RETURN_IF_ERROR(engine_.Health());
    CASTOR_RETURN_IF_ERROR(engine_.AgreeOn(status_, 0, "saved"));
    CASTOR_RETURN_IF_ERROR(AddDigests());
    const CheckpointManifest manifest = Manifest();
    result_.bytes = Bytes(static_cast<int64_t>(manifest.bytes()));
    Status status;
    if (first()) status = Finish(manifest);
    CASTOR_RETURN_IF_ERROR(engine_.AgreeOn(status, 0, "checkpoint"));
    return result_;
  }

 private:
  bool first() const { return engine_.comm_->rank() == 0; }

  uint64_t HashOfInputs() const {
    return DigestOfFile(
        fmt::format("{} {} {} {}", options_.directory, engine_.step_,
                    options_.max_file.count(), options_.keep),
        {});
  }

  Status Plan() {
    if (options_.directory.empty() || options_.max_file <= Bytes(0) ||
        options_.keep < 0) {
      return InvalidArgument(fmt::format(
          "cannot save to {} in files of {} bytes, keeping {}: name a folder, "
          "at least a byte, and no negative number of checkpoints",
          QuotedPath(options_.directory), options_.max_file.count(),
          options_.keep));
    }
    std::vector<ParamToSave> params;
    for (size_t p = 0; p < engine_.params_.size(); ++p) {
      ParamToSave param{engine_.params_[p].spec, {}};
      const ChunkId chunk =
          engine_.layout_->place(ParamId(static_cast<int32_t>(p))).chunk;
      for (int k = 0; k < kStateKinds; ++k) {
        const StateKind kind = static_cast<StateKind>(k);
        if (!chunk.valid() && kind == StateKind::kParam) {
          param.states.push_back({kind, param.spec.dtype});
        }
        if (!chunk.valid() || !IsSaved(kind) ||
            !engine_.store_->has(chunk, kind)) {
          continue;
        }
        param.states.push_back(
            {kind, engine_.sharding_.dtype(kind, engine_.GroupOf(chunk))});
      }
      params.push_back(std::move(param));
    }
    CASTOR_ASSIGN_OR_RETURN(plan_, PlanCheckpoint(params, options_.max_file));
    params_ = std::move(params);
    files_.resize(plan_.files.size());
    digests_.resize(params_.size() * kStateKinds);
    return OkStatus();
  }

  // All files, with what stands before the data.
  Status Prepare() {
    CASTOR_ASSIGN_OR_RETURN(
        CheckpointDraft draft,
        CheckpointDraft::Create(options_.directory, result_.step,
                                kOptimizerFolder));
    draft_.emplace(std::move(draft));
    for (size_t f = 0; f < plan_.files.size(); ++f) {
      const TensorFile& file = plan_.files[f];
      CASTOR_ASSIGN_OR_RETURN(
          DataFile made,
          DataFile::Create(At(draft_->path(), file.name), file.bytes));
      CASTOR_RETURN_IF_ERROR(
          made.WriteAt(0, file.head.data(), file.head.size()));
      files_[f].emplace(std::move(made));
    }
    return OkStatus();
  }

  Result<DataFile*> FileAt(size_t index) {
    std::optional<DataFile>& file = files_[index];
    if (!file.has_value()) {
      CASTOR_ASSIGN_OR_RETURN(
          DataFile opened,
          DataFile::OpenToWrite(At(DraftPath(options_.directory, result_.step),
                                   plan_.files[index].name)));
      file.emplace(std::move(opened));
    }
    return &*file;
  }

  template <typename OnShard>
  Status ForEachShard(const OnShard& on_shard) const {
    for (size_t c = 0; c < engine_.layout_->chunks().size(); ++c) {
      const ChunkId chunk(static_cast<int32_t>(c));
      for (int k = 0; k < kStateKinds; ++k) {
        const StateKind kind = static_cast<StateKind>(k);
        if (!IsSaved(kind) || !engine_.store_->has(chunk, kind)) continue;
        CASTOR_RETURN_IF_ERROR(on_shard(chunk, kind));
      }
    }
    return OkStatus();
  }

  Status WriteShards() {
    std::vector<std::byte> shard;
    CASTOR_RETURN_IF_ERROR(
        ForEachShard([&](ChunkId chunk, StateKind kind) -> Status {
          CASTOR_RETURN_IF_ERROR(engine_.comm_->Health());
          return ReadAndWrite(chunk, kind, &shard);
        }));
    return SyncFiles();
  }

  Status ReadAndWrite(ChunkId chunk, StateKind kind,
                      std::vector<std::byte>* shard) {
    const ByteRange range = CountedBytes(chunk, kind);
    shard->resize(static_cast<size_t>(range.size().count()));
    if (Status read =
            engine_.store_->ReadNow(chunk, kind, range, shard->data());
        !read.ok()) {
      return engine_.Fail(read);
    }
    return WriteShard(chunk, kind, shard->data());
  }

  void QueueShard(ChunkId chunk, StateKind kind) {
    const StagingRing& staging = engine_.store_->staging();
    const bool at_hand = engine_.store_->home(chunk, kind) == Tier::kHost;
    if (!at_hand &&
        (staging.slots() == 0 ||
         staging.slot_bytes() < engine_.store_->bytes(chunk, kind))) {
      // There is no way that it could wait on: it is read at once.
      auto shard = std::make_shared<std::vector<std::byte>>();
      lane_->Drain().IgnoreError();  // one at a time
      if (status_.ok()) status_ = ReadAndWrite(chunk, kind, shard.get());
      return;
    }
    HostWindow window =
        engine_.store_->OpenWindow(chunk, kind, CountedBytes(chunk, kind),
                                   WindowMode::kRead, RunCause::kNone);
    lane_->Wait(window.ready);
    lane_->Run([this, chunk, kind, bytes = window.bytes()] {
      if (status_.ok()) status_ = WriteShard(chunk, kind, bytes.get());
      return OkStatus();
    });
    engine_.store_->CloseWindow(std::move(window), lane_->Record());
  }

  // The elements that this rank counts: all ranks' together are all there are.
  ByteRange CountedBytes(ChunkId chunk, StateKind kind) const {
    return engine_.RangeBytes(
        chunk, kind, engine_.sharding_.counted(*engine_.layout_, chunk));
  }

  // `shard`: the bytes of these.
  Status WriteShard(ChunkId chunk, StateKind kind, const std::byte* shard) {
    const DType dtype = engine_.sharding_.dtype(kind, engine_.GroupOf(chunk));
    const ShardRange counted =
        engine_.sharding_.counted(*engine_.layout_, chunk);
    for (const Segment& segment : engine_.Segments(chunk, counted)) {
      const std::byte* data =
          shard + BytesOf(Elements(segment.offset), dtype).count();
      const size_t param = segment.param.index();
      const TensorPlace& place = plan_.places[param][static_cast<size_t>(kind)];
      CASTOR_ASSIGN_OR_RETURN(DataFile* const file, FileAt(place.file));
      CASTOR_RETURN_IF_ERROR(file->WriteAt(
          place.offset + static_cast<uint64_t>(
                             BytesOf(Elements(segment.begin), dtype).count()),
          data,
          static_cast<uint64_t>(
              BytesOf(Elements(segment.count), dtype).count())));
      digests_[param * kStateKinds + static_cast<size_t>(kind)] +=
          DigestOfElements(data, dtype, segment.begin, segment.count);
    }
    return OkStatus();
  }

  Status SyncFiles() {
    for (std::optional<DataFile>& file : files_) {
      if (file.has_value()) CASTOR_RETURN_IF_ERROR(file->Sync());
    }
    return OkStatus();
  }

  Status AddDigests() {
    if (engine_.comm_->world() == 1 || digests_.empty()) return OkStatus();
    engine_.comm_->AllReduce(*engine_.comm_lane_, digests_.data(),
                             Elements(static_cast<int64_t>(digests_.size())),
                             DType::kU64, ReduceOp::kSum,
                             {ChunkId(), -1, "digests"});
    return engine_.comm_lane_->Record().Wait();
  }

  CheckpointManifest Manifest() const {
    CheckpointManifest manifest;
    manifest.step = result_.step;
    manifest.world = engine_.comm_->world();
    manifest.stage = engine_.options_.stage;
    manifest.optimizer = OptimizerName(engine_.options_.optimizer.kind);
    manifest.engine = scalars_;
    for (size_t p = 0; p < params_.size(); ++p) {
      const ParamSpec& spec = params_[p].spec;
      SavedParam saved{spec.name,      spec.dtype, spec.shape,
                       spec.trainable, steps_[p],  {}};
      for (const ParamToSave::State& state : params_[p].states) {
        const size_t k = static_cast<size_t>(state.state);
        saved.states.push_back({state.state, state.dtype,
                                static_cast<int32_t>(plan_.places[p][k].file),
                                digests_[p * kStateKinds + k]});
      }
      manifest.params.push_back(std::move(saved));
    }
    for (size_t f = 0; f < plan_.files.size(); ++f) {
      manifest.files.push_back(
          {plan_.files[f].name, plan_.files[f].bytes, DigestOf(f, manifest)});
    }
    const auto add_text = [&](const std::string& name,
                              const std::string& bytes) {
      manifest.files.push_back({name, bytes.size(), DigestOfFile(bytes, {})});
    };
    for (const auto& [name, text] : plan_.indexes) add_text(name, text);
    if (!options_.trainer.empty()) add_text(kTrainerFileName, options_.trainer);
    return manifest;
  }

  uint64_t DigestOf(size_t file, const CheckpointManifest& manifest) const {
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

  // On rank 0: what all ranks wrote is on the drive.
  Status Finish(const CheckpointManifest& manifest) {
    for (const auto& [name, text] : plan_.indexes) {
      CASTOR_RETURN_IF_ERROR(WriteNewFile(At(draft_->path(), name), text));
    }
    if (!options_.trainer.empty()) {
      CASTOR_RETURN_IF_ERROR(
          WriteNewFile(At(draft_->path(), kTrainerFileName), options_.trainer));
    }
    CASTOR_RETURN_IF_ERROR(WriteNewFile(At(draft_->path(), kManifestName),
                                        WriteManifest(manifest)));
    files_.clear();
    CASTOR_ASSIGN_OR_RETURN(const std::string path, draft_->Commit());
    if (options_.keep > 0) {
      const Status removed =
          RemoveOldCheckpoints(options_.directory, options_.keep, path);
      // The checkpoint is there all the same.
      if (!removed.ok()) engine_.options_.log->Warning(removed.ToString());
    }
    return OkStatus();
  }

  Impl& engine_;
  const SaveOptions options_;
  SaveResult result_;
  // As they were when the save began.
  EngineScalars scalars_;
  std::vector<int64_t> steps_;  // by ParamId
  std::vector<ParamToSave> params_;
  CheckpointPlan plan_;
  std::optional<CheckpointDraft> draft_;  // of rank 0
  // Of what is queued, until the lane is drained: first failure, files by index
  // once used, digests by parameter and then StateKind.
  Status status_;
  std::vector<std::optional<DataFile>> files_;
  std::vector<uint64_t> digests_;
  // Goes first: it waits for what is queued.
  std::unique_ptr<WorkerLane> lane_;
};

Result<SaveResult> ZeroEngine::Impl::Save(const SaveOptions& options) {
  CASTOR_RETURN_IF_ERROR(RequireStates());
  CASTOR_RETURN_IF_ERROR(RequireBetweenSteps("Save"));
  CASTOR_RETURN_IF_ERROR(EndSave());
  auto saving = std::make_shared<Saving>(this, options);
  CASTOR_RETURN_IF_ERROR(saving->Begin());
  if (options.wait) {
    saving->Write();
    return saving->End();
  }
  saving->QueueWrites();
  saving_ = std::move(saving);
  return saving_->coming();
}

Status ZeroEngine::Impl::EndSave() {
  if (saving_ == nullptr) return OkStatus();
  const std::shared_ptr<Saving> saving = std::exchange(saving_, nullptr);
  saved_ = saving->End();
  if (!saved_->ok()) {
    options_.log->Warning(
        saved_->status().WithContext("nothing was saved").ToString());
  }
  return Health();
}

Result<SaveResult> ZeroEngine::Impl::FinishSave() {
  CASTOR_RETURN_IF_ERROR(RequireStates());
  CASTOR_RETURN_IF_ERROR(EndSave());
  if (!saved_.has_value()) {
    return FailedPrecondition(
        "no save was begun: call Save with wait = false first");
  }
  return *std::exchange(saved_, std::nullopt);
}

Status ZeroEngine::Impl::RequireBetweenSteps(std::string_view call) const {
  CASTOR_RETURN_IF_ERROR(RequireNothingOpen(call));
  if (micro_batches_ == 0) return OkStatus();
  return FailedPrecondition(
      fmt::format("a step is half done: call Step or Abandon before {}", call));
}

EngineScalars ZeroEngine::Impl::Scalars() const {
  EngineScalars scalars = {{"optimizer_seed", options_.optimizer.seed}};
  if (scaler_.looks_for_overflow()) {
    const LossScaleState& state = scaler_.state();
    scalars.emplace("loss_scale", state.scale);
    scalars.emplace("loss_scale_clean_steps", state.clean_steps);
    scalars.emplace("loss_scale_overflows_left", int64_t{state.overflows_left});
    scalars.emplace("loss_scale_skipped_steps", state.skipped_steps);
  }
  for (const auto& [group, lr] : groups_.GivenRates()) {
    std::string name = kLearningRateScalar;
    if (!group.empty()) name.append(".").append(group);
    scalars.emplace(std::move(name), lr);
  }
  return scalars;
}

// In two rounds, so that the usual answer is one small all-reduce: which rank
// failed first, if any, and what it has to say.
Status ZeroEngine::Impl::AgreeOn(const Status& own, uint64_t same,
                                 std::string_view purpose) {
  const int world = comm_->world();
  if (world == 1) return own;
  const CollectiveTag tag{ChunkId(), -1, purpose};
  const int64_t hash = static_cast<int64_t>(same >> 2);
  std::array<int64_t, 3> least = {own.ok() ? world : comm_->rank(), hash,
                                  -hash};
  comm_->AllReduce(*comm_lane_, least.data(), Elements(least.size()),
                   DType::kI64, ReduceOp::kMin, tag);
  CASTOR_RETURN_IF_ERROR(comm_lane_->Record().Wait());
  if (least[0] == world) {
    if (least[1] == -least[2]) return OkStatus();
    return InvalidArgument(fmt::format(
        "the ranks do not {} the same: folder, step, options and files must be "
        "the same on every rank",
        purpose));
  }
  std::array<uint64_t, 2 + kMostMessage / sizeof(uint64_t)> words = {};
  if (least[0] == comm_->rank()) {
    const size_t length = std::min(own.message().size(), kMostMessage);
    words[0] = static_cast<uint64_t>(own.code());
    words[1] = length;
    std::memcpy(words.data() + 2, own.message().data(), length);
  }
  comm_->AllReduce(*comm_lane_, words.data(), Elements(words.size()),
                   DType::kU64, ReduceOp::kSum, tag);
  CASTOR_RETURN_IF_ERROR(comm_lane_->Record().Wait());
  const std::string message(reinterpret_cast<const char*>(words.data() + 2),
                            words[1]);
  return Status(static_cast<ErrorCode>(words[0]),
                fmt::format("rank {}: {}", least[0], message));
}

}  // namespace castor
