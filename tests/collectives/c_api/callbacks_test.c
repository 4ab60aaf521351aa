/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Castor Authors */

/* A world over the caller's own collectives, or over shared memory: four
 * processes, connected by sockets or by memory, train with the bits of four
 * threads; and what happens where one of them fails, hangs or is killed. Prints
 * the digest of what was trained. */

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/c_api/castor.h"
#include "tests/collectives/c_api/c_trainer.h"

/* A rank's ends of the sockets; [rank] is not used. */
struct group {
  int rank;
  int socket[kRanks];
  int ended[2]; /* a pipe: written to by abort */
  uint64_t seq;
  uint64_t fail_at;   /* this call answers a failure */
  int64_t timeout_ms; /* of the world */
  pthread_t creator;  /* the thread that creates the world */
  pthread_t caller;   /* Castor's, that made the first call */
  int released;
};

/* Sends and receives all at once, until done or ended. */
static int32_t exchange(struct group* group, const char* const send[],
                        const int64_t send_bytes[], char* const recv[],
                        const int64_t recv_bytes[]) {
  int64_t sent[kRanks] = {0}, received[kRanks] = {0};
  for (;;) {
    struct pollfd polls[kRanks + 1];
    int open = 0;
    for (int r = 0; r < kRanks; ++r) {
      short events = 0;
      if (r != group->rank) {
        if (sent[r] < send_bytes[r]) events |= POLLOUT;
        if (received[r] < recv_bytes[r]) events |= POLLIN;
      }
      polls[r] =
          (struct pollfd){events != 0 ? group->socket[r] : -1, events, 0};
      open += events != 0;
    }
    if (open == 0) return 0;
    polls[kRanks] = (struct pollfd){group->ended[0], POLLIN, 0};
    if (poll(polls, kRanks + 1, -1) < 0 && errno != EINTR)
      return CASTOR_IO_ERROR;
    if (polls[kRanks].revents != 0) {
      castor_set_error("the group was aborted");
      return CASTOR_ABORTED;
    }
    for (int r = 0; r < kRanks; ++r) {
      if (polls[r].revents & POLLOUT) {
        const ssize_t n = write(group->socket[r], send[r] + sent[r],
                                (size_t)(send_bytes[r] - sent[r]));
        if (n > 0) sent[r] += n;
      }
      if (polls[r].revents & (POLLIN | POLLHUP)) {
        const ssize_t n = read(group->socket[r], recv[r] + received[r],
                               (size_t)(recv_bytes[r] - received[r]));
        if (n > 0) received[r] += n;
        if (n == 0) {
          castor_set_error("a process of the group is gone");
          return CASTOR_IO_ERROR;
        }
      }
    }
  }
}

static int32_t begin(struct group* group, uint64_t seq) {
  EXPECT(seq == group->seq);
  if (seq == 0) group->caller = pthread_self();
  EXPECT(pthread_equal(group->caller, pthread_self()));
  EXPECT(!pthread_equal(group->creator, pthread_self()));
  EXPECT(group->released == 0);
  ++group->seq;
  if (seq < group->fail_at) return 0;
  castor_set_error("the switch is on fire");
  return CASTOR_IO_ERROR;
}

static int32_t all_gather(void* context, uint64_t seq, const void* send,
                          void* recv, int64_t bytes) {
  struct group* group = context;
  const int32_t begun = begin(group, seq);
  if (begun != 0) return begun;
  const char* from[kRanks];
  char* to[kRanks];
  int64_t sizes[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    from[r] = send;
    to[r] = (char*)recv + r * bytes;
    sizes[r] = bytes;
  }
  memmove(to[group->rank], send, (size_t)bytes);
  return exchange(group, from, sizes, to, sizes);
}

