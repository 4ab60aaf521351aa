// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_TRAIN_FLAGS_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_TRAIN_FLAGS_H_

// The flags of train_gpt, and what they mean.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "tools/cli/flags.h"
#include "tools/examples/gpt/training.h"

namespace castor::gpt {

// What Debian's base-files installs.
inline constexpr char kDefaultTextPath[] = "/usr/share/common-licenses";

struct TrainFlags {
  int64_t layers = 9;
  int64_t heads = 8;
  int64_t embd = 512;
  int64_t seq = 256;
  int64_t batch = 2;
  int64_t accumulate = 1;
  std::optional<int64_t> ranks;  // 1, or as many as there are processes
  std::optional<int64_t> rank;   // of this process, where nothing tells
  int64_t rank_timeout = 120;    // seconds
  std::string backend = "host";
  std::string reduce;
  std::string id_file;
  std::optional<int64_t> stage;
  std::optional<int64_t> shard_group;
  std::string optimizer_span;
  std::optional<std::string> prefetch;
  std::string compute;
  std::optional<int64_t> seed;
  int64_t digest_at = 0;
  std::string text = kDefaultTextPath;
  std::string dtype = "f32";
  std::string decay;
  std::string schedule;
  std::string loss_scale;
  std::string grad_mode;
  std::string accumulation_order;
  std::vector<std::string> nvme;
  std::string record;
  std::string trace;
  std::optional<int64_t> save_every;
  std::optional<int64_t> keep;
  std::string layout;
  std::string machine;
  std::string policy;
  std::string plan;
  std::string config;
  std::string config_text;  // of that file, once it was read
  std::vector<std::string> limit;
  std::vector<std::string> place;
  bool no_prefetch = false;
  bool reference = false;
  bool json = false;
  bool print_model = false;
  std::vector<std::string> given;  // names of the flags that were
  TrainOptions train;              // what the parser fills in directly
};

// `flags` outlives the parsing.
void DeclareTrainFlags(CLI::App& app, TrainFlags& flags);

// InvalidArgument where what is said of ranks has no meaning together.
Status CheckRankFlags(const TrainFlags& flags);

// InvalidArgument where flags contradict each other or have no meaning; errors
// of the files that they name. Reads these files, but for the config, which
// TakeConfigFile (train_config.h) has read.
Result<TrainOptions> OptionsOf(const TrainFlags& flags);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_TRAIN_FLAGS_H_
