// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// How a checkpoint becomes an engine's states. Every rank reads the elements it
// keeps, wherever they were saved from: parameters are found by their names.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "chunk/base/did_you_mean.h"
#include "chunk/base/quote.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_plan.h"
#include "collectives/checkpoint/checkpoint_reader.h"
#include "collectives/checkpoint/tensor_digest.h"
#include "collectives/zero_engine_impl.h"
#include "offload/kernels/convert.h"
#include "offload/kernels/optimizer_options.h"

namespace castor {
namespace {

// Adam and AdamW differ in how they decay weights, not in what moments mean.
std::string_view MomentsMeaning(std::string_view optimizer) {
  return optimizer == "adamw" ? "adam" : optimizer;
}

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

// A count; -1 for what is none.
int64_t WholeOf(double number) {
  constexpr double kMost = 1'000'000'000;
  return number >= 0 && number <= kMost ? static_cast<int64_t>(number) : -1;
}

// Of `names`, as words.
std::string Nearest(std::string_view name, std::span<const std::string> names) {
  const std::optional<std::string> nearest = NearestName(name, names);
  return nearest ? fmt::format(", the nearest of them {}", Quoted(*nearest))
                 : "";
}

bool IsMoment(StateKind kind) {
  return kind != StateKind::kParam && kind != StateKind::kMaster;
}

}  // namespace

class ZeroEngine::Impl::Loading {
 public:
  Loading(Impl* engine, const LoadOptions& options)
      : engine_(*engine), options_(options) {}

  Result<LoadResult> Run() {
    LoadResult result;
    const Status opened = Open(&result);
    CASTOR_RETURN_IF_ERROR(engine_.AgreeOn(
        opened, reader_.has_value() ? reader_->manifest_digest() : 0, "load"));
    if (options_.verify && !reader_->weights_only()) {
      CASTOR_RETURN_IF_ERROR(Verify());
    }
    // From here on there is no way back.
    engine_.manager_->DropAll(RunCause::kNone);
    const Status read = ReadShards();
    CASTOR_RETURN_IF_ERROR(engine_.Health());
    const Status agreed = engine_.AgreeOn(read, 0, "loaded");
    if (!agreed.ok()) {
      return engine_.Fail(agreed.WithContext(
          "the engine's states are half of one training, half of another"));
    }
    TakeCounts();
    return result;
  }

 private:
  // What a state of a parameter is made from; null: it begins with zeros.
  struct Source {
    size_t param = 0;  // in the manifest
    const SavedState* state = nullptr;
  };

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
    CASTOR_RETURN_IF_ERROR(CheckOptimizer(manifest));
    CASTOR_RETURN_IF_ERROR(FindLossScale(manifest));
    CASTOR_RETURN_IF_ERROR(FindLearningRates(manifest));
    std::unordered_map<std::string_view, size_t> saved;
    for (size_t p = 0; p < manifest.params.size(); ++p) {
      saved.emplace(manifest.params[p].name, p);
    }
    for (size_t p = 0; p < engine_.params_.size(); ++p) {
      const auto at = saved.find(engine_.params_[p].spec.name);
      if (at == saved.end()) {
        std::vector<std::string> there;
        for (const auto& [name, index] : saved) there.emplace_back(name);
        std::sort(there.begin(), there.end());
        return InvalidArgument(fmt::format(
            "parameter {} is not in the checkpoint, which has {}{}; load one "
            "of this model",
            Quoted(engine_.params_[p].spec.name), manifest.params.size(),
            Nearest(engine_.params_[p].spec.name, there)));
      }
      CASTOR_RETURN_IF_ERROR(FindSourcesOf(p, at->second));
      saved.erase(at);
    }
    if (saved.empty()) return OkStatus();
    // The same one every time.
    const auto first = std::min_element(
        saved.begin(), saved.end(),
        [](const auto& a, const auto& b) { return a.second < b.second; });
    std::vector<std::string> here;
    for (const Param& param : engine_.params_) here.push_back(param.spec.name);
    return InvalidArgument(
        fmt::format("the checkpoint's parameter {} is not one of the model's "
                    "{}{}, or two of them have its name; load a checkpoint of "
                    "this model",
                    Quoted(first->first), engine_.params_.size(),
                    Nearest(first->first, here)));
  }

