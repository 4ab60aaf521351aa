// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// How a checkpoint becomes an engine's states. Every rank reads the elements it
// keeps, wherever they were saved from.

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "chunk/text/quote.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_plan.h"
#include "collectives/checkpoint/checkpoint_reader.h"
#include "collectives/checkpoint/files/tensor_digest.h"
#include "collectives/checkpoint/load_sources.h"
#include "collectives/engine/states/checkpoint_io.h"
#include "collectives/engine/states/engine_scalars.h"
#include "offload/kernels/convert.h"

namespace castor::internal {

class CheckpointIo::Loading {
 public:
  Loading(CheckpointIo* io, const LoadOptions& options)
      : io_(*io),
        options_(options),
        scaler_(io->scalars_.scaler),
        groups_(io->scalars_.groups) {}

  Result<LoadResult> Run() {
    LoadResult result;
    const Status opened = Open(&result);
    CASTOR_RETURN_IF_ERROR(io_.words_.AgreeOn(
        opened, reader_.has_value() ? reader_->manifest_digest() : 0, "load"));
    if (options_.trainer_only) return result;
    if (options_.verify && reader_->has_digests()) {
      CASTOR_RETURN_IF_ERROR(Verify());
    }
    // From here on there is no way back.
    io_.memory_.DropCopies();
    const Status read = ReadShards();
    CASTOR_RETURN_IF_ERROR(io_.health_.status());
    const Status agreed = io_.words_.AgreeOn(read, 0, "loaded");
    if (!agreed.ok()) {
      return io_.health_.Fail(agreed.WithContext(
          "the engine's states are half of one training, half of another"));
    }
    TakeCounts();
    return result;
  }

 private:
  Status Open(LoadResult* result) {
    CASTOR_ASSIGN_OR_RETURN(
        CheckpointReader reader,
        CheckpointReader::Find(options_.directory, options_.step));
    reader_.emplace(std::move(reader));
    const CheckpointManifest& manifest = reader_->manifest();
    if (reader_->weights_only() && options_.optimizer_states) {
      return InvalidArgument(fmt::format(
          "{} holds weights alone, and no training goes on from those; begin "
          "one with them (optimizer_states = false)",
          QuotedPath(options_.directory)));
    }
    result->path =
        reader_->weights_only() ? options_.directory : reader_->folder();
    result->step = manifest.step;
    result->world = manifest.world;
    CASTOR_ASSIGN_OR_RETURN(result->trainer, reader_->ReadTrainer());
    return FindSources().WithContext(QuotedPath(result->path));
  }

  Status FindSources() {
    const CheckpointManifest& manifest = reader_->manifest();
    if (options_.optimizer_states) {
      CASTOR_RETURN_IF_ERROR(
          CheckSameMoments(manifest, io_.model_.options.optimizer));
      CASTOR_RETURN_IF_ERROR(RestoreScaler(manifest.engine, &scaler_));
      CASTOR_RETURN_IF_ERROR(RestoreRates(manifest.engine, &groups_));
    }
    CASTOR_ASSIGN_OR_RETURN(
        sources_, FindLoadSources(manifest, io_.ParamsWithStates(),
                                  io_.model_.sharding.states, options_));
    return OkStatus();
  }

  // Calls `on_part(segment, source)` for what lies in `range` of the chunk.
  template <typename OnPart>
  Status ForEachPart(ChunkId chunk, StateKind kind, ShardRange range,
                     const OnPart& on_part) const {
    for (const Segment& segment : io_.model_.Segments(chunk, range)) {
      const StateSource& source =
          sources_.states[segment.param.index()][static_cast<size_t>(kind)];
      if (source.state == nullptr) continue;
      CASTOR_RETURN_IF_ERROR(on_part(segment, source));
    }
    return OkStatus();
  }

  // Every element is read by the rank that counts it, and the sums of all ranks
  // are compared with what was saved.
  Status Verify() {
    const CheckpointManifest& manifest = reader_->manifest();
    std::vector<uint64_t> digests(manifest.params.size() * kStateKinds);
    std::vector<bool> asked(digests.size());
    for (const auto& of_param : sources_.states) {
      for (const StateSource& source : of_param) {
        if (source.state != nullptr) asked[PlaceOf(source)] = true;
      }
    }
    const Status status = AddUp(&digests);
    CASTOR_RETURN_IF_ERROR(io_.words_.AgreeOn(status, 0, "verify"));
    CASTOR_RETURN_IF_ERROR(io_.words_.SumOverRanks(digests, "digests"));
    for (size_t p = 0; p < manifest.params.size(); ++p) {
      const SavedParam& param = manifest.params[p];
      for (const SavedState& state : param.states) {
        const size_t at = PlaceOf({p, &state});
        if (!asked[at] || digests[at] == state.digest) continue;
        const Status damaged = DataLoss(fmt::format(
            "{}: tensor {} in {} does not hold the bytes that were saved "
            "(digest {}, saved {}); copy the checkpoint again, or load an "
            "older one",
            QuotedPath(reader_->folder()),
            Quoted(TensorNameOf(param.name, state.state)),
            Quoted(manifest.files[static_cast<size_t>(state.file)].name),
            DigestText(digests[at]), DigestText(state.digest)));
        return NameOlderCheckpoint(damaged, reader_->folder());
      }
    }
    return OkStatus();
  }

