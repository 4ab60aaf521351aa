/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Castor Authors */

#ifndef CASTOR_COLLECTIVES_C_API_CASTOR_H_
#define CASTOR_COLLECTIVES_C_API_CASTOR_H_

/* Castor for programs in C and for languages that call C: libcastor.so exports
 * what is declared here and nothing else. C11, and C++.
 *
 * Handles are numbers that only this library reads. Whoever creates a handle
 * destroys the handle, after all that was made of it: else the call is
 * CASTOR_FAILED_PRECONDITION, and the handle stays. Null is let be. A number
 * that is no handle, that is one of another kind, or whose handle was destroyed
 * or released, is CASTOR_INVALID_ARGUMENT.
 *
 * A function that can fail returns a castor_code; what happened, why and what
 * to do is said by castor_last_error on the same thread. What a failed call was
 * to give out stays as it was, or is null where it is a pointer. No exception
 * gets out. An exception of a callback's fails, as CASTOR_ABORTED, what the
 * callback is called for.
 *
 * Thread-safe. Calls on one engine come from any thread; a call that comes
 * while another is under way waits for its end, castor_engine_destroy too.
 * Another handle that a call uses is not destroyed: CASTOR_FAILED_PRECONDITION.
 * A call from a callback on the engine that runs the callback fails, and so
 * does every call in a fork's child on what its parent made. The library stays
 * where a program unloads it, since its threads may still be there.
 *
 * Structs only ever grow, at their end. struct_size is sizeof of the struct as
 * the caller was compiled with; the rest of an input struct may be zeros, which
 * stand for the defaults. CASTOR_INIT makes such a struct.
 */

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define CASTOR_API __attribute__((visibility("default")))
#else
#define CASTOR_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header; a library serves every header of its own number. */
#define CASTOR_ABI_VERSION 1

/* castor_step step = CASTOR_INIT(castor_step); */
#ifdef __cplusplus
#define CASTOR_INIT(type)                          \
  ([] {                                            \
    type castor_made = {};                         \
    castor_made.struct_size = sizeof(castor_made); \
    return castor_made;                            \
  }())
#else
#define CASTOR_INIT(type) ((type){.struct_size = sizeof(type)})
#endif

typedef enum castor_code {
  CASTOR_OK = 0,
  CASTOR_INTERNAL = 1,            /* a defect of Castor */
  CASTOR_INVALID_ARGUMENT = 2,    /* what was asked for has no meaning */
  CASTOR_INFEASIBLE = 3,          /* it does not fit, with numbers */
  CASTOR_MALFORMED = 4,           /* what was read is broken */
  CASTOR_UNAVAILABLE = 5,         /* this machine lacks something */
  CASTOR_STOPPED_EARLY = 6,       /* a partial result is valid */
  CASTOR_TIER_FULL = 7,           /* there is no room now */
  CASTOR_IO_ERROR = 8,            /* the system refused a transfer */
  CASTOR_DATA_LOSS = 9,           /* bytes came back changed */
  CASTOR_ABORTED = 10,            /* ended by another failure */
  CASTOR_FAILED_PRECONDITION = 11 /* a call out of order */
} castor_code;

/* The library's CASTOR_ABI_VERSION. */
CASTOR_API int32_t castor_abi_version(void);
/* "0.1.0". */
CASTOR_API const char* castor_version(void);
/* "tier full" and the like; "unknown" for what is no code. */
CASTOR_API const char* castor_code_name(int32_t code);
/* The message of this thread's last call that failed, "" before the first;
 * valid until its next call. */
CASTOR_API const char* castor_last_error(void);

/* Bytes by which budgets are raised, all three together; 0: as it was. */
typedef struct castor_raise {
  int64_t device;
  int64_t host;
  int64_t nvme; /* from nothing, where there is no NVMe folder */
} castor_raise;
/* The raises that castor_last_error names, each of them enough by itself:
 * writes the first `room` of them and returns how many there are, at most 8. */
CASTOR_API size_t castor_last_raises(castor_raise* raises, size_t room);

/* Calls that wait call `interrupt` about every 100 ms, each on its own thread.
 * Where the function answers anything but 0, a world of two or more ranks ends,
 * and the call fails as CASTOR_ABORTED. A world of one rank lives on: the call
 * returns when its work is done, unless the call waits for another call on the
 * same engine. For all worlds of the process. Null: waits go on. */
CASTOR_API void castor_set_interrupt(int32_t (*interrupt)(void* context),
                                     void* context);

/* ---- Chunk-size search ------------------------------------------------- */

/* One parameter; a list of them is in initialization order. */
typedef struct castor_tensor {
  const char* name;
  const int64_t* dims; /* may be null where dim_count is 0: a scalar */
  int32_t dim_count;
  int32_t frozen;    /* not 0: packed apart, without gradients and states */
  const char* dtype; /* "F32", "BF16", ... as in safetensors */
} castor_tensor;

/* Which chunk size wastes least, as the JSON of `castor search --json` for the
 * same list and flags. `options`: null, or a JSON object whose keys are flags,
 * {"min": "1MiB", "device_budget": 8589934592}: min, max, world, align, mode,
 * prefetch, device_budget, rule, h2d, d2h, all_gather, reduce_scatter.
 * `json` lives until this thread's next search. CASTOR_MALFORMED names a tensor
 * whose shape is none, CASTOR_INFEASIBLE says what budget would do. */
