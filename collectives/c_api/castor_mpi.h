/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Castor Authors */

#ifndef CASTOR_COLLECTIVES_C_API_CASTOR_MPI_H_
#define CASTOR_COLLECTIVES_C_API_CASTOR_MPI_H_

/* A world of Castor over the program's own MPI, in C11 and C++. MPI
 * implementations have no common binary interface, so libcastor.so knows none:
 * this file is compiled with the program, by its mpi.h.
 *
 *   MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
 *   if (castor_world_create_mpi(MPI_COMM_WORLD, NULL, &world) != CASTOR_OK) {
 *     fprintf(stderr, "%s\n", castor_last_error());
 *   }
 *   ...
 *   castor_world_destroy(world);
 *   MPI_Finalize();
 *
 * The world has a duplicate of the communicator and CASTOR_MPI_BUFFER_BYTES,
 * twice. castor_world_destroy frees both, so it comes before MPI_Finalize. A
 * thread of Castor's calls MPI, while the program calls it as it likes; with
 * the communicator itself it does so only while the world is created.
 *
 * Where a rank hangs or is gone, its world ends on the others. MPI cannot take
 * back an operation that has begun: the duplicate and its memory then stay, and
 * MPI_Finalize may wait for that rank; MPI_Abort does not. */

#include <castor.h>
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>

/* What travels at once, of all ranks together: the same on all of them. */
#ifndef CASTOR_MPI_BUFFER_BYTES
#define CASTOR_MPI_BUFFER_BYTES (8 << 20)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What follows, but for castor_world_create_mpi, is this file's own. */
typedef struct castor_mpi {
  MPI_Comm given; /* the program's */
  MPI_Comm comm;  /* its duplicate, from the first barrier on */
  int size;
  int rank;
  int piece;               /* bytes of each rank that travel at once */
  int ended;               /* atomic; set by any thread */
  MPI_Request pending;     /* not null: MPI may still use what follows */
  unsigned long rounds[2]; /* of this rank, and of the one that has most */
  int* counts;             /* of what is sent, its places, and what comes */
  char* sent;              /* a piece for each rank */
  char* received;
} castor_mpi;

static inline int32_t castor_mpi_check(int error, const char* call) {
  char words[MPI_MAX_ERROR_STRING + 64];
  int length = (int)strlen(call);
  int more = 0;
  if (error == MPI_SUCCESS) return CASTOR_OK;
  memcpy(words, call, (size_t)length);
  memcpy(words + length, ": ", 2);
  length += 2;
  if (MPI_Error_string(error, words + length, &more) != MPI_SUCCESS) more = 0;
  words[length + more] = '\0';
  castor_set_error(words);
  return CASTOR_IO_ERROR;
}

/* Waits for what is pending, or until the world is ended. Runs hot for a
 * moment, then sleeps longer and longer, half a millisecond at most. */
static inline int32_t castor_mpi_wait(castor_mpi* mpi, int error,
                                      const char* call) {
  int turn;
  int done = 0;
  long pause_us = 10;
  if (error != MPI_SUCCESS) mpi->pending = MPI_REQUEST_NULL;
  for (turn = 0; error == MPI_SUCCESS; ++turn) {
    error = MPI_Test(&mpi->pending, &done, MPI_STATUS_IGNORE);
    if (done) break;
    if (__atomic_load_n(&mpi->ended, __ATOMIC_ACQUIRE)) {
      castor_set_error("the world was ended while MPI waited for a rank");
      return CASTOR_ABORTED;
    }
    if (turn < 200) {
      sched_yield();
    } else {
      struct timeval pause;
      pause.tv_sec = 0;
      pause.tv_usec = pause_us;
      select(0, NULL, NULL, NULL, &pause);
      if (pause_us < 400) pause_us *= 2;
    }
  }
  return castor_mpi_check(error, call);
}

/* Not after an end: what is pending still has the buffers. */
static inline int32_t castor_mpi_begin(castor_mpi* mpi) {
  if (!__atomic_load_n(&mpi->ended, __ATOMIC_ACQUIRE) &&
      mpi->pending == MPI_REQUEST_NULL) {
    return CASTOR_OK;
  }
  castor_set_error("the world was ended");
  return CASTOR_ABORTED;
}