static int32_t all_to_all(void* context, uint64_t seq, const void* send,
                          const int64_t* send_bytes, void* recv,
                          const int64_t* recv_bytes) {
  struct group* group = context;
  const int32_t begun = begin(group, seq);
  if (begun != 0) return begun;
  const char* from[kRanks];
  char* to[kRanks];
  const char* out = send;
  char* in = recv;
  for (int r = 0; r < kRanks; ++r) {
    from[r] = out;
    to[r] = in;
    out += send_bytes[r];
    in += recv_bytes[r];
  }
  memcpy(to[group->rank], from[group->rank], (size_t)recv_bytes[group->rank]);
  return exchange(group, from, send_bytes, to, recv_bytes);
}

static int32_t barrier(void* context, uint64_t seq) {
  char byte = 1, all[kRanks];
  return all_gather(context, seq, &byte, all, 1);
}

static void end(void* context, const char* why) {
  struct group* group = context;
  EXPECT(why != NULL);
  EXPECT(write(group->ended[1], "x", 1) == 1);
}

static void release(void* context) {
  struct group* group = context;
  ++group->released;
}

/* In a process of its own, so that no thread is there when others fork. */
static uint64_t train_threads(uint64_t* shared) {
  const pid_t child = fork();
  if (child == 0) {
    castor_world* world = NULL;
    castor_world_options options = CASTOR_INIT(castor_world_options);
    options.threads = 1;
    EXPECT(castor_world_create(kRanks, &options, &world) == CASTOR_OK);
    pthread_t threads[kRanks];
    struct rank ranks[kRanks];
    for (int r = 0; r < kRanks; ++r) {
      ranks[r] = (struct rank){.world = world, .number = r, .steps = kSteps};
      EXPECT(pthread_create(&threads[r], NULL, train, &ranks[r]) == 0);
    }
    for (int r = 0; r < kRanks; ++r) {
      EXPECT(pthread_join(threads[r], NULL) == 0);
      EXPECT(ranks[r].failed == 0);
      EXPECT(ranks[r].digest == ranks[0].digest);
    }
    EXPECT(castor_world_destroy(world) == CASTOR_OK);
    *shared = ranks[0].digest;
    _exit(failures != 0);
  }
  int status = 0;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  return *shared;
}

/* What one process found, in memory that all see. */
struct found {
  struct rank rank;
  int failures;
  pid_t pid;
};

/* Runs `act` in a process for each rank, all connected. */
static int shared;    /* worlds are over shared memory */
static char name[64]; /* of the world that is being made */

static void run_processes(void (*act)(struct group*, struct found*),
                          struct found* found) {
  static int worlds;
  snprintf(name, sizeof(name), "test%dx%d", (int)getpid(), ++worlds);
  int sockets[kRanks][kRanks];
  for (int a = 0; a < kRanks; ++a) {
    for (int b = a + 1; b < kRanks; ++b) {
      int pair[2];
      EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
      sockets[a][b] = pair[0];
      sockets[b][a] = pair[1];
    }
  }
  pid_t children[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    children[r] = fork();
    if (children[r] != 0) continue;
    struct group group = {.rank = r, .fail_at = UINT64_MAX, .timeout_ms = 3000};
    for (int a = 0; a < kRanks; ++a) {
      for (int b = 0; b < kRanks; ++b) {
        if (a == b) continue;
        if (a == r) {
          group.socket[b] = sockets[a][b];
        } else {
          close(sockets[a][b]);
        }
      }
    }
    EXPECT(pipe(group.ended) == 0);
    group.creator = pthread_self();
    found[r].pid = getpid();
    act(&group, &found[r]);
    found[r].failures = failures;
    _exit(0);
  }
  for (int a = 0; a < kRanks; ++a) {
    for (int b = 0; b < kRanks; ++b) {
      if (a != b) close(sockets[a][b]);
    }
  }
  for (int r = 0; r < kRanks; ++r) {
    int status = 0;
    EXPECT(waitpid(children[r], &status, 0) == children[r]);
    failures += found[r].failures;
  }
}

static int32_t join_world(struct group* group, castor_world** world) {
  const castor_callbacks callbacks = {
      sizeof(callbacks), group, all_gather, all_to_all, barrier, end, release};
  castor_world_options options = CASTOR_INIT(castor_world_options);
  options.threads = 1;
  options.timeout_ms = group->timeout_ms;
  if (shared) {
    return castor_world_create_shared(group->rank, kRanks, name, &options,
                                      world);
  }
  return castor_world_create_callbacks(group->rank, kRanks, &callbacks,
                                       &options, world);
}