CASTOR_API int32_t castor_search_run(const castor_tensor* tensors, size_t count,
                                     const char* options, const char** json);

/* Whether an engine with these parameters fits, as the JSON of `castor plan -o`
 * for the same list: write it to a file, and name that in an engine's config as
 * "plan". `options`: an engine's config (castor_engine_create) with the budgets
 * of one rank, and of "world" 1, "processes" false (each rank is one),
 * "working_set" "block" or "module" (what is acquired at a time),
 * "micro_batches" 1, "recompute" false. The step is derived from names and
 * shapes. `json` lives until this thread's next plan. CASTOR_INFEASIBLE says
 * what does not fit. */
CASTOR_API int32_t castor_plan_run(const castor_tensor* tensors, size_t count,
                                   const char* options, const char** json);

/* ---- Pinned arena ------------------------------------------------------ */

/* Host memory that devices and O_DIRECT can use, cut into buffers of any size.
 * All of it is taken, pinned and bound to the NUMA node of the calling thread
 * when the arena is created, and never more; children of fork() get none of it.
 * Where the process exports jemalloc (5 or later), buffers come from an arena
 * of that, else from Castor's own. */
typedef struct castor_pinned_arena castor_pinned_arena;

typedef struct castor_pinned_arena_stats {
  size_t struct_size;
  const char* allocator; /* "castor", "jemalloc 5.3.0"; lives as the arena */
  int32_t locked;        /* not 0: the pages cannot be swapped out */
  int32_t bound;         /* not 0: they prefer the caller's NUMA node */
  int64_t budget_bytes;
  int64_t in_use_bytes; /* with the allocator's rounding */
  int64_t peak_bytes;
  int64_t largest_gap_bytes;
  int64_t requested_bytes; /* what the buffers alive were asked for with */
  int64_t buffers;         /* alive */
  int64_t allocated;       /* ever */
  int64_t refused;
  int64_t live_bytes; /* from here on as the allocator tells it */
  int64_t active_bytes;
  int64_t resident_bytes;
  int64_t retained_bytes;
  int64_t metadata_bytes; /* ordinary memory, outside the budget */
} castor_pinned_arena_stats;

/* `bytes` is a positive multiple of 4096. CASTOR_UNAVAILABLE where the machine
 * has less memory. */
CASTOR_API int32_t castor_pinned_arena_create(int64_t bytes,
                                              castor_pinned_arena** arena);
/* `alignment` is a power of two, or 0 for 4096. CASTOR_TIER_FULL, with numbers,
 * where there is no room. */
CASTOR_API int32_t castor_pinned_arena_allocate(castor_pinned_arena* arena,
                                                int64_t bytes,
                                                int64_t alignment, void** data);
/* CASTOR_INVALID_ARGUMENT where `data` is no buffer of this arena's. */
CASTOR_API int32_t castor_pinned_arena_free(castor_pinned_arena* arena,
                                            void* data);
CASTOR_API int32_t castor_pinned_arena_get_stats(
    const castor_pinned_arena* arena, castor_pinned_arena_stats* stats);
CASTOR_API int32_t castor_pinned_arena_destroy(castor_pinned_arena* arena);

/* ---- Training ---------------------------------------------------------- */

/* ZeRO stages 0 to 3 over chunks on the device, in host memory and on NVMe, as
 * collectives/zero_engine.h has it, whose words these are: one engine per rank,
 * on a device, which may be simulated in host memory.
 * A call that needs what is not there yet waits for it, so what comes back can
 * be read and written at once, by the calling thread; a trainer that computes
 * elsewhere brings lanes (castor_engine_use_lane).
 *
 * Where several ranks of a world are engines of this process, each needs a
 * thread that calls it, since Seal, Step and others wait for all ranks. */
typedef struct castor_world castor_world;
typedef struct castor_engine castor_engine;
typedef struct castor_param_lease castor_param_lease;
typedef struct castor_memory_lease castor_memory_lease;
typedef struct castor_lane castor_lane;
typedef struct castor_device castor_device;

typedef struct castor_world_options {
  size_t struct_size;
  int32_t threads; /* that update states; 0: as many as the process may use */
  int32_t gpu;     /* of castor_world_create_nccl: this rank's, by number */
  int64_t timeout_ms; /* a rank that does not come in this time ends the world,
                       * and is named; 0: 120000; negative: none */
  /* What a person should know, a line at a time, from any thread; `level` is 0
   * for what is only of interest, 1 for a warning, 2 for an error. Null:
   * warnings and errors go to stderr. */
  void (*log)(void* context, int32_t level, const char* line);
  void* log_context;
  /* Where `threads` is 0: ranks in processes that may use the same cores, this
   * rank among them, each of which takes its part; 0: this rank alone. */
  int32_t ranks_of_cores;
} castor_world_options;

/* A world of ranks that are threads of this process. `options` may be null. */
CASTOR_API int32_t castor_world_create(int32_t ranks,
                                       const castor_world_options* options,
                                       castor_world** world);

