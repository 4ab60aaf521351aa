/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Castor Authors */

#ifndef CASTOR_TESTS_COLLECTIVES_C_API_C_TRAINER_H_
#define CASTOR_TESTS_COLLECTIVES_C_API_C_TRAINER_H_

/* A rank that trains through the C ABI, with bits that the kind of its world
 * does not change. For tests in C whose ranks are processes. */

#include <signal.h>
#include <stdint.h>
#include <stdio.h>

#include "collectives/c_api/castor.h"

static int failures = 0;

#define EXPECT(condition)                                                      \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                              \
    }                                                                          \
  } while (0)

enum { kRanks = 4, kParams = 6, kElements = 1000, kSteps = 5 };

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
  castor_set_error("weights.bin is not there");
  return CASTOR_IO_ERROR;
}

struct rank {
  castor_world* world;
  int number;
  int steps;
  int lacks_weights;
  int signal; /* if not 0, what befalls the process before step 3 */
  uint64_t digest;
  int32_t failed; /* what the first call that failed answered */
  char words[512];
};

#define TRY(call)                                                            \
  do {                                                                       \
    const int32_t code_ = (call);                                            \
    if (code_ != CASTOR_OK && self->failed == 0) {                           \
      self->failed = code_;                                                  \
      snprintf(self->words, sizeof(self->words), "%s", castor_last_error()); \
    }                                                                        \
    if (code_ != CASTOR_OK) goto out;                                        \
  } while (0)

static void* train(void* context) {
  struct rank* self = context;
  castor_engine* engine = NULL;
  float first[kParams];
  int32_t params[kParams];
  TRY(castor_engine_create(
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
    TRY(castor_engine_register(engine, &tensor, NULL,
                               self->lacks_weights ? fail_to_fill : fill,
                               &first[p], &params[p]));
  }
  TRY(castor_engine_seal(engine, NULL));
  for (int step = 0; step < self->steps; ++step) {
    if (step == 3 && self->signal != 0) raise(self->signal);
    TRY(castor_engine_begin_micro_batch(engine, 1));
    for (int p = 0; p < kParams; ++p) {
      const void* values = NULL;
      castor_param_lease* lease = NULL;
      TRY(castor_engine_acquire(engine, &params[p], 1, &values, &lease));
      void* grads = NULL;
      TRY(castor_engine_grad(engine, params[p], &grads));
      for (int i = 0; i < kElements; ++i) {
        ((float*)grads)[i] +=
            ((const float*)values)[i] * (float)(self->number + 1) * 0.125f;
      }
      TRY(castor_param_lease_release(lease));
      TRY(castor_engine_grad_ready(engine, params[p]));
    }
    TRY(castor_engine_step(engine, 0.01, NULL));
  }
  TRY(castor_engine_weight_digest(engine, &self->digest));
  TRY(castor_engine_close(engine));
out:
  castor_engine_destroy(engine);
  return NULL;
}

#endif /* CASTOR_TESTS_COLLECTIVES_C_API_C_TRAINER_H_ */
