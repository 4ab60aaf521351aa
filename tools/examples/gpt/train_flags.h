// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_TRAIN_FLAGS_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_TRAIN_FLAGS_H_

// All that train_gpt is told, as one table: by flags, by the file of --config
// and by that of --plan. An option of the engine is a row of
// collectives/zero_config.h, any other one a row of train_flags.cc. A config
// says what an engine's config does and, for the trainer:
//
//   {"learning_rate": {"schedule": "cosine", "peak": 3e-4, "floor": 0,
//                      "warmup_steps": 100, "steps": 10000},
//    "launch": {"ranks": 4, "rank": 0, "backend": "host", "reduce": "exact",
//               "id_file": "ids", "timeout_seconds": 120},
//    "checkpoint": {"directory": "run", "every": 100, "keep": 3,
//                   "async": false, "resume": "run", "init": "weights"}}
//
// What it leaves out flags say, and nothing is said twice. Thread-safe.

#include <optional>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/options/option_table.h"
#include "collectives/zero_config.h"
#include "tools/cli/flags.h"
#include "tools/examples/gpt/train_options.h"

namespace castor::gpt {

struct TrainFlags {
  TrainOptions train = {};
  EngineFiles files = {};         // of the engine
  std::optional<int> ranks = {};  // 1, or as many as there are processes
  std::optional<int> rank = {};   // of this process, where nothing tells
  std::string backend = "host";
  std::string reduce = {};
  std::string id_file = {};
  // What Debian's base-files installs.
  std::string text = "/usr/share/common-licenses";
  std::string decay = "all";
  std::string record = {};
  std::string trace = {};
  std::string plan = {};
  std::string config = {};
  bool json = false;
  bool print_model = false;
  std::vector<std::string> given = {};  // names of the flags that were

  bool Gave(const std::string& flag) const;
};

// Of the members of `flags`, which outlives it.
OptionTable TrainTable(TrainFlags* flags);

// `flags` outlives the parsing.
void DeclareTrainFlags(CLI::App& app, TrainFlags& flags);

// Has the flags be as the config says that they name, if any. InvalidArgument,
// naming both, where two flags, or a flag and the config or the plan, say the
// same; errors of the config's file.
Status TakeConfigFile(TrainFlags* flags);

// InvalidArgument where what is said of ranks has no meaning together.
Status CheckRankFlags(const TrainFlags& flags);

// InvalidArgument where flags contradict each other or have no meaning; errors
// of the files that they name, which it reads.
Result<TrainOptions> OptionsOf(const TrainFlags& flags, bool processes);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_TRAIN_FLAGS_H_