/* The caller's own collectives; castor_mpi.h has those of MPI. The first three
 * block until they are done and answer 0; anything else ends the world, with
 * the words of castor_set_error.
 *
 * One thread of Castor's makes these calls: one at a time, with `seq` 0, 1, 2
 * and so on, in the same order on all ranks, never from inside a call of this
 * header, and none after castor_world_destroy has returned. Buffers are host
 * memory. Callbacks call nothing of this header but castor_set_error. */
typedef struct castor_callbacks {
  size_t struct_size;
  void* context;
  /* `bytes` of each rank, in rank order; `send` may lie in place in `recv`. */
  int32_t (*all_gather)(void* context, uint64_t seq, const void* send,
                        void* recv, int64_t bytes);
  /* send_bytes[r] for each rank r, one after the other; likewise what comes. */
  int32_t (*all_to_all)(void* context, uint64_t seq, const void* send,
                        const int64_t* send_bytes, void* recv,
                        const int64_t* recv_bytes);
  int32_t (*barrier)(void* context, uint64_t seq);
  /* Ends a call that waits. From any thread, at most once. */
  void (*abort)(void* context, const char* why);
  /* The last call, inside castor_world_destroy. May be null. */
  void (*release)(void* context);
} castor_callbacks;

/* A world whose ranks are processes that the callbacks connect; this one is
 * `rank`, and creates the engine of that rank only. Waits for all ranks, and so
 * does castor_world_destroy. The callbacks are there until then. */
CASTOR_API int32_t castor_world_create_callbacks(
    int32_t rank, int32_t size, const castor_callbacks* callbacks,
    const castor_world_options* options, castor_world** world);

/* The same where the ranks, 64 at most, are processes of this host: over memory
 * that they share, 32 MiB in all at most, beside the budgets.
 * `name` is letters and digits, the same on all ranks, new for each world. */
CASTOR_API int32_t castor_world_create_shared(
    int32_t rank, int32_t size, const char* name,
    const castor_world_options* options, castor_world** world);

/* How ranks that are GPUs meet: rank 0 has an id made for each world, gives its
 * bytes to the others, and creates the world in the same process. */
typedef struct castor_nccl_unique_id {
  char bytes[4096];
} castor_nccl_unique_id;

/* CASTOR_UNAVAILABLE says what is missing of CUDA and NCCL. */
CASTOR_API int32_t castor_nccl_id(castor_nccl_unique_id* id);
/* As castor_world_create_callbacks. Its engine is on a device of the world: the
 * GPU of `options`. */
CASTOR_API int32_t castor_world_create_nccl(int32_t rank, int32_t size,
                                            const castor_nccl_unique_id* id,
                                            const castor_world_options* options,
                                            castor_world** world);
/* Ends the world for all ranks: what waits and what comes fails with these
 * words. The first ones stay. Any thread. */
CASTOR_API int32_t castor_world_abort(castor_world* world, const char* why);
/* From inside a callback that fails: what the call that ran it says. Lasts for
 * the thread until a callback answers. Null: nothing. */
CASTOR_API void castor_set_error(const char* words);
/* Answers `code`; castor_last_error says `words`. For layers over this one. */
CASTOR_API int32_t castor_fail(int32_t code, const char* words);
CASTOR_API int32_t castor_world_destroy(castor_world* world);

typedef struct castor_record_options {
  size_t struct_size;
  int64_t first_step; /* 0: what comes before the first step, too */
  int64_t last_step;  /* 0: to the end */
  int64_t every;      /* of these steps every second, third; 0: all */
} castor_record_options;

/* Engines made from now on record what they do to a file, for castor report.
 * `options` may be null. CASTOR_FAILED_PRECONDITION where they do already. */
CASTOR_API int32_t castor_world_record(castor_world* world, const char* path,
                                       const castor_record_options* options);
/* Ends the record, as destroying the world does; engines that are there go on
 * unrecorded. CASTOR_IO_ERROR: some of it was not written.
 * CASTOR_FAILED_PRECONDITION where nothing is recorded. */
CASTOR_API int32_t castor_world_end_record(castor_world* world);

/* Where engines keep what they compute with. Several may share one; engines and
 * lanes go before it. */
enum { CASTOR_DEVICE_SIMULATED = 1, CASTOR_DEVICE_CUDA = 2 };

/* `bytes` of host memory in the place of a GPU's. */
CASTOR_API int32_t castor_device_open_simulated(castor_world* world,
                                                int64_t bytes,
                                                castor_device** device);
/* A GPU, by its number among those that CUDA_VISIBLE_DEVICES lets the process
 * see. CASTOR_UNAVAILABLE says what is missing. */
CASTOR_API int32_t castor_device_open_cuda(castor_world* world, int32_t ordinal,
                                           castor_device** device);
CASTOR_API int32_t castor_device_destroy(castor_device* device);

/* All pointers that an engine hands out are to memory of its device. */
typedef struct castor_device_info {
  size_t struct_size;
  const char* name; /* lives as long as the device */
  int64_t total_bytes;
  int64_t free_bytes;
  int32_t kind; /* CASTOR_DEVICE_... */
  int32_t ordinal;
  int32_t host_addressable; /* not 0: the host may use its pointers */
  int32_t reserved;
} castor_device_info;

CASTOR_API int32_t castor_device_get_info(const castor_device* device,
                                          castor_device_info* info);

