// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Checkpoints through the C ABI.

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/text/quote.h"
#include "collectives/c_api/castor.h"
#include "collectives/c_api/door.h"
#include "collectives/c_api/engine/engine_handle.h"
#include "collectives/c_api/engine/turn.h"
#include "collectives/c_api/struct_sizes.h"
#include "collectives/checkpoint/checkpoint_folder.h"
#include "collectives/checkpoint/checkpoint_options.h"
#include "collectives/checkpoint/checkpoint_reader.h"
#include "collectives/checkpoint/checkpoint_verify.h"
#include "collectives/zero_engine.h"

namespace castor::c_api {
namespace {

Result<SaveOptions> TakeSave(const char* directory,
                             const castor_save_options* given) {
  SaveOptions options;
  options.directory = directory;
  if (given == nullptr) return options;
  CASTOR_RETURN_IF_ERROR(CheckStruct(*given));
  const castor_save_options set = TakeStruct(*given);
  if (set.trainer == nullptr && set.trainer_size > 0) {
    return InvalidArgument("trainer is null and has a size");
  }
  if (set.trainer_size > 0) {
    options.trainer.assign(static_cast<const char*>(set.trainer),
                           set.trainer_size);
  }
  if (set.max_file_bytes > 0) options.max_file = Bytes(set.max_file_bytes);
  options.keep = set.keep;
  options.wait = set.background == 0;
  return options;
}

Status Save(EngineEntry& engine, const char* directory,
            const castor_save_options* given) {
  if (directory == nullptr) return InvalidArgument("directory is null");
  CASTOR_ASSIGN_OR_RETURN(const SaveOptions options,
                          TakeSave(directory, given));
  return engine.engine->Save(options).status();
}

Status FinishSave(EngineEntry& engine, const char** path) {
  CASTOR_ASSIGN_OR_RETURN(SaveResult saved, engine.engine->FinishSave());
  engine.saved_path = std::move(saved.path);
  if (path != nullptr) *path = engine.saved_path.c_str();
  return OkStatus();
}

Status Load(EngineEntry& engine, const char* directory,
            const castor_load_options* given, int64_t* step) {
  if (directory == nullptr) return InvalidArgument("directory is null");
  LoadOptions options;
  options.directory = directory;
  if (given != nullptr) {
    CASTOR_RETURN_IF_ERROR(CheckStruct(*given));
    const castor_load_options set = TakeStruct(*given);
    if (set.one_step != 0) options.step = set.step;
    options.optimizer_states = set.weights_only == 0;
    options.verify = set.unverified == 0;
    options.convert = set.convert != 0;
    options.begin_missing = set.begin_missing != 0;
    options.trainer_only = set.trainer_only != 0;
    if ((set.aliases == nullptr && set.alias_count > 0) ||
        (set.others == nullptr && set.other_count > 0)) {
      return InvalidArgument("aliases or others is null; give both");
    }
    for (size_t i = 0; i < set.alias_count; ++i) {
      options.aliases.push_back({set.aliases[2 * i], set.aliases[2 * i + 1]});
    }
    options.others.assign(set.others, set.others + set.other_count);
  }
  CASTOR_RETURN_IF_ERROR(WriteBehindLeases(engine));
  CASTOR_ASSIGN_OR_RETURN(LoadResult loaded, engine.engine->Load(options));
  engine.loaded_trainer = std::move(loaded.trainer);
  if (step != nullptr) *step = loaded.step;
  return OkStatus();
}

Status List(const char* directory, int64_t* steps, size_t room, size_t* count) {
  if (directory == nullptr || count == nullptr ||
      (steps == nullptr && room > 0)) {
    return InvalidArgument("directory, steps or count is null; give all three");
  }
  CASTOR_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> found,
                          ListCheckpoints(directory));
  *count = found.size();
  for (size_t i = 0; i < found.size() && i < room; ++i) {
    steps[i] = found[i].step;
  }
  return OkStatus();
}

Status Verify(const char* directory, const int64_t* step) {
  if (directory == nullptr) return InvalidArgument("directory is null");
  CASTOR_ASSIGN_OR_RETURN(
      const std::string path,
      FindCheckpoint(directory,
                     step == nullptr ? std::nullopt : std::optional(*step)));
  CASTOR_ASSIGN_OR_RETURN(const CheckpointReader reader,
                          CheckpointReader::Open(path));
  CASTOR_ASSIGN_OR_RETURN(const std::vector<CheckpointDamage> damage,
                          FindDamage(reader));
  if (damage.empty()) return OkStatus();
  const CheckpointDamage& first = damage.front();
  return DataLoss(fmt::format(
      "{}: {} of {} does not hold what was saved; {} in all are damaged: load "
      "an earlier step",
      QuotedPath(path),
      first.tensor.empty() ? "the head" : "tensor " + Quoted(first.tensor),
      Quoted(first.file), damage.size()));
}

}  // namespace
}  // namespace castor::c_api

extern "C" {

using castor::c_api::ThroughTheDoor;
using castor::c_api::WithEngine;

int32_t castor_engine_save(castor_engine* engine, const char* directory,
                           const castor_save_options* options) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::Save(its, directory, options);
  });
}

int32_t castor_engine_finish_save(castor_engine* engine, const char** path) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::FinishSave(its, path);
  });
}

int32_t castor_engine_load(castor_engine* engine, const char* directory,
                           const castor_load_options* options, int64_t* step) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::Load(its, directory, options, step);
  });
}

int32_t castor_engine_loaded_trainer(const castor_engine* engine,
                                     const void** data, size_t* size) {
  return WithEngine(engine, [&](const castor::c_api::EngineEntry& its) {
    if (data == nullptr || size == nullptr) {
      return castor::InvalidArgument("data or size is null; give both");
    }
    *size = its.loaded_trainer.size();
    *data = *size == 0 ? nullptr : its.loaded_trainer.data();
    return castor::OkStatus();
  });
}

int32_t castor_checkpoint_list(const char* directory, int64_t* steps,
                               size_t room, size_t* count) {
  return ThroughTheDoor(
      [&] { return castor::c_api::List(directory, steps, room, count); });
}

int32_t castor_checkpoint_verify(const char* directory, const int64_t* step) {
  return ThroughTheDoor([&] { return castor::c_api::Verify(directory, step); });
}

}  // extern "C"