  Status CheckOptimizer(const CheckpointManifest& manifest) const {
    if (!options_.optimizer_states) return OkStatus();
    const OptimizerOptions& optimizer = engine_.options_.optimizer;
    const std::string_view own = OptimizerName(optimizer.kind);
    if (MomentsMeaning(own) != MomentsMeaning(manifest.optimizer)) {
      return InvalidArgument(fmt::format(
          "it was trained with {} and the engine's optimizer is {}, whose "
          "moments mean something else; use {}, or load weights only "
          "(optimizer_states = false)",
          Quoted(manifest.optimizer), own, Quoted(manifest.optimizer)));
    }
    const bool by_chance =
        optimizer.moment_dtype != DType::kF32 && optimizer.stochastic_rounding;
    const auto seed = manifest.engine.find("optimizer_seed");
    const JsonValue own_seed(optimizer.seed);
    if (by_chance && seed != manifest.engine.end() &&
        !(seed->second == own_seed)) {
      return InvalidArgument(fmt::format(
          "its moments were rounded by chance with seed {}, and the engine "
          "has seed {}: set optimizer.seed to the same",
          seed->second.Dump(), own_seed.Dump()));
    }
    return OkStatus();
  }

  // A run that scaled no losses has none to say; the engine's then stays.
  Status FindLossScale(const CheckpointManifest& manifest) {
    if (!options_.optimizer_states || !manifest.engine.contains("loss_scale")) {
      return OkStatus();
    }
    const auto number = [&](const char* name) {
      const auto at = manifest.engine.find(name);
      return at != manifest.engine.end() && at->second.is_number()
                 ? at->second.real()
                 : -1;
    };
    LossScaleState state;
    state.scale = number("loss_scale");
    state.clean_steps = WholeOf(number("loss_scale_clean_steps"));
    state.overflows_left =
        static_cast<int32_t>(WholeOf(number("loss_scale_overflows_left")));
    state.skipped_steps = WholeOf(number("loss_scale_skipped_steps"));
    LossScaler scaler = engine_.scaler_;
    CASTOR_RETURN_IF_ERROR(scaler.Restore(state).WithContext(
        "its loss scale (optimizer_states = false begins anew)"));
    scaler_.emplace(scaler);
    return OkStatus();
  }

  // Groups that were given none keep the engine's, and so do those that only
  // the checkpoint has.
  Status FindLearningRates(const CheckpointManifest& manifest) {
    if (!options_.optimizer_states) return OkStatus();
    groups_.emplace(engine_.groups_);
    for (const auto& [name, lr] : manifest.engine) {
      std::string_view group = name;
      if (!group.starts_with(kLearningRateScalar)) continue;
      group.remove_prefix(std::string_view(kLearningRateScalar).size());
      if (group.starts_with('.')) group.remove_prefix(1);
      if (!groups_->Find(group).ok()) continue;
      CASTOR_RETURN_IF_ERROR(
          groups_->SetLearningRate(group, lr.is_number() ? lr.real() : -1)
              .WithContext(fmt::format(
                  "its {} (optimizer_states = false begins anew)", name)));
    }
    return OkStatus();
  }

