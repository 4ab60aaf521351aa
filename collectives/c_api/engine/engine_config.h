// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_C_API_ENGINE_ENGINE_CONFIG_H_
#define CASTOR_COLLECTIVES_C_API_ENGINE_ENGINE_CONFIG_H_

// What castor_engine_create is told: an engine's config (zero_config.h), and in
// it "plan", a file that `castor plan -o` wrote. Thread-safe.

#include <optional>
#include <string_view>

#include "chunk/base/status.h"
#include "collectives/answers/plan_file.h"
#include "collectives/zero_options.h"

namespace castor::c_api {

struct EngineConfig {
  ZeroOptions options;
  // Which Seal holds the parameters against.
  std::optional<PlanFile> plan;
};

// InvalidArgument names the line, the column and the nearest key, and a key
// that the plan says too.
Result<EngineConfig> ReadEngineConfig(std::string_view text);

}  // namespace castor::c_api

#endif  // CASTOR_COLLECTIVES_C_API_ENGINE_ENGINE_CONFIG_H_
