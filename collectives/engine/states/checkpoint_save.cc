// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// How an engine's states become a checkpoint. Rank 0 makes the files, and every
// rank writes the elements it counts where they belong: files of whole tensors,
// and nothing passes between ranks but digests.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "chunk/text/quote.h"
#include "collectives/checkpoint/checkpoint_folder.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_plan.h"
#include "collectives/checkpoint/checkpoint_writer.h"
#include "collectives/checkpoint/files/tensor_digest.h"
#include "collectives/engine/states/checkpoint_io.h"
#include "collectives/engine/states/engine_scalars.h"
#include "offload/kernels/convert.h"
#include "offload/kernels/optimizer_options.h"
#include "offload/lanes/event.h"
#include "offload/lanes/executor.h"

namespace castor::internal {

class CheckpointIo::Saving {
 public:
  Saving(CheckpointIo* io, const SaveOptions& options)
      : io_(*io), options_(options) {}

  // Where it will be, and its size as far as it is known.
  const SaveResult& coming() const { return result_; }

  // What ranks do together before the first element is written.
  Status Begin() {
    result_.step = io_.progress_.steps;
    scalars_ = ScalarsOf(io_.model_.options.optimizer, io_.scalars_.scaler,
                         io_.scalars_.groups);
    steps_ = io_.scalars_.updates;
    return io_.words_.AgreeOn(Prepare(), HashOfInputs(), "save");
  }

  void Write() { status_ = WriteShards(); }

  // As Write, but on a lane of its own, behind what is queued on the states
  // now: what is queued later waits until they are read. A drive may take
  // seconds, so the lane has a thread of its own, not one that trains.
  void QueueWrites() {
    lane_ = std::make_unique<WorkerLane>(
        fmt::format("rank {} save", io_.model_.comm->rank()), &*thread_);
    ForEachShard([this](ChunkId chunk, StateKind kind) {
      QueueShard(chunk, kind);
      return OkStatus();
    }).IgnoreError();
    lane_->Run([this] {
      if (status_.ok()) status_ = writer_->Sync();
      return OkStatus();
    });
    queued_ = lane_->Record();
  }

  // Whether what this rank queued is done.
  bool idle() const { return queued_.done(); }
  bool committing() const { return committing_; }

  // Waits for the writes, and begins to make them a checkpoint. What fails is
  // told by End.
  void BeginCommit() {
    committing_ = true;
    written_ = AgreeOnWrites();
    if (!written_.ok() || !first()) return;
    if (lane_ == nullptr) {
      status_ = Finish(Manifest());
      return;
    }
    lane_->Run([this, manifest = Manifest()] {
      status_ = Finish(manifest);
      return OkStatus();
    });
    queued_ = lane_->Record();
  }

  // Waits for what was queued, and tells what became of it.
  Result<SaveResult> End() {
    if (!committing_) BeginCommit();
    if (!written_.ok()) return written_.WithContext(kNothingSaved);
    Drain();
    // The checkpoint is there all the same.
    if (!removed_.ok()) io_.model_.options.log->Warning(removed_.ToString());
    const Status agreed = io_.words_.AgreeOn(status_, 0, "checkpoint");
    if (agreed.ok()) return result_;
    if (io_.model_.comm->Health().ok()) return agreed;
    // A world that ended cannot tell what rank 0 did.
    if (!first()) {
      return agreed.WithContext(
          fmt::format("{} is a whole checkpoint if it is there, which only "
                      "rank 0 knows",
                      QuotedPath(result_.path)));
    }
    return status_.ok()
               ? agreed.WithContext(fmt::format("the checkpoint {} is in place",
                                                QuotedPath(result_.path)))
               : status_;
  }

 private:
  static constexpr char kNothingSaved[] = "nothing was saved";

  bool first() const { return io_.model_.comm->rank() == 0; }

  void Drain() {
    if (lane_ == nullptr) return;
    const Status drained = lane_->Drain();
    if (status_.ok()) status_ = drained;
  }

  Status AgreeOnWrites() {
    Drain();
    // What the engine itself lost ends the world.
    CASTOR_RETURN_IF_ERROR(io_.health_.status());
    CASTOR_RETURN_IF_ERROR(io_.words_.AgreeOn(status_, 0, "saved"));
    CASTOR_RETURN_IF_ERROR(
        io_.words_.SumOverRanks(writer_->digests(), "digests"));
    result_.bytes = Bytes(static_cast<int64_t>(Manifest().bytes()));
    return OkStatus();
  }

  Status StartThread() try {
    if (!options_.wait) thread_.emplace(1);
    return OkStatus();
  } catch (const std::system_error& error) {
    return Unavailable(fmt::format(
        "a save that does not wait needs a thread, and the system gives none: "
        "{}; raise the limit on threads, or let saves wait",
        error.what()));
  }

  uint64_t HashOfInputs() const {
    return DigestOfFile(
        fmt::format("{} {} {} {}", options_.directory, io_.progress_.steps,
                    options_.max_file.count(), options_.keep),
        {});
  }