/* The program's own allocator of the device's memory. */
typedef struct castor_allocator {
  size_t struct_size;
  void* context;
  /* `bytes` aligned to 256; answers 0, or a castor_code after castor_set_error.
   * Work that is queued on the engine's lane may still use them: Castor waits
   * for that lane. Seal, reseal, resume and, where slots grow, acquire and grad
   * call it, each on the calling thread. Park, reseal, close and destroy
   * release what it gave, once no work of Castor's or of leases uses it. */
  int32_t (*allocate)(void* context, int64_t bytes, void** data);
  void (*release)(void* context, void* data);
} castor_allocator;

/* Engines made from now on have their device memory of it, so that the program
 * counts it. Null: of the device again. */
CASTOR_API int32_t castor_device_set_allocator(
    castor_device* device, const castor_allocator* allocator);

/* `device`: null for one that is simulated, of just the size that is needed.
 * `config`: a JSON object of the keys below, "{}" for all defaults. a.b is key
 * b of the object that is key a. "plan" names a file that `castor plan -o`
 * wrote, whose keys the config then leaves away. A rank has one engine of a
 * world at a time. CASTOR_INVALID_ARGUMENT names the line, the column and the
 * nearest key there is.
 *
 * Keys with their defaults, as collectives/zero_config.h explains them; a
 * budget of 0 has no limit, and sizes may be texts as "4GiB": stage 3,
 * shard_group 0 (all ranks), optimizer_span "group", device_budget_bytes 0,
 * host_budget_bytes 0, nvme (no drive), chunk.bytes (searched), chunk.min_bytes
 * 0, chunk.max_bytes 0, chunk.align_elements 64, chunk.layout "", machine "",
 *   home_limits, home_rules, keep_copies true, policy "auto",
 *   prefetch 3 (or "deadlines"), step_compute_ns 0 (unknown),
 *   grad_mode "separate", borrow_grads false, guess_updates false,
 *   accumulation_order "each",
 *   clip_norm 0 (none),
 *   count_norm false, average_micro_batches true, own_lease_ends true,
 *   poison false, optimizer.kind "adamw", optimizer.beta1 0.9,
 *   optimizer.beta2 0.999, optimizer.eps 1e-08, optimizer.weight_decay 0.01,
 *   optimizer.momentum 0, optimizer.dampening 0, optimizer.nesterov false,
 *   optimizer.moment_dtype "F32" ("BF16"; "8bit": a scale and a byte a value),
 *   optimizer.stochastic_rounding true,
 *   optimizer.seed 0, optimizer.states (of "custom"),
 *   optimizer.span "elements" (of "custom"), groups, loss_scale.kind "none",
 *   loss_scale.initial 65536, loss_scale.growth 2,
 *   loss_scale.growth_interval 2000, loss_scale.backoff 0.5,
 *   loss_scale.hysteresis 1, loss_scale.least 1, loss_scale.most 4294967296. */
CASTOR_API int32_t castor_engine_create(castor_world* world, int32_t rank,
                                        castor_device* device,
                                        const char* config,
                                        castor_engine** engine);
/* Ends work under way and gives all memory back; castor_engine_close first
 * tells of failures. Leases go before. */
CASTOR_API int32_t castor_engine_destroy(castor_engine* engine);
CASTOR_API int32_t castor_engine_close(castor_engine* engine);

/* Writes elements [begin, end) of the parameter's initial values, and answers
 * 0. Called while the engine seals, on its thread, for the ranges that this
 * rank keeps, in any order and more than once. Anything but 0 fails the seal of
 * all ranks, with the words of castor_set_error. */
typedef int32_t (*castor_initializer)(void* context, int64_t begin, int64_t end,
                                      float* values);
/* A castor_initializer: values are those that `context` points to, fp32, all
 * elements of the parameter, until the engine is sealed. */
CASTOR_API int32_t castor_initialize_from(void* context, int64_t begin,
                                          int64_t end, float* values);
/* In initialization order. `group`: of the config's groups, or null.
 * `initializer` may be null: zeros. `param`: its number, from 0. */
CASTOR_API int32_t castor_engine_register(castor_engine* engine,
                                          const castor_tensor* tensor,
                                          const char* group,
                                          castor_initializer initializer,
                                          void* context, int32_t* param);

/* A queue of the trainer's own work, in order, for one thread at a time: on a
 * device, or, where `device` is null, on the world's threads. After the first
 * failure work is skipped. */
CASTOR_API int32_t castor_lane_create(castor_world* world,
                                      castor_device* device,
                                      castor_lane** lane);
/* A lane over a cudaStream_t, null for the default one, that the program keeps
 * as long as the lane. CASTOR_UNAVAILABLE on a simulated device. */
CASTOR_API int32_t castor_lane_adopt_stream(castor_device* device, void* stream,
                                            castor_lane** lane);
/* After the engines that were told to use it. Waits for what is queued. */
CASTOR_API int32_t castor_lane_destroy(castor_lane* lane);
/* Answers 0, or the castor_code that it failed with, after castor_set_error. */
typedef int32_t (*castor_work)(void* context);
/* Queues work and returns; `context` is there until it has run. On a lane over
 * a stream of the program's the calling thread waits for the stream and runs
 * the work itself. */
