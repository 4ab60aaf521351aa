// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ZERO_CONFIG_H_
#define CASTOR_COLLECTIVES_ZERO_CONFIG_H_

// All that a training is told of its engine, as one JSON document: ZeroOptions,
// and what a trainer does with the engine. For programs in other languages and
// for files. Every key has the default of its option and may be left out:
//
//   {"schema": "castor.config/1",
//    "stage": 3, "shard_group": 0, "optimizer_span": "group",
//    "clip_norm": 1.0, "prefetch_depth": 3, "prefetch": "deadlines",
//    "step_compute_ns": 800000000, "policy": "planned",
//    "grad_mode": "separate", "accumulation_order": "each",
//    "device_budget_bytes": 67108864, "host_budget_bytes": 100663296,
//    "nvme": [{"directory": "/mnt/nvme0", "size_bytes": 1073741824}],
//    "chunk": {"bytes": 4194304, "min_bytes": 1048576,
//              "max_bytes": 8388608, "align_elements": 64,
//              "layout": "layout.json"},
//    "home_limits": [{"state": "exp_avg", "tier": "host",
//                     "bytes": 1073741824},
//                    {"state": "param", "tier": "device", "fraction": 0.25}],
//    "home_rules": [{"tier": "nvme", "glob": "*.experts.*", "dtype": "BF16",
//                    "least_bytes": 1048576, "most_bytes": 1073741824,
//                    "state": "master"}],
//    "machine": "machine.json",
//    "optimizer": {"kind": "adamw", "beta1": 0.9, "beta2": 0.999,
//                  "eps": 1e-8, "weight_decay": 0.01, "momentum": 0,
//                  "dampening": 0, "nesterov": false, "moment_dtype": "F32",
//                  "stochastic_rounding": true, "seed": 0},
//    "groups": [{"name": "norms", "lr_scale": 1, "lr": 1e-4, "beta1": 0.9,
//                "beta2": 0.999, "eps": 1e-8, "weight_decay": 0}],
//    "loss_scale": {"kind": "dynamic", "initial": 65536, "growth": 2,
//                   "growth_interval": 2000, "backoff": 0.5,
//                   "hysteresis": 1, "least": 1, "most": 4294967296},
//    "learning_rate": {"schedule": "cosine", "peak": 3e-4, "floor": 0,
//                      "warmup_steps": 100, "steps": 10000},
//    "launch": {"ranks": 4, "rank": 0, "backend": "host", "reduce": "exact",
//               "id_file": "ids", "timeout_seconds": 120},
//    "checkpoint": {"directory": "run", "every": 100, "keep": 3,
//                   "async": false, "resume": "run", "init": "weights"}}
//
// The last three sections are of the trainer: an engine by itself, which does
// nothing with them, refuses them as unknown. An optimizer's numbers begin with
// what its kind takes unless told otherwise, so "kind" comes first. What
// numbers mean together, ZeroEngine::Create checks. Paths are from the working
// directory. Thread-safe; pure but for the two that read the files named.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/lr_schedule.h"
#include "collectives/zero_options.h"

namespace castor {

// Empty: not said.
struct RateConfig {
  std::optional<LrShape> schedule = {};
  std::optional<double> peak = {};
  std::optional<double> floor = {};
  std::optional<int64_t> warmup_steps = {};
  std::optional<int64_t> steps = {};  // of the whole run
};

struct LaunchConfig {
  std::optional<int64_t> ranks = {};
  std::optional<int64_t> rank = {};             // of this process
  std::optional<std::string> backend = {};      // "host", "nccl"
  std::optional<std::string> reduce = {};       // of nccl: "exact", "native"
  std::optional<std::string> id_file = {};      // of nccl
  std::optional<int64_t> timeout_seconds = {};  // 0: none
};

struct CheckpointConfig {
  std::optional<std::string> directory = {};
  std::optional<int64_t> every = {};  // steps
  std::optional<int64_t> keep = {};
  std::optional<bool> async = {};
  std::optional<std::string> resume = {};
  std::optional<std::string> init = {};
};

struct ZeroConfig {
  // Without what the two files below say, until ReadFilesOf. Collaborators are
  // no part of a document.
  ZeroOptions engine = {};
  std::string layout_file = {};   // chunk/layout_file.h
  std::string machine_file = {};  // placement/tier_model_file.h
  RateConfig learning_rate = {};
  LaunchConfig launch = {};
  CheckpointConfig checkpoint = {};
};

// An engine's options alone, with the files that they name. InvalidArgument,
// with line and column, where `text` is no such document; for a key that there
// is not, with the nearest that there is; errors of the files. Collaborators
// are as in a ZeroOptions{}.
Result<ZeroOptions> ReadZeroConfig(std::string_view text);

// The whole document on top of `base`: what `text` leaves out is as it was
// there. Reads no file. Adds to `said` the names of what it does say: "stage",
// "optimizer.beta1", "nvme[].directory". InvalidArgument as above.
Result<ZeroConfig> ParseTrainerConfig(std::string_view text, ZeroConfig base,
                                      std::vector<std::string>* said);

// Sets the engine's layout and machine where files of them are named. Errors
// name the file.
Status ReadFilesOf(ZeroConfig* config);

// The names of all that a document may say, sorted.
std::vector<std::string> ConfigKeys();

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_ZERO_CONFIG_H_
