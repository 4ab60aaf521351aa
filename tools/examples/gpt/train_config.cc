// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/train_config.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/quote.h"
#include "collectives/lr_schedule.h"
#include "collectives/zero_config.h"
#include "tools/models/input_file.h"

namespace castor::gpt {
namespace {

// Far more than there is to say.
constexpr uint64_t kMaxConfigBytes = uint64_t{1} << 20;

constexpr FlagAndKey kSame[] = {{"--stage", "stage"},
                                {"--shard-group", "shard_group"},
                                {"--optimizer-span", "optimizer_span"},
                                {"--clip", "clip_norm"},
                                {"--prefetch", "prefetch_depth"},
                                {"--prefetch", "prefetch"},
                                {"--no-prefetch", "prefetch_depth"},
                                {"--no-prefetch", "prefetch"},
                                {"--compute", "step_compute_ns"},
                                {"--policy", "policy"},
                                {"--grad-mode", "grad_mode"},
                                {"--accumulation-order", "accumulation_order"},
                                {"--device-budget", "device_budget_bytes"},
                                {"--host-budget", "host_budget_bytes"},
                                {"--nvme", "nvme[]."},
                                {"--chunk", "chunk.bytes"},
                                {"--chunk", "chunk.layout"},
                                {"--layout", "chunk."},
                                {"--limit", "home_limits[]."},
                                {"--place", "home_rules[]."},
                                {"--machine", "machine"},
                                {"--weight-decay", "optimizer.weight_decay"},
                                {"--weight-decay", "optimizer.kind"},
                                {"--decay", "groups[]."},
                                {"--loss-scale", "loss_scale."},
                                {"--lr", "learning_rate.peak"},
                                {"--schedule", "learning_rate.schedule"},
                                {"--warmup", "learning_rate.warmup_steps"},
                                {"--steps", "learning_rate.steps"},
                                {"--ranks", "launch.ranks"},
                                {"--rank", "launch.rank"},
                                {"--backend", "launch.backend"},
                                {"--reduce", "launch.reduce"},
                                {"--id-file", "launch.id_file"},
                                {"--rank-timeout", "launch.timeout_seconds"},
                                {"--save", "checkpoint.directory"},
                                {"--save-every", "checkpoint.every"},
                                {"--keep", "checkpoint.keep"},
                                {"--save-async", "checkpoint.async"},
                                {"--resume", "checkpoint.resume"},
                                {"--init", "checkpoint.init"}};

// A whole key, or its beginning up to a dot.
bool SaysThat(std::string_view said, std::string_view key) {
  return key.ends_with('.') ? said.starts_with(key) : said == key;
}

Status CheckNotSaidTwice(const TrainFlags& flags,
                         const std::vector<std::string>& said) {
  for (const std::string& flag : flags.given) {
    for (const FlagAndKey& same : kSame) {
      if (same.flag != flag) continue;
      for (const std::string& key : said) {
        if (!SaysThat(key, same.key)) continue;
        return InvalidArgument(
            fmt::format("{} and {} in {} each say the same: leave one away",
                        flag, Quoted(key), QuotedPath(flags.config)));
      }
    }
  }
  return OkStatus();
}

template <typename To, typename From>
void Take(const std::optional<From>& said, To* value) {
  if (said) *value = *said;
}

void TakeTrainerParts(const ZeroConfig& config, TrainFlags* flags) {
  TrainOptions& train = flags->train;
  const RateConfig& rate = config.learning_rate;
  if (rate.schedule) flags->schedule = LrShapeName(*rate.schedule);
  Take(rate.peak, &train.lr);
  Take(rate.floor, &train.lr_floor);
  Take(rate.warmup_steps, &train.warmup);
  Take(rate.steps, &train.steps);
  const LaunchConfig& launch = config.launch;
  Take(launch.ranks, &flags->ranks);
  Take(launch.rank, &flags->rank);
  Take(launch.backend, &flags->backend);
  Take(launch.reduce, &flags->reduce);
  Take(launch.id_file, &flags->id_file);
  Take(launch.timeout_seconds, &flags->rank_timeout);
  const CheckpointConfig& checkpoint = config.checkpoint;
  Take(checkpoint.directory, &train.save);
  Take(checkpoint.every, &flags->save_every);
  Take(checkpoint.keep, &flags->keep);
  Take(checkpoint.async, &train.save_async);
  Take(checkpoint.resume, &train.resume);
  Take(checkpoint.init, &train.init);
}

}  // namespace

std::span<const FlagAndKey> FlagsAndKeys() { return kSame; }

Status TakeConfigFile(TrainFlags* flags) {
  if (flags->config.empty()) return OkStatus();
  CASTOR_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(flags->config));
  CASTOR_ASSIGN_OR_RETURN(flags->config_text, file.ReadAll(kMaxConfigBytes));
  std::vector<std::string> said;
  const Result<ZeroConfig> config =
      ParseTrainerConfig(flags->config_text, {}, &said);
  if (!config.ok()) {
    return config.status().WithContext(QuotedPath(flags->config));
  }
  CASTOR_RETURN_IF_ERROR(CheckNotSaidTwice(*flags, said));
  TakeTrainerParts(*config, flags);
  return OkStatus();
}

}  // namespace castor::gpt