CASTOR_API int32_t castor_lane_run(castor_lane* lane, castor_work work,
                                   void* context);
/* What is queued on `lane` from now on waits for what is on `other` now. */
CASTOR_API int32_t castor_lane_wait(castor_lane* lane, castor_lane* other);
/* The program's own cudaEvent_t: what is queued from now on waits for its last
 * record; or it is recorded behind what is queued, once castor_lane_run's work
 * before it is done. CASTOR_UNAVAILABLE on a lane of no CUDA device. */
CASTOR_API int32_t castor_lane_wait_event(castor_lane* lane, void* event);
CASTOR_API int32_t castor_lane_record_event(castor_lane* lane, void* event);
/* Waits for what is queued; the lane's failure, if it has one. */
CASTOR_API int32_t castor_lane_drain(castor_lane* lane);
/* From now on acquire, grad, grad_ready and borrow are for work on this lane:
 * what they give is there for what is queued after them. They wait for nothing,
 * but where the lane is over a stream of the program's, until what the lane
 * waits for is queued on the device. A lease ends behind what is queued, at its
 * release, on the lane that it began on and on every lane that was in use
 * since; a gradient is ready likewise. So say which lane is in use before each
 * call, and before work on another stream has memory of a lease. Null: for the
 * calling thread again. A CUDA device needs a lane of its own. */
CASTOR_API int32_t castor_engine_use_lane(castor_engine* engine,
                                          castor_lane* lane);

/* Held at the same time at one moment of a micro-batch. */
typedef struct castor_held {
  const int32_t* params; /* acquired */
  size_t param_count;
  const int32_t* grads; /* between grad and grad_ready */
  size_t grad_count;
} castor_held;

typedef struct castor_seal_options {
  size_t struct_size;
  const castor_held* held; /* moments in order; null: two params, two grads */
  size_t held_count;
  int64_t largest_lease_bytes; /* most that castor_engine_borrow lends */
  int64_t micro_batches;       /* most of a step; 0: 1 */
  /* Not 0: where a step holds more, slots are made within the device budget.
   * With no moments, or such as are an estimate, few are made and states stay
   * off the device, until castor_engine_reseal places all by what the last step
   * held. */
  int32_t grow;
  int32_t estimate; /* not 0, with grow: the moments may lack something */
} castor_seal_options;

/* Places every state and takes all memory. `options` may be null.
 * CASTOR_INFEASIBLE says the smallest budget that would do. */
CASTOR_API int32_t castor_engine_seal(castor_engine* engine,
                                      const castor_seal_options* options);

typedef struct castor_reseal_options {
  size_t struct_size;
  int64_t device_budget_bytes;     /* 0: as it was */
  int64_t host_budget_bytes;       /* 0: as it was */
  const castor_seal_options* seal; /* in place of what seal was told; with no
                                    * moments: those of the last step */
} castor_reseal_options;

/* Between steps: places every state anew, with the same bits. All ranks call
 * it; budgets may differ. Memory never holds the old places and the new ones
 * together, but for a device without room elsewhere; drives do.
 * CASTOR_INFEASIBLE and CASTOR_UNAVAILABLE change nothing, or say that the
 * engine stays parked. */
CASTOR_API int32_t castor_engine_reseal(castor_engine* engine,
                                        const castor_reseal_options* options);

/* Before castor_engine_seal, which is then told no moments: records what the
 * program's own step holds at once. Until castor_engine_step, which ends it,
 * acquire, grad and borrow answer with scratch that means nothing. */
CASTOR_API int32_t castor_engine_begin_dry_step(castor_engine* engine);

/* last: not 0 where no other micro-batch comes before the step, as far as is
 * known; one may, unless gradients were clipped or updates began. */
CASTOR_API int32_t castor_engine_begin_micro_batch(castor_engine* engine,
                                                   int32_t last);
/* The values of `count` parameters, data[i] of params[i], in their own dtypes,
 * until the lease is released. */
CASTOR_API int32_t castor_engine_acquire(castor_engine* engine,
                                         const int32_t* params, size_t count,
                                         const void** data,
                                         castor_param_lease** lease);
/* At any time, which ranks need not do alike: its memory stays as it is. */
CASTOR_API int32_t castor_param_lease_release(castor_param_lease* lease);
/* Where to add the parameter's gradient, until grad_ready. */
CASTOR_API int32_t castor_engine_grad(castor_engine* engine, int32_t param,
                                      void** data);
CASTOR_API int32_t castor_engine_grad_ready(castor_engine* engine,
                                            int32_t param);
/* castor_engine_grad, a copy of `values`, then castor_engine_grad_ready.
 * `values` is the parameter's whole gradient of this micro-batch, of `bytes` in
 * the gradient's type. Of a GPU `values` are
 * memory of the device, which the lane in use reads when it gets there; else
 * the host reads them within the call. */
CASTOR_API int32_t castor_engine_give_grad(castor_engine* engine, int32_t param,
                                           const void* values, size_t bytes);
/* The same of `count` parameters, values[i] of params[i]. An engine that
 * borrows gradients (borrow_grads; ZeroEngine::BorrowGrads) copies nothing: the
 * values lie at multiples of 64 bytes, and the engine reads and may write them
 * until castor_engine_step or castor_engine_abandon returns, and on a GPU until
 * the lane in use gets there. */
