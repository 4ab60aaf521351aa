/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Castor Authors */

/* libcastor.so as a program in C meets it: loaded by dlopen while the program
 * runs, also on a thread, twice and again. Arguments: the library, and the
 * allocator that its arena is expected to use. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/c_api/castor.h"

static atomic_int failures = 0;

#define EXPECT(condition)                                                      \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                              \
    }                                                                          \
  } while (0)

/* What a function of `api`, named without castor_, is to return. */
#define GIVES(code, name, ...) \
  EXPECT(api->castor_##name(__VA_ARGS__) == CASTOR_##code)

/* The functions under their own types, from the header. */
#define FUNCTIONS(X)                 \
  X(castor_abi_version)              \
  X(castor_version)                  \
  X(castor_code_name)                \
  X(castor_last_error)               \
  X(castor_last_raises)              \
  X(castor_search_run)               \
  X(castor_pinned_arena_create)      \
  X(castor_pinned_arena_allocate)    \
  X(castor_pinned_arena_free)        \
  X(castor_pinned_arena_get_stats)   \
  X(castor_pinned_arena_destroy)     \
  X(castor_fail)                     \
  X(castor_nccl_id)                  \
  X(castor_world_create)             \
  X(castor_world_create_nccl)        \
  X(castor_world_destroy)            \
  X(castor_world_record)             \
  X(castor_world_end_record)         \
  X(castor_lane_create)              \
  X(castor_lane_destroy)             \
  X(castor_lane_run)                 \
  X(castor_lane_wait)                \
  X(castor_lane_drain)               \
  X(castor_engine_use_lane)          \
  X(castor_engine_create)            \
  X(castor_engine_destroy)           \
  X(castor_engine_close)             \
  X(castor_engine_register)          \
  X(castor_engine_seal)              \
  X(castor_engine_begin_micro_batch) \
  X(castor_engine_acquire)           \
  X(castor_param_lease_release)      \
  X(castor_engine_grad)              \
  X(castor_engine_grad_ready)        \
  X(castor_engine_give_grad)         \
  X(castor_engine_give_grads)        \
  X(castor_engine_borrow)            \
  X(castor_memory_lease_release)     \
  X(castor_engine_step)              \
  X(castor_engine_set_update)        \
  X(castor_engine_update_early)      \
  X(castor_engine_guess_updates)     \
  X(castor_engine_clip_gradients)    \
  X(castor_engine_finish_gradients)  \
  X(castor_engine_drop_gradient)     \
  X(castor_engine_get_loss_scale)    \
  X(castor_engine_get_param)         \
  X(castor_engine_begin_evaluation)  \
  X(castor_engine_end_evaluation)    \
  X(castor_engine_abandon)           \
  X(castor_engine_find)              \
  X(castor_engine_read)              \
  X(castor_engine_write)             \
  X(castor_engine_weight_digest)     \
  X(castor_engine_save)              \
  X(castor_engine_load)              \
  X(castor_engine_loaded_trainer)    \
  X(castor_engine_park)              \
  X(castor_engine_resume)            \
  X(castor_engine_trace)             \
  X(castor_engine_get_stats)

struct api {
#define MEMBER(name) __typeof__(&name) name;
  FUNCTIONS(MEMBER)
#undef MEMBER
};

static int find_functions(void* library, struct api* api) {
  void* found;
#define FIND(name)                                    \
  found = dlsym(library, #name);                      \
  if (found == NULL) {                                \
    fprintf(stderr, "no %s: %s\n", #name, dlerror()); \
    return 0;                                         \
  }                                                   \
  memcpy(&api->name, &found, sizeof(found));
  FUNCTIONS(FIND)
#undef FIND
  return 1;
}

/* Who serves malloc and its kin, by address and by file. */
struct servant {
  void* address;
  char file[512];
};

static const char* const kMallocNames[] = {
    "malloc", "free", "calloc", "realloc", "posix_memalign", "aligned_alloc"};
enum { kMallocs = sizeof(kMallocNames) / sizeof(kMallocNames[0]) };

static void find_malloc(struct servant* servants) {
  for (int i = 0; i < kMallocs; ++i) {
    Dl_info info;
    servants[i].address = dlsym(RTLD_DEFAULT, kMallocNames[i]);
    EXPECT(servants[i].address != NULL);
    EXPECT(dladdr(servants[i].address, &info) != 0);
    snprintf(servants[i].file, sizeof(servants[i].file), "%s", info.dli_fname);
  }
}

static void expect_same_malloc(const struct servant* before) {
  struct servant now[kMallocs];
  find_malloc(now);
  for (int i = 0; i < kMallocs; ++i) {
    EXPECT(now[i].address == before[i].address);
    EXPECT(strcmp(now[i].file, before[i].file) == 0);
    EXPECT(strstr(now[i].file, "libcastor") == NULL);
  }
}

static void use_search(const struct api* api) {
  const int64_t wide[] = {4096, 1024};
  const int64_t narrow[] = {1024};
  castor_tensor tensors[8];
  for (int i = 0; i < 8; ++i) {
    tensors[i].name = i % 2 ? "bias" : "weight";
    tensors[i].dims = i % 2 ? narrow : wide;
    tensors[i].dim_count = i % 2 ? 1 : 2;
    tensors[i].frozen = 0;
    tensors[i].dtype = "BF16";
  }
  const char* json = NULL;
  GIVES(OK, search_run, tensors, 8, NULL, &json);
  EXPECT(strstr(json, "\"schema\": \"castor.search/1\"") != NULL);
  EXPECT(strstr(json, "\"tensors\": 8") != NULL);
  EXPECT(strstr(json, "\"elements\": 16781312") != NULL);
  EXPECT(strstr(json, "\"optimal\": true") != NULL);
  GIVES(OK, search_run, tensors, 8,
        "{\"min\": \"1MiB\", \"max\": 67108864, \"world\": 4}", &json);
  EXPECT(strstr(json, "\"min_chunk_bytes\": 1048576,") != NULL);
  EXPECT(strstr(json, "\"q_elements\": 512,") != NULL);

  GIVES(INFEASIBLE, search_run, tensors, 8, "{\"device_budget\": 4096}", &json);
  EXPECT(json == NULL);
  GIVES(INVALID_ARGUMENT, search_run, tensors, 8, "{\"word\": 4}", &json);
  EXPECT(strstr(api->castor_last_error(), "did you mean") != NULL);
  GIVES(INVALID_ARGUMENT, search_run, tensors, 8, "{\"align\": 96}", &json);
  EXPECT(strstr(api->castor_last_error(), "try 128") != NULL);
  EXPECT(strstr(api->castor_last_error(), "--") == NULL);
  tensors[3].dtype = "F33";
  GIVES(INVALID_ARGUMENT, search_run, tensors, 8, NULL, &json);
  EXPECT(strstr(api->castor_last_error(), "F33") != NULL);
  tensors[3].dtype = "F32";
  const int64_t negative[] = {-1};
  tensors[3].dims = negative;
  GIVES(MALFORMED, search_run, tensors, 8, NULL, &json);
  GIVES(INVALID_ARGUMENT, search_run, NULL, 1, NULL, &json);
}

static void use_arena(const struct api* api, const char* allocator) {
  castor_pinned_arena* arena = NULL;
  GIVES(INVALID_ARGUMENT, pinned_arena_create, 1000, &arena);
  EXPECT(arena == NULL);
  GIVES(OK, pinned_arena_create, 1 << 20, &arena);
  if (arena == NULL) return;
  void* page = NULL;
  void* small = NULL;
  void* none = NULL;
  GIVES(OK, pinned_arena_allocate, arena, 5000, 0, &page);
  EXPECT((uintptr_t)page % 4096 == 0);
  GIVES(OK, pinned_arena_allocate, arena, 24, 8, &small);
  memset(page, 1, 5000);
  memset(small, 2, 24);
  GIVES(TIER_FULL, pinned_arena_allocate, arena, 1 << 20, 0, &none);
  EXPECT(none == NULL);
  EXPECT(strstr(api->castor_last_error(), "1 MiB") != NULL);
  castor_pinned_arena_stats stats;
  stats.struct_size = sizeof(stats);
  GIVES(OK, pinned_arena_get_stats, arena, &stats);
  EXPECT(strncmp(stats.allocator, allocator, strlen(allocator)) == 0);
  EXPECT(stats.budget_bytes == 1 << 20);
  EXPECT(stats.buffers == 2);
  EXPECT(stats.allocated == 2);
  EXPECT(stats.refused == 1);
  EXPECT(stats.requested_bytes == 5024);
  EXPECT(stats.live_bytes >= 5024 && stats.live_bytes <= stats.in_use_bytes);
  EXPECT(stats.in_use_bytes <= 8192 + 16384);
  GIVES(FAILED_PRECONDITION, pinned_arena_destroy, arena);
  GIVES(OK, pinned_arena_free, arena, page);
  GIVES(INVALID_ARGUMENT, pinned_arena_free, arena, page);
  GIVES(INVALID_ARGUMENT, pinned_arena_free, arena, &stats);
  GIVES(OK, pinned_arena_free, arena, small);
  GIVES(OK, pinned_arena_allocate, arena, 1 << 20, 0, &page);
  GIVES(OK, pinned_arena_free, arena, page);
  GIVES(OK, pinned_arena_destroy, arena);
  GIVES(OK, pinned_arena_destroy, NULL);
}

/* ---- Training on two ranks, each a thread. */

enum { kRanks = 2, kWide = 192, kNarrow = 5, kSteps = 2 };

struct rank {
  const struct api* api;
  castor_world* world;
  const char* folder;
  int number;
  uint64_t digest;
  int own_lanes; /* computes on two lanes of its own */
};

/* Quarters, so that every sum is exact. */
static int32_t fill(void* context, int64_t begin, int64_t end, float* values) {
  const float first = *(const float*)context;
  for (int64_t i = begin; i < end; ++i) {
    values[i - begin] = first + 0.25f * (float)i;
  }
  return CASTOR_OK;
}

static void expect_values(const struct api* api, castor_engine* engine,
                          int32_t param, int64_t count, float first) {
  float values[kWide];
  GIVES(OK, engine_read, engine, param, CASTOR_PARAM, values, count);
  for (int64_t i = 0; i < count; ++i) {
    EXPECT(values[i] == first + 0.25f * (float)i);
  }
}

/* A gradient of `value`, and what the weights were on the lane. */
struct lane_work {
  float* grad;
  const float* weights;
  int64_t count;
  float value;
  float first_weight;
};

static int32_t look_and_add(void* context) {
  struct lane_work* work = context;
  work->first_weight = work->weights[0];
  for (int64_t i = 0; i < work->count; ++i) work->grad[i] += work->value;
  return CASTOR_OK;
}

static int32_t fail_work(void* context) {
  (void)context;
  return CASTOR_DATA_LOSS;
}

/* The same step as train_step makes, a parameter on each of two lanes. */
static void train_step_on_lanes(const struct rank* self, castor_engine* engine,
                                const int32_t params[2],
                                castor_lane* lanes[2]) {
  const struct api* api = self->api;
  const int64_t sizes[2] = {kWide, kNarrow};
  struct lane_work works[2];
  GIVES(OK, engine_begin_micro_batch, engine, 1);
  for (int p = 0; p < 2; ++p) {
    GIVES(OK, engine_use_lane, engine, lanes[p]);
    const void* data = NULL;
    castor_param_lease* lease = NULL;
    void* grad = NULL;
    GIVES(OK, engine_acquire, engine, &params[p], 1, &data, &lease);
    GIVES(OK, engine_grad, engine, params[p], &grad);
    works[p] =
        (struct lane_work){grad, data, sizes[p], (float)(self->number + 1), 0};
    GIVES(OK, lane_run, lanes[p], look_and_add, &works[p]);
    GIVES(OK, engine_grad_ready, engine, params[p]);
    GIVES(OK, param_lease_release, lease);
    GIVES(FAILED_PRECONDITION, lane_destroy, lanes[p]);
  }
  GIVES(OK, engine_use_lane, engine, NULL);
  GIVES(OK, lane_wait, lanes[1], lanes[0]);
  GIVES(OK, lane_drain, lanes[1]);
  EXPECT(works[0].first_weight > 0);
  EXPECT(works[1].first_weight < 0);
  GIVES(OK, engine_step, engine, 0.5, NULL);
}

/* Another engine may have the device between two steps. */
static void park_and_resume(const struct rank* self, castor_engine* engine) {
  const struct api* api = self->api;
  uint64_t before = 0;
  uint64_t parked = 0;
  uint64_t after = 0;
  GIVES(OK, engine_weight_digest, engine, &before);
  castor_park park;
  memset(&park, 0, sizeof(park));
  GIVES(INVALID_ARGUMENT, engine_park, engine, CASTOR_HOST, &park);
  park.struct_size = sizeof(park);
  GIVES(INVALID_ARGUMENT, engine_park, engine, 7, &park);
  GIVES(INVALID_ARGUMENT, engine_park, engine, CASTOR_DEVICE, &park);
  GIVES(FAILED_PRECONDITION, engine_resume, engine);
  GIVES(OK, engine_park, engine, CASTOR_HOST, &park);
  EXPECT(park.moved_bytes > 0);
  EXPECT(park.remaining_bytes == 0);
  EXPECT(park.held_bytes == 0);
  EXPECT(strcmp(park.shortfall, "") == 0);
  GIVES(FAILED_PRECONDITION, engine_begin_micro_batch, engine, 1);
  GIVES(OK, engine_weight_digest, engine, &parked);
  GIVES(OK, engine_resume, engine);
  GIVES(OK, engine_weight_digest, engine, &after);
  EXPECT(parked == before);
  EXPECT(after == before);
}

static void read_trace(const struct api* api, castor_engine* engine) {
  const char* text = NULL;
  size_t size = 0;
  GIVES(OK, engine_trace, engine, &text, &size);
  EXPECT(text != NULL && strlen(text) == size);
  EXPECT(strstr(text, "\"castor.trace/1\"") != NULL);
  EXPECT(strstr(text, "\"access\": \"grad_close\"") != NULL);
}

/* Every gradient of rank r is r + 1, so their mean is 1.5. */
static void train_step(const struct rank* self, castor_engine* engine,
                       const int32_t params[2]) {
  const struct api* api = self->api;
  const int64_t sizes[2] = {kWide, kNarrow};
  GIVES(OK, engine_begin_micro_batch, engine, 1);
  for (int p = 0; p < 2; ++p) {
    const void* data = NULL;
    castor_param_lease* lease = NULL;
    GIVES(OK, engine_acquire, engine, &params[p], 1, &data, &lease);
    EXPECT(data != NULL);
    GIVES(FAILED_PRECONDITION, engine_destroy, engine);
    void* grad = NULL;
    GIVES(OK, engine_grad, engine, params[p], &grad);
    for (int64_t i = 0; i < sizes[p]; ++i) {
      ((float*)grad)[i] += (float)(self->number + 1);
    }
    GIVES(OK, engine_grad_ready, engine, params[p]);
    GIVES(OK, param_lease_release, lease);
  }
  castor_step step;
  step.struct_size = sizeof(step);
  GIVES(OK, engine_step, engine, 0.5, &step);
  EXPECT(step.applied == 1);
  EXPECT(step.loss_scale == 1);
}

static void* train_rank(void* context) {
  struct rank* self = context;
  const struct api* api = self->api;
  castor_engine* engine = NULL;
  GIVES(INVALID_ARGUMENT, engine_create, self->world, self->number, NULL,
        "{\"stag\": 3}", &engine);
  EXPECT(engine == NULL);
  EXPECT(strstr(api->castor_last_error(), "did you mean") != NULL);
  GIVES(OK, engine_create, self->world, self->number, NULL,
        "{\"stage\": 3, \"device_budget_bytes\": 1048576,"
        " \"host_budget_bytes\": 1048576, \"chunk\": {\"bytes\": 4096},"
        " \"optimizer\": {\"kind\": \"sgd\", \"weight_decay\": 0},"
        " \"groups\": [{\"name\": \"bias\", \"lr_scale\": 2}]}",
        &engine);
  if (engine == NULL) return NULL;
  GIVES(FAILED_PRECONDITION, world_destroy, self->world);

  const int64_t wide[] = {64, 3};
  const int64_t narrow[] = {kNarrow};
  const castor_tensor weight = {"w", wide, 2, 0, "F32"};
  const castor_tensor bias = {"b", narrow, 1, 0, "F32"};
  float first[2] = {8, -8};
  int32_t params[2] = {-1, -1};
  GIVES(OK, engine_register, engine, &weight, NULL, fill, &first[0],
        &params[0]);
  GIVES(OK, engine_register, engine, &bias, "bias", fill, &first[1],
        &params[1]);
  castor_held held = {params, 2, params, 2};
  castor_seal_options options = CASTOR_INIT(castor_seal_options);
  options.held = &held;
  options.held_count = 1;
  options.largest_lease_bytes = 4096;
  const char* trace = NULL;
  size_t trace_size = 0;
  GIVES(FAILED_PRECONDITION, engine_trace, engine, &trace, &trace_size);
  GIVES(OK, engine_seal, engine, &options);
  int32_t found = -1;
  GIVES(OK, engine_find, engine, "b", &found);
  EXPECT(found == params[1]);
  GIVES(INVALID_ARGUMENT, engine_find, engine, "c", &found);

  void* memory = NULL;
  castor_memory_lease* borrowed = NULL;
  GIVES(OK, engine_borrow, engine, 4096, &memory, &borrowed);
  memset(memory, 1, 4096);
  GIVES(OK, memory_lease_release, borrowed);

  castor_lane* lanes[2] = {NULL, NULL};
  for (int i = 0; i < 2; ++i) {
    GIVES(OK, lane_create, self->world, NULL, &lanes[i]);
  }
  for (int i = 0; i < kSteps; ++i) {
    if (i > 0) park_and_resume(self, engine);
    if (self->own_lanes) {
      train_step_on_lanes(self, engine, params, lanes);
    } else {
      train_step(self, engine, params);
    }
  }
  read_trace(api, engine);
  expect_values(api, engine, params[0], kWide, 8 - 2 * 0.75f);
  expect_values(api, engine, params[1], kNarrow, -8 - 2 * 1.5f);

  GIVES(OK, engine_begin_evaluation, engine);
  GIVES(FAILED_PRECONDITION, engine_begin_evaluation, engine);
  GIVES(OK, engine_end_evaluation, engine);

  /* What is saved comes back, with the trainer's bytes. */
  castor_save_options save = CASTOR_INIT(castor_save_options);
  save.trainer = "batch 7";
  save.trainer_size = 7;
  GIVES(OK, engine_save, engine, self->folder, &save);
  const float zeros[kNarrow] = {0};
  GIVES(INVALID_ARGUMENT, engine_write, engine, params[1], CASTOR_PARAM, zeros,
        kNarrow - 1);
  GIVES(OK, engine_write, engine, params[1], CASTOR_PARAM, zeros, kNarrow);
  GIVES(FAILED_PRECONDITION, engine_write, engine, params[1], CASTOR_GRAD,
        zeros, kNarrow);
  uint64_t changed = 0;
  GIVES(OK, engine_weight_digest, engine, &changed);
  int64_t step = 0;
  GIVES(OK, engine_load, engine, self->folder, NULL, &step);
  EXPECT(step == kSteps);
  const void* trainer = NULL;
  size_t size = 0;
  GIVES(OK, engine_loaded_trainer, engine, &trainer, &size);
  EXPECT(size == 7 && memcmp(trainer, "batch 7", 7) == 0);
  expect_values(api, engine, params[1], kNarrow, -8 - 2 * 1.5f);
  GIVES(OK, engine_weight_digest, engine, &self->digest);
  EXPECT(self->digest != changed);

  castor_engine_stats stats;
  stats.struct_size = sizeof(stats);
  GIVES(OK, engine_get_stats, engine, &stats);
  EXPECT(stats.device_peak_bytes > 0);
  EXPECT(stats.device_peak_bytes <= stats.device_budget_bytes);
  EXPECT(stats.chunks == 1);
  EXPECT(stats.wire_sent_bytes > 0);
  GIVES(OK, engine_close, engine);
  GIVES(FAILED_PRECONDITION, engine_step, engine, 0.5, NULL);
  GIVES(OK, engine_destroy, engine);
  /* A lane's failure is its own. */
  GIVES(OK, lane_run, lanes[0], fail_work, NULL);
  GIVES(DATA_LOSS, lane_drain, lanes[0]);
  GIVES(OK, lane_drain, lanes[1]);
  GIVES(OK, lane_destroy, lanes[0]);
  GIVES(OK, lane_destroy, lanes[1]);
  GIVES(OK, lane_destroy, NULL);
  return NULL;
}

/* Alone, a rank may register again what was refused. */
static void register_again(const struct api* api) {
  castor_world* world = NULL;
  castor_engine* engine = NULL;
  GIVES(OK, world_create, 1, NULL, &world);
  GIVES(OK, engine_create, world, 0, NULL,
        "{\"device_budget_bytes\": 1048576, \"chunk\": {\"bytes\": 4096}}",
        &engine);
  if (engine == NULL) return;
  const int64_t shape[] = {64};
  const castor_tensor weight = {"w", shape, 1, 0, "F32"};
  float first = 1;
  int32_t param = -1;
  GIVES(INVALID_ARGUMENT, engine_register, engine, &weight, "none", fill,
        &first, &param);
  GIVES(OK, engine_register, engine, &weight, NULL, fill, &first, &param);
  EXPECT(param == 0);
  GIVES(OK, engine_seal, engine, NULL);
  GIVES(OK, engine_close, engine);
  GIVES(OK, engine_destroy, engine);
  GIVES(OK, world_destroy, world);
}

static uint64_t use_engine(const struct api* api, int own_lanes) {
  const char* scratch = getenv("TEST_TMPDIR");
  char folder[512];
  snprintf(folder, sizeof(folder), "%s/castor-XXXXXX",
           scratch == NULL ? "/tmp" : scratch);
  EXPECT(mkdtemp(folder) != NULL);
  castor_world* world = NULL;
  GIVES(INVALID_ARGUMENT, world_create, 0, NULL, &world);
  GIVES(OK, world_create, kRanks, NULL, &world);
  if (world == NULL) return 0;
  castor_engine* none = NULL;
  castor_engine* second = NULL;
  GIVES(INVALID_ARGUMENT, engine_create, world, kRanks, NULL, NULL, &none);
  char record[600];
  snprintf(record, sizeof(record), "%s/run.record", folder);
  GIVES(FAILED_PRECONDITION, world_end_record, world);
  GIVES(INVALID_ARGUMENT, world_record, world, "/no/such/folder/run", NULL);
  GIVES(OK, world_record, world, record, NULL);
  GIVES(FAILED_PRECONDITION, world_record, world, record, NULL);
  pthread_t threads[kRanks];
  struct rank ranks[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    ranks[r] = (struct rank){api, world, folder, r, 0, own_lanes};
    EXPECT(pthread_create(&threads[r], NULL, train_rank, &ranks[r]) == 0);
  }
  for (int r = 0; r < kRanks; ++r) {
    EXPECT(pthread_join(threads[r], NULL) == 0);
  }
  EXPECT(ranks[0].digest != 0);
  EXPECT(ranks[0].digest == ranks[1].digest);
  /* The next training of the rank. */
  GIVES(OK, engine_create, world, 0, NULL, "{}", &none);
  GIVES(FAILED_PRECONDITION, engine_create, world, 0, NULL, "{}", &second);
  GIVES(OK, engine_destroy, none);
  GIVES(OK, world_end_record, world);
  FILE* file = fopen(record, "rb");
  EXPECT(file != NULL);
  if (file != NULL) {
    EXPECT(fseek(file, 0, SEEK_END) == 0);
    EXPECT(ftell(file) > 64 * 20); /* events of 64 bytes */
    fclose(file);
  }
  GIVES(OK, world_destroy, world);
  GIVES(OK, engine_destroy, NULL);
  return ranks[0].digest;
}

/* As far as it goes without a GPU. */
static void use_nccl(const struct api* api) {
  castor_world* world = NULL;
  castor_nccl_unique_id id, zeros;
  memset(&zeros, 0, sizeof(zeros));
  memset(&id, 0, sizeof(id));
  EXPECT(sizeof(id) == 4096);
  GIVES(INVALID_ARGUMENT, nccl_id, NULL);
  GIVES(INVALID_ARGUMENT, world_create_nccl, 0, 1, NULL, NULL, &world);
  GIVES(INVALID_ARGUMENT, world_create_nccl, 0, 1, &id, NULL, NULL);
  GIVES(INVALID_ARGUMENT, world_create_nccl, 1, 1, &id, NULL, &world);
  GIVES(INVALID_ARGUMENT, world_create_nccl, 0, 0, &id, NULL, &world);
  castor_world_options options;
  memset(&options, 0, sizeof(options));
  options.struct_size = 8;
  GIVES(INVALID_ARGUMENT, world_create_nccl, 0, 1, &id, &options, &world);
  GIVES(MALFORMED, world_create_nccl, 0, 1, &id, NULL, &world);
  EXPECT(strstr(api->castor_last_error(), "castor_nccl_id") != NULL);
  id.bytes[2] = '\1'; /* longer than it can be */
  GIVES(MALFORMED, world_create_nccl, 0, 1, &id, NULL, &world);
  EXPECT(world == NULL);
  memset(&id, 0, sizeof(id));
  const int32_t made = api->castor_nccl_id(&id);
  EXPECT(made == CASTOR_OK || made == CASTOR_UNAVAILABLE);
  const int empty = memcmp(&id, &zeros, sizeof(id)) == 0;
  EXPECT(empty == (made != CASTOR_OK));
  if (empty) {
    EXPECT(strstr(api->castor_last_error(), "CUDA") != NULL ||
           strstr(api->castor_last_error(), "NCCL") != NULL);
  }
  /* What a function made of these says. */
  GIVES(UNAVAILABLE, fail, CASTOR_UNAVAILABLE, "no MPI here");
  EXPECT(strcmp(api->castor_last_error(), "no MPI here") == 0);
  EXPECT(api->castor_last_raises(NULL, 0) == 0);
}

static void use_all(const struct api* api, const char* allocator) {
  GIVES(ABI_VERSION, abi_version, );
  EXPECT(strchr(api->castor_version(), '.') != NULL);
  EXPECT(strcmp(api->castor_code_name(CASTOR_TIER_FULL), "tier full") == 0);
  EXPECT(strcmp(api->castor_code_name(999), "unknown") == 0);
  use_search(api);
  use_arena(api, allocator);
  register_again(api);
  use_nccl(api);
  /* Where it is computed changes no bit. */
  EXPECT(use_engine(api, 0) == use_engine(api, 1));
}

struct arguments {
  const char* library;
  const char* allocator;
};

/* Loads, uses and unloads it. */
static void* use_on_thread(void* context) {
  const struct arguments* arguments = context;
  struct api api;
  void* library = dlopen(arguments->library, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "dlopen on a thread: %s\n", dlerror());
    return "failed";
  }
  if (!find_functions(library, &api)) return "failed";
  if (strcmp(api.castor_last_error(), "") != 0) return "failed";
  use_all(&api, arguments->allocator);
  dlclose(library);
  return NULL;
}

static void use_on_new_thread(struct arguments* arguments) {
  pthread_t thread;
  void* failed = NULL;
  EXPECT(pthread_create(&thread, NULL, use_on_thread, arguments) == 0);
  EXPECT(pthread_join(thread, &failed) == 0);
  EXPECT(failed == NULL);
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: %s LIBRARY ALLOCATOR\n", argv[0]);
    return 2;
  }
  struct arguments arguments = {argv[1], argv[2]};
  struct servant before[kMallocs];
  find_malloc(before);
  void* kept = malloc(1000); /* from before, freed after */

  use_on_new_thread(&arguments);
  expect_same_malloc(before);

  void* lazy = dlopen(arguments.library, RTLD_LAZY | RTLD_LOCAL);
  void* again = dlopen(arguments.library, RTLD_NOW | RTLD_GLOBAL);
  EXPECT(lazy != NULL);
  EXPECT(lazy == again);
  expect_same_malloc(before);
  struct api api;
  if (lazy == NULL || !find_functions(lazy, &api)) return 1;
  use_all(&api, arguments.allocator);
  use_on_new_thread(&arguments);
  expect_same_malloc(before);
  /* An error is its thread's. */
  EXPECT(strcmp(api.castor_last_error(), "") != 0);
  /* Its threads wait in code of the library, and go on there. */
  castor_world* left = NULL;
  EXPECT(api.castor_world_create(2, NULL, &left) == CASTOR_OK);
  EXPECT(dlclose(again) == 0);
  EXPECT(dlclose(lazy) == 0);
  expect_same_malloc(before);
  EXPECT(api.castor_world_destroy(left) == CASTOR_OK);
  EXPECT(api.castor_world_destroy(left) == CASTOR_INVALID_ARGUMENT);
  EXPECT(api.castor_world_create(2, NULL, &left) == CASTOR_OK); /* at the end */
  free(kept);
  if (failures == 0) puts("ok");
  return failures == 0 ? 0 : 1;
}