  Status Prepare() {
    if (options_.directory.empty() || options_.max_file <= Bytes(0) ||
        options_.keep < 0) {
      return InvalidArgument(fmt::format(
          "cannot save to {} in files of {} bytes, keeping {}: name a folder, "
          "at least a byte, and no negative number of checkpoints",
          QuotedPath(options_.directory), options_.max_file.count(),
          options_.keep));
    }
    CASTOR_ASSIGN_OR_RETURN(
        CheckpointWriter writer,
        CheckpointWriter::Plan(options_.directory, result_.step,
                               io_.ParamsWithStates(),
                               io_.model_.sharding.states, options_.max_file));
    CASTOR_RETURN_IF_ERROR(StartThread());
    writer_.emplace(std::move(writer));
    result_.path = writer_->path();
    if (!first()) return OkStatus();
    CASTOR_RETURN_IF_ERROR(writer_->CreateFiles());
    CASTOR_ASSIGN_OR_RETURN(io_.held_folders_[options_.directory],
                            FolderHold::Take(options_.directory));
    return OkStatus();
  }

  template <typename OnShard>
  Status ForEachShard(const OnShard& on_shard) const {
    for (size_t c = 0; c < io_.model_.chunks(); ++c) {
      const ChunkId chunk(static_cast<int32_t>(c));
      for (int k = 0; k < kStateKinds; ++k) {
        const StateKind kind = static_cast<StateKind>(k);
        if (!IsSaved(kind) || !io_.memory_.store().has(chunk, kind)) continue;
        CASTOR_RETURN_IF_ERROR(on_shard(chunk, kind));
      }
    }
    return OkStatus();
  }

  Status WriteShards() {
    std::vector<std::byte> shard;
    CASTOR_RETURN_IF_ERROR(
        ForEachShard([&](ChunkId chunk, StateKind kind) -> Status {
          CASTOR_RETURN_IF_ERROR(io_.model_.comm->Health());
          return ReadAndWrite(chunk, kind, &shard);
        }));
    return writer_->Sync();
  }

  Status ReadAndWrite(ChunkId chunk, StateKind kind,
                      std::vector<std::byte>* shard) {
    CASTOR_RETURN_IF_ERROR(Read(chunk, kind, shard));
    return WriteShard(chunk, kind, Counted(chunk), shard->data());
  }

  Status Read(ChunkId chunk, StateKind kind, std::vector<std::byte>* shard) {
    const ByteRange range = io_.model_.RangeBytes(chunk, kind, Counted(chunk));
    shard->resize(static_cast<size_t>(range.size().count()));
    if (Status read =
            io_.memory_.store().ReadNow(chunk, kind, range, shard->data());
        !read.ok()) {
      return io_.health_.Fail(read);
    }
    return OkStatus();
  }

  void QueueShard(ChunkId chunk, StateKind kind) {
    const StagingRing& staging = io_.memory_.store().staging();
    const bool at_hand = io_.memory_.store().home(chunk, kind) == Tier::kHost;
    if (!at_hand &&
        (staging.slots() == 0 ||
         staging.slot_bytes() < io_.memory_.store().piece(chunk, kind))) {
      // There is no way that it could wait on: it is read at once.
      auto shard = std::make_shared<std::vector<std::byte>>();
      Drain();  // one at a time
      if (status_.ok()) status_ = Read(chunk, kind, shard.get());
      if (!status_.ok()) return;
      lane_->Run([this, chunk, kind, shard] {
        status_ = WriteShard(chunk, kind, Counted(chunk), shard->data());
        return OkStatus();
      });
      return;
    }
    for (const ShardRange& range :
         io_.memory_.WithinPieces(chunk, Counted(chunk))) {
      HostWindow window = io_.memory_.store().OpenWindow(
          chunk, kind, io_.model_.RangeBytes(chunk, kind, range),
          WindowMode::kRead, RunCause::kNone);
      lane_->Wait(window.ready);
      lane_->Run([this, chunk, kind, range, bytes = window.bytes()] {
        if (status_.ok()) {
          status_ = WriteShard(chunk, kind, range, bytes.get());
        }
        return OkStatus();
      });
      io_.memory_.store().CloseWindow(std::move(window), lane_->Record());
    }
  }

  // The elements that this rank counts: all ranks' together are all there are.
  ShardRange Counted(ChunkId chunk) const { return io_.model_.counted(chunk); }

  // `shard`: the bytes of the range.
  Status WriteShard(ChunkId chunk, StateKind kind, ShardRange range,
                    const std::byte* shard) {
    const DType dtype = io_.model_.dtype(kind, chunk);
    for (const Segment& segment : io_.model_.Segments(chunk, range)) {
      const std::byte* data =
          shard + BytesOf(Elements(segment.offset), dtype).count();
      if (SavedDType(dtype) != dtype) {
        CASTOR_RETURN_IF_ERROR(WriteConverted(segment, kind, dtype, data));
        continue;
      }
      CASTOR_RETURN_IF_ERROR(writer_->Write(segment.param.index(), kind, dtype,
                                            segment.begin, segment.count,
                                            data));
    }
    return OkStatus();
  }