static inline int32_t castor_mpi_all_gather(void* context, uint64_t seq,
                                            const void* send, void* recv,
                                            int64_t bytes) {
  castor_mpi* mpi = (castor_mpi*)context;
  int64_t at;
  int32_t code = castor_mpi_begin(mpi);
  (void)seq;
  for (at = 0; code == CASTOR_OK && at < bytes; at += mpi->piece) {
    const int count = bytes - at < mpi->piece ? (int)(bytes - at) : mpi->piece;
    int r;
    memcpy(mpi->sent, (const char*)send + at, (size_t)count);
    code = castor_mpi_wait(
        mpi,
        MPI_Iallgather(mpi->sent, count, MPI_BYTE, mpi->received, count,
                       MPI_BYTE, mpi->comm, &mpi->pending),
        "MPI_Iallgather");
    for (r = 0; code == CASTOR_OK && r < mpi->size; ++r) {
      memcpy((char*)recv + r * bytes + at,
             mpi->received + (size_t)r * (size_t)count, (size_t)count);
    }
  }
  return code;
}

/* The piece of `bytes` that begins at `at`. */
static inline int castor_mpi_piece(const castor_mpi* mpi, int64_t bytes,
                                   int64_t at) {
  if (bytes <= at) return 0;
  return bytes - at < mpi->piece ? (int)(bytes - at) : mpi->piece;
}

static inline int32_t castor_mpi_all_to_all(void* context, uint64_t seq,
                                            const void* send,
                                            const int64_t* send_bytes,
                                            void* recv,
                                            const int64_t* recv_bytes) {
  castor_mpi* mpi = (castor_mpi*)context;
  int* const send_counts = mpi->counts;
  int* const recv_counts = mpi->counts + mpi->size;
  int* const places = mpi->counts + 2 * mpi->size;
  unsigned long round;
  int r;
  int32_t code = castor_mpi_begin(mpi);
  (void)seq;
  if (code != CASTOR_OK) return code;
  /* Other pairs of ranks may exchange more. */
  mpi->rounds[0] = 0;
  for (r = 0; r < mpi->size; ++r) {
    const int64_t most =
        send_bytes[r] > recv_bytes[r] ? send_bytes[r] : recv_bytes[r];
    round = (unsigned long)((most + mpi->piece - 1) / mpi->piece);
    if (round > mpi->rounds[0]) mpi->rounds[0] = round;
  }
  code = castor_mpi_wait(
      mpi,
      MPI_Iallreduce(&mpi->rounds[0], &mpi->rounds[1], 1, MPI_UNSIGNED_LONG,
                     MPI_MAX, mpi->comm, &mpi->pending),
      "MPI_Iallreduce");
  for (round = 0; code == CASTOR_OK && round < mpi->rounds[1]; ++round) {
    const int64_t at = (int64_t)round * mpi->piece;
    const char* from = (const char*)send;
    char* to = (char*)recv;
    for (r = 0; r < mpi->size; ++r) {
      places[r] = r * mpi->piece;
      send_counts[r] = castor_mpi_piece(mpi, send_bytes[r], at);
      recv_counts[r] = castor_mpi_piece(mpi, recv_bytes[r], at);
      if (send_counts[r] > 0) {
        memcpy(mpi->sent + places[r], from + at, (size_t)send_counts[r]);
      }
      from += send_bytes[r];
    }
    code = castor_mpi_wait(
        mpi,
        MPI_Ialltoallv(mpi->sent, send_counts, places, MPI_BYTE, mpi->received,
                       recv_counts, places, MPI_BYTE, mpi->comm, &mpi->pending),
        "MPI_Ialltoallv");
    for (r = 0; code == CASTOR_OK && r < mpi->size; ++r) {
      if (recv_counts[r] > 0) {
        memcpy(to + at, mpi->received + places[r], (size_t)recv_counts[r]);
      }
      to += recv_bytes[r];
    }
  }
  return code;
}

static inline int32_t castor_mpi_barrier(void* context, uint64_t seq) {
  castor_mpi* mpi = (castor_mpi*)context;
  int32_t code = castor_mpi_begin(mpi);
  (void)seq;
  if (code == CASTOR_OK && mpi->comm == MPI_COMM_NULL) {
    code = castor_mpi_wait(mpi,
                           MPI_Comm_idup(mpi->given, &mpi->comm, &mpi->pending),
                           "MPI_Comm_idup");
    if (code == CASTOR_OK) {
      MPI_Comm_set_errhandler(mpi->comm, MPI_ERRORS_RETURN);
    }
  }
  if (code != CASTOR_OK) return code;
  return castor_mpi_wait(mpi, MPI_Ibarrier(mpi->comm, &mpi->pending),
                         "MPI_Ibarrier");
}