  Status FindSourcesOf(size_t param, size_t index) {
    const ParamSpec& spec = engine_.params_[param].spec;
    const SavedParam& saved = reader_->manifest().params[index];
    if (saved.shape != spec.shape) {
      return InvalidArgument(fmt::format(
          "parameter {} has shape [{}] in the checkpoint and [{}] in the "
          "model; load one of this model",
          Quoted(spec.name), fmt::join(saved.shape, ", "),
          fmt::join(spec.shape, ", ")));
    }
    if (saved.dtype != spec.dtype && !options_.convert) {
      return InvalidArgument(fmt::format(
          "parameter {} is {} in the checkpoint and {} in the "
          "model; load it with convert = true",
          Quoted(spec.name), DTypeName(saved.dtype), DTypeName(spec.dtype)));
    }
    sources_.emplace_back();
    found_.push_back(index);
    const ChunkId chunk =
        engine_.layout_->place(ParamId(static_cast<int32_t>(param))).chunk;
    if (!chunk.valid()) return OkStatus();
    for (size_t k = 0; k < kStateKinds; ++k) {
      const StateKind kind = static_cast<StateKind>(k);
      if (!IsSaved(kind) || !engine_.store_->has(chunk, kind)) continue;
      if (IsMoment(kind) && !options_.optimizer_states) continue;
      CASTOR_ASSIGN_OR_RETURN(
          sources_.back()[k].state,
          SourceOf(saved, kind,
                   engine_.sharding_.dtype(kind, engine_.GroupOf(chunk))));
      sources_.back()[k].param = index;
    }
    return OkStatus();
  }

  Result<const SavedState*> SourceOf(const SavedParam& saved, StateKind kind,
                                     DType dtype) const {
    const SavedState* state = saved.Find(kind);
    const SavedState* master = saved.Find(StateKind::kMaster);
    if (kind == StateKind::kParam && state->dtype != dtype &&
        master != nullptr) {
      state = master;  // as exact as there is
    }
    if (kind == StateKind::kMaster && state == nullptr &&
        (options_.convert || !options_.optimizer_states)) {
      state = saved.Find(StateKind::kParam);
    }
    if (state == nullptr) {
      return InvalidArgument(fmt::format(
          "parameter {} has no {} in the checkpoint{}; load weights only "
          "(optimizer_states = false)",
          Quoted(saved.name), StateKindName(kind),
          saved.trainable ? "" : ", where it was frozen"));
    }
    if (state->dtype == dtype) return state;
    if (!options_.convert && IsMoment(kind)) {
      return InvalidArgument(
          fmt::format("{} of parameter {} is {} in the checkpoint and {} in "
                      "the engine; load it with convert = true",
                      StateKindName(kind), Quoted(saved.name),
                      DTypeName(state->dtype), DTypeName(dtype)));
    }
    if (!IsFloat(state->dtype)) {
      return InvalidArgument(fmt::format(
          "parameter {} is {} in the checkpoint, which nothing here is made "
          "from; convert it to F32 first (castor ckpt convert)",
          Quoted(saved.name), DTypeName(state->dtype)));
    }
    return state;
  }

