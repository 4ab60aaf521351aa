/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Castor Authors */

/* A world over the caller's own collectives: four processes, connected by
 * sockets, train with the bits of four threads; and what happens where one of
 * them fails, hangs or is killed.
 *
 *   callbacks_test LIBRARY */

#include <dlfcn.h>
#include <errno.h>
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

static int failures = 0;

#define EXPECT(condition)                                                      \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                              \
    }                                                                          \
  } while (0)

#define FUNCTIONS(X)                 \
  X(castor_last_error)               \
  X(castor_set_error)                \
  X(castor_world_create)             \
  X(castor_world_create_callbacks)   \
  X(castor_world_abort)              \
  X(castor_world_destroy)            \
  X(castor_engine_create)            \
  X(castor_engine_register)          \
  X(castor_engine_seal)              \
  X(castor_engine_begin_micro_batch) \
  X(castor_engine_acquire)           \
  X(castor_param_lease_release)      \
  X(castor_engine_grad)              \
  X(castor_engine_grad_ready)        \
  X(castor_engine_step)              \
  X(castor_engine_weight_digest)     \
  X(castor_engine_close)             \
  X(castor_engine_destroy)

struct api {
#define MEMBER(name) __typeof__(&name) name;
  FUNCTIONS(MEMBER)
#undef MEMBER
};

static struct api castor;

static void load(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "dlopen: %s\n", dlerror());
    exit(1);
  }
  void* found;
#define FIND(name)                     \
  found = dlsym(library, #name);       \
  if (found == NULL) {                 \
    fprintf(stderr, "no %s\n", #name); \
    exit(1);                           \
  }                                    \
  memcpy(&castor.name, &found, sizeof(found));
  FUNCTIONS(FIND)
#undef FIND
}

enum { kRanks = 4, kParams = 6, kElements = 1000, kSteps = 5 };

/* A rank's ends of the sockets; [rank] is not used. */
struct group {
  int rank;
  int socket[kRanks];
  int ended[2]; /* a pipe: written to by abort */
  uint64_t seq;
  uint64_t fail_at; /* this call answers a failure */
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
      castor.castor_set_error("the group was aborted");
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
          castor.castor_set_error("a process of the group is gone");
          return CASTOR_IO_ERROR;
        }
      }
    }
  }
}