CASTOR_API int32_t castor_engine_give_grads(castor_engine* engine,
                                            const int32_t* params,
                                            void* const* values, size_t count);
/* Memory of the device budget for the trainer's own use. */
CASTOR_API int32_t castor_engine_borrow(castor_engine* engine, int64_t bytes,
                                        void** data,
                                        castor_memory_lease** lease);
CASTOR_API int32_t castor_memory_lease_release(castor_memory_lease* lease);

typedef struct castor_step {
  size_t struct_size;
  int64_t step;
  double grad_norm;
  double clip_factor;
  double loss_scale;
  int32_t applied; /* 0: a gradient was not finite, and nothing was updated */
  int32_t not_finite; /* the first parameter of such a gradient; else -1 */
} castor_step;

/* `step` may be null. Parameters on lease have their new values once the lanes
 * in use get there. */
CASTOR_API int32_t castor_engine_step(castor_engine* engine, double lr,
                                      castor_step* step);
/* Lets updates begin before castor_engine_step. */
CASTOR_API int32_t castor_engine_update_early(castor_engine* engine, double lr);
/* Lets updates in host memory begin beside the old states, with the guess that
 * the step has this rate and is neither clipped nor skipped: same bits. */
CASTOR_API int32_t castor_engine_guess_updates(castor_engine* engine,
                                               double lr);

enum { CASTOR_OPTIMIZER_STATES = 8 };

/* A run of one parameter's elements. */
typedef struct castor_update_run {
  int64_t first_element; /* in the parameter */
  int64_t elements;
  int64_t step; /* of this parameter's updates, from 1 */
  double lr;    /* of its group */
  float* values;
  void* grad; /* may be written to */
  /* Those that the config names, in its order, all zero in step 1. */
  float* states[CASTOR_OPTIMIZER_STATES];
  int32_t param;
  int32_t reserved;
} castor_update_run;

typedef struct castor_update {
  size_t struct_size;
  const castor_update_run* runs;
  int64_t run_count;
  /* On the host "F32", and a factor of 1. On a device both are as the engine
   * keeps them: a gradient is to be multiplied by the factor, which averages,
   * unscales and clips it. */
  const char* grad_dtype;
  void* stream; /* of the device: a cudaStream_t, on which work is queued */
  float grad_factor;
  int32_t on_device; /* not 0: pointers are to device memory */
} castor_update;

/* Updates the elements of all runs, and answers 0. Anything else ends the step,
 * with the words of castor_set_error. CASTOR_FAILED_PRECONDITION says that this
 * call changed nothing: where no other had either, on one rank, training may go
 * on. Calls come from threads of the engine's, one at a time. They call nothing
 * of this header but castor_set_error. */
typedef int32_t (*castor_update_fn)(void* context, const castor_update* update);

/* For a config whose optimizer is "custom": before the first step.
 * castor_engine_step returns when all of its calls have. */
CASTOR_API int32_t castor_engine_set_update(castor_engine* engine,
                                            castor_update_fn update,
                                            void* context);

/* Reduces what is left of the last micro-batch and tells the global norm of the
 * averaged gradient, which castor_engine_step then clips to `max_norm`. `norm`
 * may be null. Needs "count_norm", "clip_norm" or "loss_scale" in the config.
 */
CASTOR_API int32_t castor_engine_clip_gradients(castor_engine* engine,
                                                double max_norm, double* norm);

/* Reduces what is left of the micro-batch, so that castor_engine_read and
 * castor_engine_write serve every gradient; another may follow. All ranks. */
CASTOR_API int32_t castor_engine_finish_gradients(castor_engine* engine);
/* As if the parameter had none in this step. All ranks. */
CASTOR_API int32_t castor_engine_drop_gradient(castor_engine* engine,
                                               int32_t param);

/* Which numbers are given, to be added. */
enum {
  CASTOR_SET_LR = 1,
  CASTOR_SET_BETA1 = 2,
  CASTOR_SET_BETA2 = 4,
  CASTOR_SET_EPS = 8,
  CASTOR_SET_WEIGHT_DECAY = 16,
  CASTOR_SET_MOMENTUM = 32
};

typedef struct castor_hyper_parameters {
  size_t struct_size;
  uint32_t fields; /* CASTOR_SET_... */
  uint32_t reserved;
  double lr; /* goes before the rate that castor_engine_step is given */
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
  double momentum;
} castor_hyper_parameters;

/* From the next step on; null or "": of parameters in no group. All ranks set
 * the same. */
CASTOR_API int32_t
castor_engine_set_hyper_parameters(castor_engine* engine, const char* group,
                                   const castor_hyper_parameters* numbers);

enum { CASTOR_CONSTANT = 0, CASTOR_LINEAR = 1, CASTOR_COSINE = 2 };

/* A rate for each step: up in a line, then constant, or down in a line or half
 * a cosine. */
typedef struct castor_schedule {
  size_t struct_size;
  double peak;    /* at the end of the warm-up */
  double floor;   /* at the last step, unless constant */
  int64_t warmup; /* steps, of those below */
  int64_t steps;  /* of the whole run */
  int32_t shape;  /* CASTOR_CONSTANT, ... */
  int32_t reserved;
} castor_schedule;