static void train_process(struct group* group, struct found* found) {
  castor_world* world = NULL;
  EXPECT(join_world(group, &world) == CASTOR_OK);
  if (world == NULL) return;
  castor_engine* other = NULL;
  EXPECT(castor_engine_create(world, (group->rank + 1) % kRanks, NULL, "{}",
                              &other) == CASTOR_INVALID_ARGUMENT);
  found->rank.world = world;
  found->rank.number = group->rank;
  found->rank.steps = kSteps;
  train(&found->rank);
  EXPECT((group->seq > 0) == !shared);
  EXPECT(group->released == 0);
  EXPECT(castor_world_destroy(world) == CASTOR_OK);
  EXPECT(group->released == !shared);
}

/* Rank 1's network fails in the middle of it. */
static void fail_in_training(struct group* group, struct found* found) {
  castor_world* world = NULL;
  if (group->rank == 1) group->fail_at = 40;
  EXPECT(join_world(group, &world) == CASTOR_OK);
  if (world == NULL) return;
  found->rank.world = world;
  found->rank.number = group->rank;
  found->rank.steps = 1000;
  train(&found->rank);
  castor_world_destroy(world);
}

static void die_in_training(struct group* group, struct found* found) {
  castor_world* world = NULL;
  EXPECT(join_world(group, &world) == CASTOR_OK);
  if (world == NULL) return;
  found->rank.world = world;
  found->rank.number = group->rank;
  found->rank.steps = 1000;
  if (group->rank == 2) found->rank.signal = SIGKILL;
  train(&found->rank);
  castor_world_destroy(world);
}

/* Rank 3 ends the world instead of making an engine. */
static void abort_world(struct group* group, struct found* found) {
  castor_world* world = NULL;
  EXPECT(join_world(group, &world) == CASTOR_OK);
  if (world == NULL) return;
  found->rank.world = world;
  found->rank.number = group->rank;
  found->rank.steps = 1;
  if (group->rank == 3) {
    EXPECT(castor_world_abort(world, "rank 3 has no data") == CASTOR_OK);
  } else {
    train(&found->rank);
  }
  castor_world_destroy(world);
}

/* Rank 2 has no initial values. */
static void lack_weights(struct group* group, struct found* found) {
  castor_world* world = NULL;
  EXPECT(join_world(group, &world) == CASTOR_OK);
  if (world == NULL) return;
  found->rank.world = world;
  found->rank.number = group->rank;
  found->rank.steps = 1;
  found->rank.lacks_weights = group->rank == 2;
  train(&found->rank);
  castor_world_destroy(world);
}

/* The program's, which asks waits to end when it is asked for the third time.
 */
static int32_t interrupt(void* context) { return ++*(int*)context >= 3; }

static void await_failures(const struct found* all, int ranks) {
  for (int r = 0; r < ranks; ++r) {
    const volatile int32_t* failed = &all[r].rank.failed;
    while (*failed == 0) usleep(1000);
  }
}

/* Rank 3 is there, and does not come. */
static void interrupt_creation(struct group* group, struct found* found) {
  if (group->rank == 3) {
    await_failures(found - 3, 3);
    return;
  }
  int asked = 0;
  castor_world* world = NULL;
  group->timeout_ms = -1;
  castor_set_interrupt(interrupt, &asked);
  const int32_t code = join_world(group, &world);
  EXPECT(world == NULL);
  /* Over shared memory the first one ends the others' waits too. */
  EXPECT(shared || asked == 3);
  EXPECT(group->released == 0);
  snprintf(found->rank.words, sizeof(found->rank.words), "%s",
           castor_last_error());
  found->rank.failed = code;
}

