/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Castor Authors */

/* A world over MPI, as a program makes it by castor_mpi.h: ranks train with the
 * bits of other worlds; and what happens where one of them fails or does not
 * come.
 *
 *   mpirun -n 4 mpi_world_ranks DIGEST
 *   mpirun -n 1 mpi_world_ranks serialized */

/* So little that everything goes in pieces. */
#define CASTOR_MPI_BUFFER_BYTES 4096

#include "tests/collectives/c_api/mpi_world_ranks.h"

#include <inttypes.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/c_api/castor.h"
#include "collectives/c_api/castor_mpi.h"
#include "tests/collectives/c_api/c_trainer.h"

static int rank_of_process = 0;

static void expect_refused(int32_t expected, const char* words) {
  castor_world* world = NULL;
  EXPECT(castor_world_create_mpi(MPI_COMM_WORLD, NULL, &world) == expected);
  EXPECT(world == NULL);
  EXPECT(strstr(castor_last_error(), words) != NULL);
}

/* What `from` sends to `to` at a place. */
static char byte_of(int from, int to, int64_t at) {
  return (char)(from * 31 + to * 7 + at);
}

static void move_in_pieces(castor_mpi* mpi) {
  const int64_t bytes = 10001;
  char* all = malloc((size_t)(kRanks * bytes));
  for (int64_t i = 0; i < bytes; ++i) {
    all[mpi->rank * bytes + i] = byte_of(mpi->rank, 0, i);
  }
  EXPECT(castor_mpi_all_gather(mpi, 0, all + mpi->rank * bytes, all, bytes) ==
         CASTOR_OK);
  int wrong = 0;
  for (int r = 0; r < kRanks; ++r) {
    for (int64_t i = 0; i < bytes; ++i) {
      wrong += all[r * bytes + i] != byte_of(r, 0, i);
    }
  }
  EXPECT(wrong == 0);
  free(all);

  /* Of other sizes for each pair, none among them. */
  int64_t send_bytes[kRanks], recv_bytes[kRanks], sent = 0, received = 0;
  for (int r = 0; r < kRanks; ++r) {
    send_bytes[r] = 1500 * mpi->rank * r;
    recv_bytes[r] = 1500 * r * mpi->rank;
    sent += send_bytes[r];
    received += recv_bytes[r];
  }
  char* send = malloc((size_t)sent + 1);
  char* recv = malloc((size_t)received + 1);
  char* out = send;
  for (int r = 0; r < kRanks; ++r) {
    for (int64_t i = 0; i < send_bytes[r]; ++i)
      *out++ = byte_of(mpi->rank, r, i);
  }
  EXPECT(castor_mpi_all_to_all(mpi, 1, send, send_bytes, recv, recv_bytes) ==
         CASTOR_OK);
  const char* in = recv;
  for (int r = 0; r < kRanks; ++r) {
    for (int64_t i = 0; i < recv_bytes[r]; ++i) {
      wrong += *in++ != byte_of(r, mpi->rank, i);
    }
  }
  EXPECT(wrong == 0);
  free(send);
  free(recv);
}

static void* abort_soon(void* context) {
  usleep(50000);
  castor_mpi_abort(context, "the test");
  return NULL;
}

/* Rank 0 waits for the others until it is told not to. They come later, and all
 * is given back. */