static int32_t begin(struct group* group, uint64_t seq) {
  EXPECT(seq == group->seq);
  ++group->seq;
  if (seq < group->fail_at) return 0;
  castor.castor_set_error("the switch is on fire");
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

static int32_t fill(void* context, int64_t begin_at, int64_t end_at,
                    float* out) {
  for (int64_t i = begin_at; i < end_at; ++i) {
    *out++ = (float)(i % 7) * 0.25f + *(const float*)context;
  }
  return CASTOR_OK;
}

static int32_t fail_to_fill(void* context, int64_t begin_at, int64_t end_at,
                            float* out) {
  (void)context, (void)begin_at, (void)end_at, (void)out;
  castor.castor_set_error("weights.bin is not there");
  return CASTOR_IO_ERROR;
}

struct rank {
  castor_world* world;
  int number;
  int steps;
  int lacks_weights;
  uint64_t digest;
  int32_t failed; /* what the first call that failed answered */
  char words[512];
};

#define TRY(call)                                      \
  do {                                                 \
    const int32_t code_ = (call);                      \
    if (code_ != CASTOR_OK && self->failed == 0) {     \
      self->failed = code_;                            \
      snprintf(self->words, sizeof(self->words), "%s", \
               castor.castor_last_error());            \
    }                                                  \
    if (code_ != CASTOR_OK) goto out;                  \
  } while (0)

static void* train(void* context) {
  struct rank* self = context;
  castor_engine* engine = NULL;
  float first[kParams];
  int32_t params[kParams];
  TRY(castor.castor_engine_create(
      self->world, self->number, NULL,
      "{\"stage\": 3, \"device_budget_bytes\": 8388608,"
      " \"host_budget_bytes\": 1048576, \"chunk\": {\"bytes\": 8192},"
      " \"clip_norm\": 0.5}",
      &engine));
  for (int p = 0; p < kParams; ++p) {
    char name[8];
    snprintf(name, sizeof(name), "w%d", p);
    const int64_t shape[] = {kElements};
    const castor_tensor tensor = {name, shape, 1, 0, "F32"};
    first[p] = (float)p;
    TRY(castor.castor_engine_register(engine, &tensor, NULL,
                                      self->lacks_weights ? fail_to_fill : fill,
                                      &first[p], &params[p]));
  }
  TRY(castor.castor_engine_seal(engine, NULL));
  for (int step = 0; step < self->steps; ++step) {
    TRY(castor.castor_engine_begin_micro_batch(engine, 1));
    for (int p = 0; p < kParams; ++p) {
      const void* values = NULL;
      castor_param_lease* lease = NULL;
      TRY(castor.castor_engine_acquire(engine, &params[p], 1, &values, &lease));
      void* grads = NULL;
      TRY(castor.castor_engine_grad(engine, params[p], &grads));
      for (int i = 0; i < kElements; ++i) {
        ((float*)grads)[i] +=
            ((const float*)values)[i] * (float)(self->number + 1) * 0.125f;
      }
      TRY(castor.castor_param_lease_release(lease));
      TRY(castor.castor_engine_grad_ready(engine, params[p]));
    }
    TRY(castor.castor_engine_step(engine, 0.01, NULL));
  }
  TRY(castor.castor_engine_weight_digest(engine, &self->digest));
  TRY(castor.castor_engine_close(engine));
out:
  castor.castor_engine_destroy(engine);
  return NULL;
}

/* In a process of its own, so that no thread is there when others fork. */
static uint64_t train_threads(uint64_t* shared) {
  const pid_t child = fork();
  if (child == 0) {
    castor_world* world = NULL;
    castor_world_options options = {.struct_size = sizeof(options)};
    options.threads = 1;
    EXPECT(castor.castor_world_create(kRanks, &options, &world) == CASTOR_OK);
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
    EXPECT(castor.castor_world_destroy(world) == CASTOR_OK);
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
};

/* Runs `act` in a process for each rank, all connected. */
static void run_processes(void (*act)(struct group*, struct found*),
                          struct found* found) {
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
    struct group group = {.rank = r, .fail_at = UINT64_MAX};
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
  const castor_callbacks callbacks = {sizeof(callbacks), group,   all_gather,
                                      all_to_all,        barrier, end};
  castor_world_options options = {.struct_size = sizeof(options)};
  options.threads = 1;
  options.timeout_ms = 3000;
  return castor.castor_world_create_callbacks(group->rank, kRanks, &callbacks,
                                              &options, world);
}

static void train_process(struct group* group, struct found* found) {
  castor_world* world = NULL;
  EXPECT(join_world(group, &world) == CASTOR_OK);
  if (world == NULL) return;
  castor_engine* other = NULL;
  EXPECT(castor.castor_engine_create(world, (group->rank + 1) % kRanks, NULL,
                                     NULL, &other) == CASTOR_INVALID_ARGUMENT);
  found->rank.world = world;
  found->rank.number = group->rank;
  found->rank.steps = kSteps;
  train(&found->rank);
  const uint64_t calls = group->seq;
  EXPECT(calls > 0);
  EXPECT(castor.castor_world_destroy(world) == CASTOR_OK);
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
  castor.castor_world_destroy(world);
}

static void die_in_training(struct group* group, struct found* found) {
  castor_world* world = NULL;
  EXPECT(join_world(group, &world) == CASTOR_OK);
  if (world == NULL) return;
  found->rank.world = world;
  found->rank.number = group->rank;
  found->rank.steps = group->rank == 2 ? 3 : 1000;
  train(&found->rank);
  if (group->rank == 2) raise(SIGKILL);
  castor.castor_world_destroy(world);
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
    EXPECT(castor.castor_world_abort(world, "rank 3 has no data") == CASTOR_OK);
  } else {
    train(&found->rank);
  }
  castor.castor_world_destroy(world);
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
  castor.castor_world_destroy(world);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s LIBRARY\n", argv[0]);
    return 2;
  }
  signal(SIGPIPE, SIG_IGN);
  load(argv[1]);
  const size_t size = (kRanks + 1) * sizeof(struct found);
  struct found* found = mmap(NULL, size, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) return 1;

  const uint64_t digest = train_threads(&found[kRanks].rank.digest);
  EXPECT(digest != 0);
  run_processes(train_process, found);
  for (int r = 0; r < kRanks; ++r) {
    EXPECT(found[r].rank.failed == 0);
    if (found[r].rank.failed != 0) fprintf(stderr, "%s\n", found[r].rank.words);
    EXPECT(found[r].rank.digest == digest);
  }

  memset(found, 0, size);
  run_processes(fail_in_training, found);
  for (int r = 0; r < kRanks; ++r) EXPECT(found[r].rank.failed != 0);
  EXPECT(strstr(found[1].rank.words, "the switch is on fire") != NULL);

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
  if (failures == 0) puts("ok");
  return failures == 0 ? 0 : 1;
}