  // Calls `on_part(segment, state kind, source)` for what lies in `range` of
  // the chunk.
  template <typename OnPart>
  Status ForEachPart(ChunkId chunk, StateKind kind, ShardRange range,
                     const OnPart& on_part) const {
    for (const Segment& segment : engine_.Segments(chunk, range)) {
      const Source& source =
          sources_[segment.param.index()][static_cast<size_t>(kind)];
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
    for (const auto& of_param : sources_) {
      for (const Source& source : of_param) {
        if (source.state != nullptr) asked[PlaceOf(source)] = true;
      }
    }
    const Status status = AddUp(&digests);
    CASTOR_RETURN_IF_ERROR(engine_.AgreeOn(status, 0, "verify"));
    if (engine_.comm_->world() > 1) {
      engine_.comm_->AllReduce(*engine_.comm_lane_, digests.data(),
                               Elements(static_cast<int64_t>(digests.size())),
                               DType::kU64, ReduceOp::kSum,
                               {ChunkId(), -1, "digests"});
      CASTOR_RETURN_IF_ERROR(engine_.comm_lane_->Record().Wait());
    }
    for (size_t p = 0; p < manifest.params.size(); ++p) {
      const SavedParam& param = manifest.params[p];
      for (const SavedState& state : param.states) {
        const size_t at = PlaceOf({p, &state});
        if (!asked[at] || digests[at] == state.digest) continue;
        return DataLoss(fmt::format(
            "{}: tensor {} in {} does not hold the bytes that were saved "
            "(digest {}, saved {}); copy the checkpoint again, or load an "
            "older one",
            QuotedPath(reader_->folder()),
            Quoted(TensorNameOf(param.name, state.state)),
            Quoted(manifest.files[static_cast<size_t>(state.file)].name),
            DigestText(digests[at]), DigestText(state.digest)));
      }
    }
    return OkStatus();
  }

  static size_t PlaceOf(const Source& source) {
    return source.param * kStateKinds +
           static_cast<size_t>(source.state->state);
  }

  // One tensor may be the source of two states.
  bool IsRepeated(ParamId param, size_t kind) const {
    const auto& of_param = sources_[param.index()];
    return std::any_of(of_param.begin(), of_param.begin() + kind,
                       [&](const Source& source) {
                         return source.state == of_param[kind].state;
                       });
  }

  Status AddUp(std::vector<uint64_t>* digests) const {
    std::vector<std::byte> part;
    for (size_t c = 0; c < engine_.layout_->chunks().size(); ++c) {
      const ChunkId chunk(static_cast<int32_t>(c));
      CASTOR_RETURN_IF_ERROR(engine_.comm_->Health());
      const ShardRange counted =
          engine_.sharding_.counted(*engine_.layout_, chunk);
      for (size_t k = 0; k < kStateKinds; ++k) {
        CASTOR_RETURN_IF_ERROR(ForEachPart(
            chunk, static_cast<StateKind>(k), counted,
            [&](const Segment& segment, const Source& source) -> Status {
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
    for (size_t c = 0; c < engine_.layout_->chunks().size(); ++c) {
      const ChunkId chunk(static_cast<int32_t>(c));
      CASTOR_RETURN_IF_ERROR(engine_.comm_->Health());
      for (int k = 0; k < kStateKinds; ++k) {
        const StateKind kind = static_cast<StateKind>(k);
        if (!IsSaved(kind) || !engine_.store_->has(chunk, kind)) continue;
        // Padding is zero, and so is what begins anew.
        shard.assign(
            static_cast<size_t>(engine_.store_->bytes(chunk, kind).count()),
            std::byte{0});
        CASTOR_RETURN_IF_ERROR(ReadShard(chunk, kind, shard.data()));
        if (Status written =
                engine_.store_->WriteNow(chunk, kind, shard.data());
            !written.ok()) {
          return engine_.Fail(written);
        }
      }
    }
    return OkStatus();
  }

  Status ReadShard(ChunkId chunk, StateKind kind, std::byte* out) const {
    const DType dtype = engine_.sharding_.dtype(kind, engine_.GroupOf(chunk));
    const ShardRange kept =
        engine_.sharding_.kept(kind, *engine_.layout_, chunk);
    std::vector<std::byte> bytes;
    std::vector<float> values;
    return ForEachPart(
        chunk, kind, kept,
        [&](const Segment& segment, const Source& source) -> Status {
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
    for (size_t p = 0; p < found_.size(); ++p) {
      engine_.params_[p].steps =
          options_.optimizer_states ? manifest.params[found_[p]].steps : 0;
    }
    if (scaler_.has_value()) engine_.scaler_ = *scaler_;
    if (groups_.has_value()) engine_.groups_ = *groups_;
    engine_.step_ = manifest.step;
    engine_.store_->BeginStep(static_cast<int32_t>(engine_.step_ + 1));
    engine_.manager_->BeginStep(static_cast<int32_t>(engine_.step_ + 1));
  }

  Impl& engine_;
  const LoadOptions& options_;
  std::optional<CheckpointReader> reader_;
  // As the checkpoint's run had them.
  std::optional<LossScaler> scaler_;
  std::optional<OptimizerGroups> groups_;
  std::vector<size_t> found_;  // by ParamId: index in the manifest
  std::vector<std::array<Source, kStateKinds>> sources_;  // by ParamId, state
};

Result<LoadResult> ZeroEngine::Impl::Load(const LoadOptions& options) {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  CASTOR_RETURN_IF_ERROR(RequireBetweenSteps("Load"));
  CASTOR_RETURN_IF_ERROR(EndSave());
  return Loading(this, options).Run();
}

}  // namespace castor