  // A parameter has no more states in a manifest than kStateKinds.
  size_t PlaceOf(const StateSource& source) const {
    const auto& states = reader_->manifest().params[source.param].states;
    return source.param * kStateKinds +
           static_cast<size_t>(source.state - states.data());
  }

  // One tensor may be the source of two states.
  bool IsRepeated(ParamId param, size_t kind) const {
    const auto& of_param = sources_.states[param.index()];
    return std::any_of(of_param.begin(), of_param.begin() + kind,
                       [&](const StateSource& source) {
                         return source.state == of_param[kind].state;
                       });
  }

  Status AddUp(std::vector<uint64_t>* digests) const {
    std::vector<std::byte> part;
    for (size_t c = 0; c < io_.model_.chunks(); ++c) {
      const ChunkId chunk(static_cast<int32_t>(c));
      CASTOR_RETURN_IF_ERROR(io_.model_.comm->Health());
      const ShardRange counted = io_.model_.counted(chunk);
      for (size_t k = 0; k < kStateKinds; ++k) {
        CASTOR_RETURN_IF_ERROR(ForEachPart(
            chunk, static_cast<StateKind>(k), counted,
            [&](const Segment& segment, const StateSource& source) -> Status {
              if (IsRepeated(segment.param, k)) return OkStatus();
              const DType dtype = source.state->dtype;
              part.resize(static_cast<size_t>(
                  BytesOf(Elements(segment.count), dtype).count()));
              CASTOR_RETURN_IF_ERROR(reader_->Read(source.param, *source.state,
                                                   segment.begin, segment.count,
                                                   part.data()));
              (*digests)[PlaceOf(source)] += DigestOfElements(
                  part.data(), dtype, segment.begin, segment.count);
              return OkStatus();
            }));
      }
    }
    return OkStatus();
  }

  Status ReadShards() {
    std::vector<std::byte> shard;
    for (size_t c = 0; c < io_.model_.chunks(); ++c) {
      const ChunkId chunk(static_cast<int32_t>(c));
      CASTOR_RETURN_IF_ERROR(io_.model_.comm->Health());
      for (int k = 0; k < kStateKinds; ++k) {
        const StateKind kind = static_cast<StateKind>(k);
        if (!IsSaved(kind) || !io_.memory_.store().has(chunk, kind)) continue;
        // Padding is zero, and so is what begins anew.
        shard.assign(
            static_cast<size_t>(io_.memory_.store().bytes(chunk, kind).count()),
            std::byte{0});
        CASTOR_RETURN_IF_ERROR(ReadShard(chunk, kind, shard.data()));
        if (Status written =
                io_.memory_.store().WriteNow(chunk, kind, shard.data());
            !written.ok()) {
          return io_.health_.Fail(written);
        }
      }
    }
    return OkStatus();
  }

  Status ReadShard(ChunkId chunk, StateKind kind, std::byte* out) const {
    const DType dtype = io_.model_.dtype(kind, chunk);
    const ShardRange kept = io_.model_.kept(kind, chunk);
    std::vector<std::byte> bytes;
    std::vector<float> values;
    return ForEachPart(
        chunk, kind, kept,
        [&](const Segment& segment, const StateSource& source) -> Status {
          std::byte* const to =
              out + BytesOf(Elements(segment.offset), dtype).count();
          const DType from = source.state->dtype;
          if (from == dtype) {
            return reader_->Read(source.param, *source.state, segment.begin,
                                 segment.count, to);
          }
          bytes.resize(static_cast<size_t>(
              BytesOf(Elements(segment.count), from).count()));
          values.resize(static_cast<size_t>(segment.count));
          CASTOR_RETURN_IF_ERROR(reader_->Read(source.param, *source.state,
                                               segment.begin, segment.count,
                                               bytes.data()));
          ConvertToFloat(bytes.data(), from, segment.count, values.data());
          ConvertFromFloat(values.data(), segment.count, dtype, to);
          return OkStatus();
        });
  }

  void TakeCounts() {
    const CheckpointManifest& manifest = reader_->manifest();
    for (size_t p = 0; p < sources_.params.size(); ++p) {
      io_.scalars_.updates[p] = options_.optimizer_states
                                    ? manifest.params[sources_.params[p]].steps
                                    : 0;
    }
    io_.scalars_.scaler = scaler_;
    io_.scalars_.groups = groups_;
    io_.progress_.steps = options_.steps_anew ? 0 : manifest.step;
    io_.memory_.BeginStep(io_.progress_.number());
  }

  CheckpointIo& io_;
  const LoadOptions& options_;
  std::optional<CheckpointReader> reader_;
  // As the checkpoint's run had them.
  LossScaler scaler_;
  OptimizerGroups groups_;
  LoadSources sources_;
};

Result<LoadResult> CheckpointIo::Load(const LoadOptions& options) {
  CASTOR_RETURN_IF_ERROR(EndSave());
  return Loading(this, options).Run();
}

}  // namespace castor::internal