static void end_a_call(castor_mpi* mpi) {
  char mine[100] = {0}, all[kRanks * 100];
  if (mpi->rank == 0) {
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, abort_soon, mpi) == 0);
    EXPECT(castor_mpi_all_gather(mpi, 2, mine, all, 100) == CASTOR_ABORTED);
    EXPECT(pthread_join(thread, NULL) == 0);
    EXPECT(mpi->pending != MPI_REQUEST_NULL);
    EXPECT(castor_mpi_barrier(mpi, 3) == CASTOR_ABORTED);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (mpi->rank != 0) {
    EXPECT(castor_mpi_all_gather(mpi, 2, mine, all, 100) == CASTOR_OK);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

static void expect_digest(castor_world* world, uint64_t digest) {
  struct rank self = {
      .world = world, .number = rank_of_process, .steps = kSteps};
  train(&self);
  EXPECT(self.failed == 0);
  if (self.failed != 0) fprintf(stderr, "%s\n", self.words);
  EXPECT(self.digest == digest);
  EXPECT(castor_world_destroy(world) == CASTOR_OK);
}

/* Rank 3 ends the world instead of making an engine. */
static void abort_world(void) {
  castor_world* world = NULL;
  EXPECT(castor_world_create_mpi(MPI_COMM_WORLD, NULL, &world) == CASTOR_OK);
  if (world == NULL) return;
  struct rank self = {.world = world, .number = rank_of_process, .steps = 1};
  if (rank_of_process == 3) {
    EXPECT(castor_world_abort(world, "rank 3 has no data") == CASTOR_OK);
  } else {
    train(&self);
    EXPECT(self.failed != 0);
    EXPECT(strstr(self.words, "rank 3 has no data") != NULL);
  }
  EXPECT(castor_world_destroy(world) == CASTOR_OK);
}

/* The program's, which asks waits to end when it is asked for the third time.
 */
static int32_t interrupt(void* context) { return ++*(int*)context >= 3; }

/* Rank 3 does not come until the others have gone. */
static void interrupt_creation(void) {
  if (rank_of_process != 3) {
    int asked = 0;
    castor_set_interrupt(interrupt, &asked);
    expect_refused(CASTOR_ABORTED, "interrupted");
    castor_set_interrupt(NULL, NULL);
    EXPECT(asked == 3);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank_of_process == 3) {
    MPI_Comm duplicate = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm_idup(MPI_COMM_WORLD, &duplicate, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s DIGEST or serialized\n", argv[0]);
    return 2;
  }
  const int serialized = strcmp(argv[1], "serialized") == 0;
  expect_refused(CASTOR_FAILED_PRECONDITION, "MPI_Init_thread");
  int provided = 0;
  MPI_Init_thread(&argc, &argv,
                  serialized ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE,
                  &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_of_process);
  if (serialized) {
    expect_refused(CASTOR_UNAVAILABLE, "MPI_THREAD_MULTIPLE");
  } else {
    const uint64_t digest = strtoull(argv[1], NULL, 16);
    int32_t code = CASTOR_OK;
    castor_mpi* mpi = castor_mpi_create(MPI_COMM_WORLD, &code);
    EXPECT(mpi != NULL && mpi->size == kRanks);
    if (mpi == NULL || mpi->size != kRanks) MPI_Abort(MPI_COMM_WORLD, 1);
    EXPECT(castor_mpi_barrier(mpi, 0) == CASTOR_OK);
    move_in_pieces(mpi);
    end_a_call(mpi);
    castor_mpi_release(mpi);

    castor_world* world = NULL;
    EXPECT(castor_world_create_mpi(MPI_COMM_WORLD, NULL, &world) == CASTOR_OK);
    expect_digest(world, digest);
    world = NULL;
    EXPECT(create_in_cc(MPI_COMM_WORLD, &world) == CASTOR_OK);
    expect_digest(world, digest);
    abort_world();
    /* Ranks of another world, with other numbers in it. */
    MPI_Comm alone = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank_of_process, 0, &alone);
    EXPECT(castor_world_create_mpi(alone, NULL, &world) == CASTOR_OK);
    struct rank self = {.world = world, .steps = 1};
    train(&self);
    EXPECT(self.failed == 0);
    EXPECT(castor_world_destroy(world) == CASTOR_OK);
    MPI_Comm_free(&alone);
    EXPECT(castor_world_create_mpi(MPI_COMM_NULL, NULL, &world) ==
           CASTOR_INVALID_ARGUMENT);
    EXPECT(world == NULL);
    interrupt_creation();
  }
  MPI_Finalize();
  return failures == 0 ? 0 : 1;
}
