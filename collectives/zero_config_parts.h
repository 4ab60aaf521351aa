// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ZERO_CONFIG_PARTS_H_
#define CASTOR_COLLECTIVES_ZERO_CONFIG_PARTS_H_

// The parts of a config (zero_config.h), each with its own fields. What is
// given to fill in outlives the reading.

#include "collectives/internal/config_fields.h"
#include "collectives/zero_config.h"

namespace castor::internal {

void AddTrainingFields(ConfigFields& fields, ZeroOptions* options);
void AddMemoryFields(ConfigFields& fields, ZeroConfig* config);
// With groups and the loss scale.
void AddOptimizerFields(ConfigFields& fields, ZeroOptions* options);
void AddHomeFields(ConfigFields& fields, ZeroOptions* options);
void AddTrainerFields(ConfigFields& fields, ZeroConfig* config);

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ZERO_CONFIG_PARTS_H_