/* For castor_engine_step; steps are counted from 1. */
CASTOR_API int32_t castor_schedule_rate(const castor_schedule* schedule,
                                        int64_t step, double* rate);

typedef struct castor_loss_scale {
  size_t struct_size;
  double scale; /* what the loss is to be multiplied by; 1 without scaling */
  int64_t clean_steps;
  int64_t skipped_steps;
  int32_t overflows_left;
  int32_t reserved;
} castor_loss_scale;

CASTOR_API int32_t castor_engine_get_loss_scale(const castor_engine* engine,
                                                castor_loss_scale* scale);
/* ZeroEngine::RestoreLossScale: takes what castor_engine_get_loss_scale gave.
 * CASTOR_FAILED_PRECONDITION inside a step. */
CASTOR_API int32_t castor_engine_set_loss_scale(castor_engine* engine,
                                                const castor_loss_scale* scale);
/* From begin to end, accesses count as no step's, and gradients are refused. */
CASTOR_API int32_t castor_engine_begin_evaluation(castor_engine* engine);
CASTOR_API int32_t castor_engine_end_evaluation(castor_engine* engine);
CASTOR_API int32_t castor_engine_abandon(castor_engine* engine);

typedef enum castor_tier {
  CASTOR_DEVICE = 0,
  CASTOR_HOST = 1,
  CASTOR_NVME = 2
} castor_tier;

typedef enum castor_state {
  CASTOR_PARAM = 0,
  CASTOR_GRAD = 1,
  CASTOR_MASTER = 2, /* fp32, of parameters in bf16 or fp16 */
  /* The first of the optimizer's own states. Others follow in its order:
   * exp_avg, exp_avg_sq of Adam. */
  CASTOR_OPTIMIZER_STATE = 3
} castor_state;
enum { CASTOR_STATES = 11 };

typedef struct castor_param_info {
  size_t struct_size;
  const char* name; /* these three live as long as the engine */
  const char* dtype;
  const int64_t* dims;
  int32_t dim_count;
  int32_t frozen;
  int64_t elements;
  int64_t offset_elements;      /* in its chunk */
  int64_t updates;              /* made so far */
  int32_t chunk;                /* -1: not sealed yet, or without elements */
  int32_t homes[CASTOR_STATES]; /* a castor_tier each; -1: no such state */
} castor_param_info;

CASTOR_API int32_t castor_engine_param_count(const castor_engine* engine,
                                             int32_t* params);
CASTOR_API int32_t castor_engine_get_param(const castor_engine* engine,
                                           int32_t param,
                                           castor_param_info* info);
/* The number of the parameter of that name. */
CASTOR_API int32_t castor_engine_find(const castor_engine* engine,
                                      const char* name, int32_t* param);
/* Why a state lives where it does; the text lives until the next call. */
CASTOR_API int32_t castor_engine_explain_home(castor_engine* engine,
                                              int32_t param, int32_t state,
                                              const char** text);

/* Whole values of a state in fp32, on every rank; `elements` is the parameter's
 * size. CASTOR_PARAM and CASTOR_MASTER are the same: the most exact values that
 * there are. CASTOR_GRAD is of the step so far, averaged and not clipped. All
 * ranks call them, and write the same values. */
CASTOR_API int32_t castor_engine_read(castor_engine* engine, int32_t param,
                                      int32_t state, float* values,
                                      int64_t elements);
/* ZeroEngine::WriteParam, ZeroEngine::WriteGrad and ZeroEngine::WriteState. */
CASTOR_API int32_t castor_engine_write(castor_engine* engine, int32_t param,
                                       int32_t state, const float* values,
                                       int64_t elements);
/* New values of several parameters, as somebody left them who has seen the
 * parameters' own type: an element that is equal in that type keeps its master.
 * Also inside a step, whose gradients stay; leases keep old values. All ranks
 * call it with the same; where they differ, CASTOR_INVALID_ARGUMENT names a
 * parameter. `values`: all elements of each, fp32. */
CASTOR_API int32_t castor_engine_write_back(castor_engine* engine,
                                            const int32_t* params,
                                            const float* const* values,
                                            size_t count);
/* In the place of each word the least that any rank has: what layers over this
 * one agree by. All ranks call it with as many. */
CASTOR_API int32_t castor_engine_least_of_ranks(castor_engine* engine,
                                                int64_t* words, size_t count);
/* ZeroEngine::SetUpdateCount: how often the parameter was updated, for bias
 * corrections. All ranks. */
CASTOR_API int32_t castor_engine_set_updates(castor_engine* engine,
                                             int32_t param, int64_t updates);
CASTOR_API int32_t castor_engine_weight_digest(castor_engine* engine,
                                               uint64_t* digest);

/* ---- Checkpoints ------------------------------------------------------- */

typedef struct castor_save_options {
  size_t struct_size;
  const void* trainer; /* the trainer's own bytes, given back by a load */
  size_t trainer_size;
  int64_t max_file_bytes; /* 0: 2 GiB */
  int64_t keep;           /* checkpoints that stay in the folder; 0: all */
  int32_t background; /* not 0: returns while it is written, see finish_save */
  int32_t reserved;
} castor_save_options;

/* Saves what training goes on with. All ranks call it, with one directory.
 * `options` may be null. */