  // What no file has is fp32 there.
  Status WriteConverted(const Segment& segment, StateKind kind, DType dtype,
                        const std::byte* data) {
    constexpr int64_t kAtOnce = int64_t{1} << 18;
    std::vector<float> values;
    for (int64_t done = 0; done < segment.count; done += kAtOnce) {
      const int64_t count = std::min(kAtOnce, segment.count - done);
      values.resize(static_cast<size_t>(count));
      ConvertToFloat(data + BytesOf(Elements(done), dtype).count(), dtype,
                     count, values.data());
      CASTOR_RETURN_IF_ERROR(writer_->Write(
          segment.param.index(), kind, DType::kF32, segment.begin + done, count,
          reinterpret_cast<const std::byte*>(values.data())));
    }
    return OkStatus();
  }

  CheckpointManifest Manifest() const {
    CheckpointManifest manifest;
    manifest.step = result_.step;
    manifest.world = io_.model_.comm->world();
    manifest.stage = io_.model_.options.stage;
    manifest.optimizer = OptimizerName(io_.model_.options.optimizer.kind);
    manifest.engine = scalars_;
    writer_->Describe(steps_, options_.trainer, &manifest);
    return manifest;
  }

  // On rank 0: what all ranks wrote is on the drive.
  Status Finish(const CheckpointManifest& manifest) {
    bool in_place = false;
    const Status committed =
        writer_->Commit(manifest, options_.trainer, &in_place).status();
    if (!committed.ok()) {
      return in_place ? committed : committed.WithContext(kNothingSaved);
    }
    if (options_.keep > 0) {
      removed_ =
          RemoveOldCheckpoints(options_.directory, options_.keep, result_.step);
    }
    return OkStatus();
  }

  CheckpointIo& io_;
  const SaveOptions options_;
  SaveResult result_;
  // As they were when the save began.
  EngineScalars scalars_;
  std::vector<int64_t> steps_;  // by ParamId
  // Of what is queued, until the lane is drained, with the first failure.
  std::optional<CheckpointWriter> writer_;
  Status status_;
  Status removed_;  // whether old checkpoints could be
  Event queued_;    // all of what is queued
  // Whether all ranks' writes are done, once it commits.
  bool committing_ = false;
  Status written_;
  std::optional<ThreadPool> thread_;  // of a save that does not wait
  // Goes first: it waits for what is queued.
  std::unique_ptr<WorkerLane> lane_;
};

CheckpointIo::~CheckpointIo() = default;

Result<SaveResult> CheckpointIo::Save(const SaveOptions& options) {
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

void CheckpointIo::DropSave() { saving_.reset(); }

Status CheckpointIo::EndSave() {
  if (saving_ == nullptr) return OkStatus();
  const std::shared_ptr<Saving> saving = std::exchange(saving_, nullptr);
  saved_ = saving->End();
  if (!saved_->ok()) {
    model_.options.log->Warning(saved_->status().ToString());
  }
  return health_.status();
}

Status CheckpointIo::AdvanceSave() {
  if (saving_ == nullptr) return OkStatus();
  int64_t idle = saving_->idle() ? 1 : 0;
  model_.comm->AllReduce(*lanes_.comm, &idle, Elements(1), DType::kI64,
                         ReduceOp::kMin, {ChunkId(), -1, "save"});
  CASTOR_RETURN_IF_ERROR(lanes_.comm->Record().Wait());
  if (idle == 0) return OkStatus();
  if (saving_->committing()) return EndSave();
  saving_->BeginCommit();
  return health_.status();
}

Result<SaveResult> CheckpointIo::FinishSave() {
  CASTOR_RETURN_IF_ERROR(EndSave());
  if (!saved_.has_value()) {
    return FailedPrecondition(
        "no save was begun in the background: begin one by Save() first");
  }
  return *std::exchange(saved_, std::nullopt);
}

std::vector<ParamWithStates> CheckpointIo::ParamsWithStates() const {
  std::vector<ParamWithStates> params;
  for (size_t p = 0; p < model_.params.size(); ++p) {
    ParamWithStates param{model_.params[p].spec, {}};
    const ChunkId chunk = model_.chunk_of(ParamId(static_cast<int32_t>(p)));
    for (int k = 0; k < kStateKinds; ++k) {
      const StateKind kind = static_cast<StateKind>(k);
      if (!chunk.valid() && kind == StateKind::kParam) {
        param.states.push_back({kind, param.spec.dtype});
      }
      if (!chunk.valid() || !IsSaved(kind) ||
          !memory_.store().has(chunk, kind)) {
        continue;
      }
      param.states.push_back({kind, SavedDType(model_.dtype(kind, chunk))});
    }
    params.push_back(std::move(param));
  }
  return params;
}

}  // namespace castor::internal
