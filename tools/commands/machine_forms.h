// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_MACHINE_FORMS_H_
#define CASTOR_TOOLS_COMMANDS_MACHINE_FORMS_H_

// A machine's topology in the forms in which commands show it. Pure functions,
// thread-safe.

#include <string>

#include "chunk/text/json_value.h"
#include "offload/host/machine_topology.h"

namespace castor {

// "1 package, 2 cores, 2 hardware threads, 1 NUMA node, 23.54 GiB; 2 L1d of
// 32 KiB, 1 L3 of 32 MiB".
std::string TopologyText(const internal::MachineTopology& topology);

JsonValue TopologyJson(const internal::MachineTopology& topology);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_MACHINE_FORMS_H_