/* Rank 2 is stopped in the middle of it, and no timeout ends that. */
static void interrupt_training(struct group* group, struct found* found) {
  int asked = 0;
  castor_world* world = NULL;
  group->timeout_ms = -1;
  EXPECT(join_world(group, &world) == CASTOR_OK);
  if (world == NULL) return;
  found->rank.world = world;
  found->rank.number = group->rank;
  found->rank.steps = 1000;
  if (group->rank == 2) {
    found->rank.signal = SIGSTOP;
  } else {
    castor_set_interrupt(interrupt, &asked);
  }
  train(&found->rank);
  if (group->rank == 3) {
    await_failures(found - 3, 2);
    kill((found - 1)->pid, SIGKILL);
  }
  castor_world_destroy(world);
}

static void check_processes(struct found* found, size_t size, uint64_t digest) {
  memset(found, 0, size);
  run_processes(train_process, found);
  for (int r = 0; r < kRanks; ++r) {
    EXPECT(found[r].rank.failed == 0);
    if (found[r].rank.failed != 0) fprintf(stderr, "%s\n", found[r].rank.words);
    EXPECT(found[r].rank.digest == digest);
  }

  if (!shared) {
    memset(found, 0, size);
    run_processes(fail_in_training, found);
    for (int r = 0; r < kRanks; ++r) EXPECT(found[r].rank.failed != 0);
    EXPECT(strstr(found[1].rank.words, "the switch is on fire") != NULL);
  }

  memset(found, 0, size);
  run_processes(die_in_training, found);
  for (int r = 0; r < kRanks; ++r) EXPECT(found[r].rank.failed != 0 || r == 2);

  memset(found, 0, size);
  run_processes(abort_world, found);
  for (int r = 0; r < 3; ++r) {
    EXPECT(found[r].rank.failed != 0);
    EXPECT(strstr(found[r].rank.words, "rank 3 has no data") != NULL);
    if (failures != 0) fprintf(stderr, "%s\n", found[r].rank.words);
  }

  memset(found, 0, size);
  run_processes(lack_weights, found);
  for (int r = 0; r < kRanks; ++r) {
    EXPECT(found[r].rank.failed == CASTOR_IO_ERROR);
    EXPECT(strstr(found[r].rank.words, "the initial values of \"w") != NULL);
    EXPECT(strstr(found[r].rank.words, "weights.bin is not there") != NULL);
    if (failures != 0) fprintf(stderr, "%s\n", found[r].rank.words);
  }

  memset(found, 0, size);
  run_processes(interrupt_creation, found);
  for (int r = 0; r < 3; ++r) {
    EXPECT(found[r].rank.failed == CASTOR_ABORTED);
    EXPECT(strstr(found[r].rank.words, "interrupted") != NULL);
  }

  memset(found, 0, size);
  run_processes(interrupt_training, found);
  for (int r = 0; r < kRanks; ++r) {
    if (r == 2) continue;
    EXPECT(found[r].rank.failed == CASTOR_ABORTED);
    EXPECT(strstr(found[r].rank.words, "interrupted") != NULL);
  }
}

static void refuse_names(void) {
  castor_world* world = NULL;
  const char* names[] = {NULL, "", "a/b", "a b", ".."};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
    EXPECT(castor_world_create_shared(0, 1, names[i], NULL, &world) ==
           CASTOR_INVALID_ARGUMENT);
  }
  EXPECT(castor_world_create_shared(0, 65, "many", NULL, &world) ==
         CASTOR_INVALID_ARGUMENT);
  EXPECT(strstr(castor_last_error(), "64") != NULL);
}

int main(void) {
  signal(SIGPIPE, SIG_IGN);
  const size_t size = (kRanks + 1) * sizeof(struct found);
  struct found* found = mmap(NULL, size, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) return 1;

  const uint64_t digest = train_threads(&found[kRanks].rank.digest);
  EXPECT(digest != 0);
  check_processes(found, size, digest);
  shared = 1;
  check_processes(found, size, digest);
  refuse_names();
  if (failures == 0) printf("%016" PRIx64 "\n", digest);
  return failures == 0 ? 0 : 1;
}
