// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What is a trainer's to do with an engine: rates, ranks, checkpoints.

#include <string>

#include "collectives/internal/config_fields.h"
#include "collectives/lr_schedule.h"
#include "collectives/zero_config_parts.h"

namespace castor::internal {
namespace {

constexpr int64_t kMostSteps = 1'000'000'000;
constexpr int64_t kMostRanks = 1'000'000;
constexpr int64_t kMostSeconds = 1'000'000;

void AddRates(ConfigFields& fields, RateConfig* rate) {
  fields.Object("learning_rate");
  ConfigNames<LrShape> shapes;
  for (const LrShape shape : kLrShapes) {
    shapes.emplace_back(LrShapeName(shape), shape);
  }
  fields.OneOf("learning_rate.schedule", shapes,
               [=](LrShape v) { rate->schedule = v; });
  fields.Number("learning_rate.peak", [=](double v) { rate->peak = v; });
  fields.Number("learning_rate.floor", [=](double v) { rate->floor = v; });
  fields.Whole("learning_rate.warmup_steps", 0, kMostSteps,
               [=](int64_t v) { rate->warmup_steps = v; });
  fields.Whole("learning_rate.steps", 1, kMostSteps,
               [=](int64_t v) { rate->steps = v; });
}

void AddLaunch(ConfigFields& fields, LaunchConfig* launch) {
  fields.Object("launch");
  fields.Whole("launch.ranks", 1, kMostRanks,
               [=](int64_t v) { launch->ranks = v; });
  fields.Whole("launch.rank", 0, kMostRanks,
               [=](int64_t v) { launch->rank = v; });
  fields.OneOf("launch.backend",
               ConfigNames<std::string>{{"host", "host"}, {"nccl", "nccl"}},
               [=](const std::string& v) { launch->backend = v; });
  fields.OneOf(
      "launch.reduce",
      ConfigNames<std::string>{{"exact", "exact"}, {"native", "native"}},
      [=](const std::string& v) { launch->reduce = v; });
  fields.Text("launch.id_file",
              [=](std::string_view v) { launch->id_file = v; });
  fields.Whole("launch.timeout_seconds", 0, kMostSeconds,
               [=](int64_t v) { launch->timeout_seconds = v; });
}

void AddCheckpoint(ConfigFields& fields, CheckpointConfig* checkpoint) {
  fields.Object("checkpoint");
  fields.Text("checkpoint.directory",
              [=](std::string_view v) { checkpoint->directory = v; });
  fields.Whole("checkpoint.every", 1, kMostSteps,
               [=](int64_t v) { checkpoint->every = v; });
  fields.Whole("checkpoint.keep", 1, kMostSteps,
               [=](int64_t v) { checkpoint->keep = v; });
  fields.Flag("checkpoint.async", [=](bool v) { checkpoint->async = v; });
  fields.Text("checkpoint.resume",
              [=](std::string_view v) { checkpoint->resume = v; });
  fields.Text("checkpoint.init",
              [=](std::string_view v) { checkpoint->init = v; });
}

}  // namespace

void AddTrainerFields(ConfigFields& fields, ZeroConfig* config) {
  AddRates(fields, &config->learning_rate);
  AddLaunch(fields, &config->launch);
  AddCheckpoint(fields, &config->checkpoint);
}

}  // namespace castor::internal
