// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_COLLECTIVES_MPI_MPI_RANKS_H_
#define CASTOR_TESTS_COLLECTIVES_MPI_MPI_RANKS_H_

// What the tests of one process of an MPI job share: mpi_communicator_test.cc
// begins and ends it.

#include "collectives/communicator.h"
#include "collectives/mpi/mpi_session.h"

namespace castor {

// Begun by main, before the tests are listed.
extern MpiSession* session;
// Has the ranks begin each test together. The tests' worlds count from 0.
extern Communicator* harness;

// Blocks until every rank is here.
void MeetOthers();

}  // namespace castor

#endif  // CASTOR_TESTS_COLLECTIVES_MPI_MPI_RANKS_H_
