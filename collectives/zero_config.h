// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ZERO_CONFIG_H_
#define CASTOR_COLLECTIVES_ZERO_CONFIG_H_

// The table of all that an engine is told (ZeroOptions), and the JSON document
// made of it: for programs in other languages and for files. Every key may be
// left out, and its option has its default then. Values here are examples:
//
//   {"schema": "castor.config/1",
//    "stage": 3, "shard_group": 0, "optimizer_span": "group",
//    "clip_norm": 1.0, "count_norm": true, "average_micro_batches": false,
//    "own_lease_ends": true, "poison": true,
//    "keep_copies": true,
//    "prefetch": "deadlines", "step_compute_ns": 800000000,
//    "policy": "planned",
//    "grad_mode": "separate", "borrow_grads": false, "guess_updates": false,
//    "accumulation_order": "each",
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
//                  "stochastic_rounding": true, "seed": 0,
//                  "states": [{"name": "momentum"}], "span": "elements"},
//    "groups": [{"name": "norms", "lr_scale": 1, "lr": 1e-4, "beta1": 0.9,
//                "beta2": 0.999, "eps": 1e-8, "weight_decay": 0,
//                "kind": "adam", "span": "parameter", "states": 1}],
//    "loss_scale": {"kind": "dynamic", "initial": 65536, "growth": 2,
//                   "growth_interval": 2000, "backoff": 0.5,
//                   "hysteresis": 1, "least": 1, "most": 4294967296}}
//
// A size is a number of bytes or a text with a unit, "4GiB"; a time is a number
// of nanoseconds or "850ms". A trainer adds rows of its own to the table, for
// keys that an engine by itself refuses as unknown. An optimizer's numbers
// begin with what its kind takes unless told otherwise, so "kind" comes first.
// States and spans are of the kind "custom" (custom_update.h).
// What numbers mean together, ZeroEngine::Create checks. Paths are from the
// working directory. Thread-safe; pure but for what reads the files named.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/options/option_table.h"
#include "collectives/zero_options.h"

namespace castor {

inline constexpr char kConfigSchema[] = "castor.config/1";

// Who has a row of the table, as bits of Option::uses: trainers, castor plan
// and castor simulate as a flag, and the plan file as a key, which some of its
// rows must be.
inline constexpr uint32_t kTrainFlag = 1;
inline constexpr uint32_t kPlanFlag = 2;
inline constexpr uint32_t kSimulateFlag = 4;
inline constexpr uint32_t kPlanKey = 8;
inline constexpr uint32_t kPlanMust = 16;
// Ranks may have it differently: budgets, paths, and what changes no bytes.
inline constexpr uint32_t kOfRank = 32;

// The files that an engine's options name; empty: none.
struct EngineFiles {
  std::string layout = {};   // chunk/layout_file.h
  std::string machine = {};  // placement/machine/tier_model_file.h
};

// Collaborators of an engine are in no row.
OptionTable EngineOptions(ZeroOptions* options, EngineFiles* files);

// What ranks have to choose alike, by the keys of its rows: a hash of each as a
// document has it. Rows of kOfRank are left out.
std::vector<std::pair<std::string, int64_t>> SharedOptions(
    const OptionTable& table);

// A document of all that the table's members have, in one line.
std::string WriteConfig(const OptionTable& table);

// Sets what the document `text` says, and returns the keys of that.
// InvalidArgument, with line and column, where `text` is no such document; for
// a key that there is not, with the nearest that there is.
Result<std::vector<std::string>> ReadConfig(std::string_view text,
                                            const OptionTable& table);

// The text of a file that a document names. InvalidArgument where there is
// none, or a longer one; it names the path.
Result<std::string> ReadNamedFile(const std::string& path, uint64_t most_bytes);

// Sets the layout and the machine where files of them are named. Errors name
// the file.
Status ReadEngineFiles(const EngineFiles& files, ZeroOptions* options);

// An engine's options by a document, with the files that it names. Fails as the
// two above.
Result<ZeroOptions> ReadZeroConfig(std::string_view text);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_ZERO_CONFIG_H_