CASTOR_API int32_t castor_engine_save(castor_engine* engine,
                                      const char* directory,
                                      const castor_save_options* options);
/* What became of the last save in the background; waits for it. `path`, which
 * may be null: of the checkpoint, until the next call. */
CASTOR_API int32_t castor_engine_finish_save(castor_engine* engine,
                                             const char** path);

typedef struct castor_load_options {
  size_t struct_size;
  int64_t step; /* used where one_step is not 0; else the latest */
  int32_t one_step;
  int32_t weights_only; /* not 0: moments and counts begin anew, and the folder
                         * may be of safetensors that others wrote */
  int32_t unverified;   /* not 0: digests are not checked first */
  int32_t convert;      /* not 0: states may have been saved in other types */
  /* Further names of parameters, as tied weights have: aliases[2 * i] is one of
   * the parameter whose own name is aliases[2 * i + 1]. */
  const char* const* aliases;
  size_t alias_count;
  /* Tensors that there may be beside the parameters, and that are left alone.
   */
  const char* const* others;
  size_t other_count;
  int32_t begin_missing; /* not 0: moments and masters that the checkpoint lacks
                          * begin anew, as of parameters that were frozen */
  int32_t trainer_only;  /* not 0: nothing of the engine changes; the trainer's
                          * bytes are given, of a checkpoint that fits */
} castor_load_options;

/* Takes back a checkpoint, at any number of ranks, stage, chunk size and
 * placement. `options` and `step` may be null. All ranks call it. */
CASTOR_API int32_t castor_engine_load(castor_engine* engine,
                                      const char* directory,
                                      const castor_load_options* options,
                                      int64_t* step);
/* The trainer's own bytes of the checkpoint that was loaded last, which live
 * until the next load; none, and `data` null, before the first. */
CASTOR_API int32_t castor_engine_loaded_trainer(const castor_engine* engine,
                                                const void** data,
                                                size_t* size);
/* The steps of the checkpoints in a folder, in order: the first `room` of
 * `count`. */
CASTOR_API int32_t castor_checkpoint_list(const char* directory, int64_t* steps,
                                          size_t room, size_t* count);
/* Whether a checkpoint holds what was saved; CASTOR_DATA_LOSS names the first
 * damage. `step` null: the latest. */
CASTOR_API int32_t castor_checkpoint_verify(const char* directory,
                                            const int64_t* step);

/* ---- Memory ------------------------------------------------------------ */

typedef struct castor_park {
  size_t struct_size;
  int64_t moved_bytes;     /* of states, by this call */
  int64_t remaining_bytes; /* on the device still: the tier has no room */
  int64_t held_bytes;      /* of the device: 0 where nothing remains */
  /* What would make room for what remains, or "": lives until the next park. */
  const char* shortfall;
} castor_park;

/* Empties the device between steps, so that others may use it, and gives its
 * memory back where nothing remains. Until castor_engine_resume values can be
 * read and nothing else is done. `tier` is CASTOR_HOST or CASTOR_NVME; `park`
 * may be null. All ranks call both. */
CASTOR_API int32_t castor_engine_park(castor_engine* engine, int32_t tier,
                                      castor_park* park);
CASTOR_API int32_t castor_engine_resume(castor_engine* engine);

/* The step made last, as text (castor.trace/1) that castor simulate and castor
 * search --order trace read. It ends with a zero, which `size` does not count,
 * and lives until the next call. CASTOR_FAILED_PRECONDITION before
 * castor_engine_seal. */
CASTOR_API int32_t castor_engine_trace(castor_engine* engine, const char** text,
                                       size_t* size);

typedef struct castor_engine_stats {
  size_t struct_size;
  int64_t device_budget_bytes;
  int64_t device_peak_bytes;
  int64_t host_budget_bytes;
  int64_t host_peak_bytes;
  int64_t nvme_peak_bytes;
  int64_t host_to_device_bytes;
  int64_t device_to_host_bytes;
  int64_t nvme_read_bytes;
  int64_t nvme_written_bytes;
  int64_t wire_sent_bytes; /* to other ranks */
  int64_t gathers;
  int64_t prefetched_gathers;
  int64_t divergences;
  int64_t stall_ns;
  int64_t tier_allocations;
  int64_t chunks;
  int64_t chunk_bytes;    /* of the largest size, oversize chunks aside */
  int64_t grown_slots;    /* made because a step held more than was known */
  int64_t extra_slots;    /* made because leases outlived their use */
  int64_t exchange_bytes; /* of the device budget, beside what the figures of
                           * the device say: buffers of exchanges among ranks */
} castor_engine_stats;

CASTOR_API int32_t castor_engine_get_stats(const castor_engine* engine,
                                           castor_engine_stats* stats);
/* Puts words of at most 255 bytes into the record, of now, whichever steps it
 * is of; nothing where the world records nothing. */
CASTOR_API int32_t castor_engine_mark(castor_engine* engine, const char* words);
/* All figures, by tier, state and link, as JSON until the next call. An
 * unlimited budget is null there, and in the struct INT64_MAX. */
CASTOR_API int32_t castor_engine_stats_json(castor_engine* engine,
                                            const char** json);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CASTOR_COLLECTIVES_C_API_CASTOR_H_ */
