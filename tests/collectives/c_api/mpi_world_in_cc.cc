// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <mpi.h>

#include "collectives/c_api/castor_mpi.h"
#include "tests/collectives/c_api/mpi_world_ranks.h"

int32_t create_in_cc(MPI_Comm comm, castor_world** world) {
  return castor_world_create_mpi(comm, nullptr, world);
}
