/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Castor Authors */

#ifndef CASTOR_TESTS_COLLECTIVES_C_API_MPI_WORLD_RANKS_H_
#define CASTOR_TESTS_COLLECTIVES_C_API_MPI_WORLD_RANKS_H_

/* castor_mpi.h as a program in C++ compiles it, for one in C. Any thread. */

#include <mpi.h>
#include <stdint.h>

#include "collectives/c_api/castor.h"

#ifdef __cplusplus
extern "C"
#endif
    int32_t
    create_in_cc(MPI_Comm comm, castor_world** world);

#endif /* CASTOR_TESTS_COLLECTIVES_C_API_MPI_WORLD_RANKS_H_ */
