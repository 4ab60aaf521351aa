// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_OFFLOAD_HOST_PRETENDED_MACHINE_H_
#define CASTOR_TESTS_OFFLOAD_HOST_PRETENDED_MACHINE_H_

#include <cstdlib>

#include "offload/host/hwloc_topology.h"

namespace castor::internal {

// A machine as hwloc describes it in a line; lasts as long as the object. One
// at a time.
class PretendedMachine {
 public:
  // `real`: its processors are those of this machine, and are bound to.
  PretendedMachine(const char* description, bool real) {
    setenv("HWLOC_SYNTHETIC", description, 1);
    setenv("HWLOC_THISSYSTEM", real ? "1" : "0", 1);
    ForgetHwlocTopology();
  }
  ~PretendedMachine() {
    unsetenv("HWLOC_SYNTHETIC");
    unsetenv("HWLOC_THISSYSTEM");
    ForgetHwlocTopology();
  }
  PretendedMachine(const PretendedMachine&) = delete;
  PretendedMachine& operator=(const PretendedMachine&) = delete;
};

}  // namespace castor::internal

#endif  // CASTOR_TESTS_OFFLOAD_HOST_PRETENDED_MACHINE_H_