static inline void castor_mpi_abort(void* context, const char* why) {
  castor_mpi* mpi = (castor_mpi*)context;
  (void)why;
  __atomic_store_n(&mpi->ended, 1, __ATOMIC_RELEASE);
}

static inline void castor_mpi_release(void* context) {
  castor_mpi* mpi = (castor_mpi*)context;
  int done = 1;
  if (mpi->pending != MPI_REQUEST_NULL) {
    MPI_Test(&mpi->pending, &done, MPI_STATUS_IGNORE);
  }
  if (!done) return;
  if (mpi->comm != MPI_COMM_NULL) MPI_Comm_free(&mpi->comm);
  free(mpi->counts);
  free(mpi->sent);
  free(mpi->received);
  free(mpi);
}

/* Null, and castor_last_error says why, where there is none. */
static inline castor_mpi* castor_mpi_create(MPI_Comm comm, int32_t* code) {
  int begun = 0;
  int over = 0;
  int provided = MPI_THREAD_SINGLE;
  size_t bytes;
  castor_mpi* mpi;
  MPI_Initialized(&begun);
  if (begun) MPI_Finalized(&over);
  if (!begun || over) {
    *code = castor_fail(CASTOR_FAILED_PRECONDITION,
                        "MPI is not there: create the world after "
                        "MPI_Init_thread and before MPI_Finalize");
    return NULL;
  }
  if (comm == MPI_COMM_NULL) {
    *code = castor_fail(CASTOR_INVALID_ARGUMENT,
                        "comm is MPI_COMM_NULL: this process is not of it");
    return NULL;
  }
  MPI_Query_thread(&provided);
  if (provided < MPI_THREAD_MULTIPLE) {
    *code = castor_fail(CASTOR_UNAVAILABLE,
                        "a thread of Castor's calls MPI beside the program, "
                        "and MPI was begun without MPI_THREAD_MULTIPLE: ask "
                        "MPI_Init_thread for that level");
    return NULL;
  }
  mpi = (castor_mpi*)calloc(1, sizeof(castor_mpi));
  if (mpi == NULL) {
    *code = castor_fail(CASTOR_UNAVAILABLE, "there is no memory for a world");
    return NULL;
  }
  mpi->given = comm;
  mpi->comm = MPI_COMM_NULL;
  mpi->pending = MPI_REQUEST_NULL;
  MPI_Comm_size(comm, &mpi->size);
  MPI_Comm_rank(comm, &mpi->rank);
  mpi->piece = CASTOR_MPI_BUFFER_BYTES / mpi->size;
  if (mpi->piece < 512) mpi->piece = 512;
  bytes = (size_t)mpi->piece * (size_t)mpi->size;
  mpi->counts = (int*)calloc(3 * (size_t)mpi->size, sizeof(int));
  mpi->sent = (char*)malloc(bytes);
  mpi->received = (char*)malloc(bytes);
  if (mpi->counts == NULL || mpi->sent == NULL || mpi->received == NULL ||
      bytes > INT_MAX) {
    castor_mpi_release(mpi);
    *code = castor_fail(CASTOR_UNAVAILABLE,
                        "there is no memory for what travels at once "
                        "(CASTOR_MPI_BUFFER_BYTES, twice)");
    return NULL;
  }
  return mpi;
}

/* A world whose ranks are the processes of `comm`, as
 * castor_world_create_callbacks makes one; `options` may be null. All of them
 * call it. CASTOR_UNAVAILABLE where MPI was begun without MPI_THREAD_MULTIPLE.
 */
static inline int32_t castor_world_create_mpi(
    MPI_Comm comm, const castor_world_options* options, castor_world** world) {
  castor_callbacks calls;
  int32_t code = CASTOR_OK;
  castor_mpi* const mpi = castor_mpi_create(comm, &code);
  if (world != NULL) *world = NULL;
  if (mpi == NULL) return code;
  memset(&calls, 0, sizeof(calls));
  calls.struct_size = sizeof(calls);
  calls.context = mpi;
  calls.all_gather = castor_mpi_all_gather;
  calls.all_to_all = castor_mpi_all_to_all;
  calls.barrier = castor_mpi_barrier;
  calls.abort = castor_mpi_abort;
  calls.release = castor_mpi_release;
  code = castor_world_create_callbacks(mpi->rank, mpi->size, &calls, options,
                                       world);
  if (code != CASTOR_OK) castor_mpi_release(mpi);
  return code;
}

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CASTOR_COLLECTIVES_C_API_CASTOR_MPI_H_ */
