// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ANSWERS_SIMULATED_ENGINE_OF_H_
#define CASTOR_COLLECTIVES_ANSWERS_SIMULATED_ENGINE_OF_H_

// The engine that a simulation (placement/simulation/simulator.h) takes in
// place of the one that Seal makes of the same memory plan: the same slots, the
// same homes, the same bytes. Pure function, thread-safe.

#include "collectives/answers/seal_forecast.h"
#include "collectives/zero_options.h"
#include "placement/simulation/simulated_engine.h"

namespace castor {

// REQUIRES: `seal` is of the options.
SimulatedEngine SimulatedEngineOf(const SealForecast& seal,
                                  const ZeroOptions& options);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_ANSWERS_SIMULATED_ENGINE_OF_H_
