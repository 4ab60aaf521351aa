/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Castor Authors */

/* A small trainer in C: which byte of a text comes next, with Castor keeping
 * the model. Two ranks are threads, each with half of every batch. The
 * embedding is also the output layer: one parameter that is used twice.
 * docs/port_your_trainer.md walks through this file.
 *
 *   train_lm FILE [STEPS [FOLDER]]
 *
 * Trains up to STEPS steps. With FOLDER it goes on from the latest checkpoint
 * there, if there is one, and saves one at the end. */

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "castor.h"

enum { kRanks = 2, kBytes = 256, kWidth = 32, kBatch = 64, kParams = 4 };
enum { kEmbedding, kHidden, kBias, kOutBias };

static const char kConfig[] =
    "{\"stage\": 3,"
    " \"device_budget_bytes\": \"128KiB\","
    " \"host_budget_bytes\": \"256KiB\","
    " \"optimizer\": {\"kind\": \"adamw\"}}";

struct text {
  unsigned char* bytes;
  long size;
};

struct rank {
  castor_world* world;
  int number;
  const struct text* text;
  long steps;
  const char* folder; /* null: nothing is saved */
  int failed;
};

/* Says what Castor says, and ends the world for the other rank too. */
#define TRY(call)                                                          \
  do {                                                                     \
    if ((call) != CASTOR_OK) {                                             \
      fprintf(stderr, "rank %d: %s\n", self->number, castor_last_error()); \
      castor_world_abort(self->world, castor_last_error());                \
      self->failed = 1;                                                    \
      goto end;                                                            \
    }                                                                      \
  } while (0)

/* A number between -1 and 1 that depends on nothing but its place: Castor asks
 * for any range of elements, on the rank that keeps it. */
static float noise(uint64_t place) {
  place = (place + 1) * 0x9e3779b97f4a7c15u;
  place = (place ^ place >> 29) * 0xbf58476d1ce4e5b9u;
  return (float)(place >> 40) / (float)(1 << 23) - 1;
}

static int32_t initialize(void* context, int64_t begin, int64_t end,
                          float* values) {
  const uint64_t param = *(const uint64_t*)context;
  for (int64_t i = begin; i < end; ++i) {
    values[i - begin] = param == kBias || param == kOutBias
                            ? 0
                            : 0.3f * noise(param << 40 | (uint64_t)i);
  }
  return CASTOR_OK;
}

static int32_t register_params(castor_engine* engine, int32_t* params) {
  static const char* const names[kParams] = {"embedding", "hidden", "bias",
                                             "out_bias"};
  static const int64_t dims[kParams][2] = {
      {kBytes, kWidth}, {kWidth, kWidth}, {kWidth, 0}, {kBytes, 0}};
  static const uint64_t numbers[kParams] = {kEmbedding, kHidden, kBias,
                                            kOutBias};
  for (int p = 0; p < kParams; ++p) {
    castor_tensor tensor = {0};
    tensor.name = names[p];
    tensor.dims = dims[p];
    tensor.dim_count = dims[p][1] == 0 ? 1 : 2;
    tensor.dtype = "F32";
    const int32_t code = castor_engine_register(
        engine, &tensor, NULL, initialize, (void*)&numbers[p], &params[p]);
    if (code != CASTOR_OK) return code;
  }
  return CASTOR_OK;
}

/* All that a batch needs at once, so that Castor plans for it. */
static int32_t seal(castor_engine* engine, const int32_t* params) {
  const castor_held held = {params, kParams, params, kParams};
  castor_seal_options options = CASTOR_INIT(castor_seal_options);
  options.held = &held;
  options.held_count = 1;
  return castor_engine_seal(engine, &options);
}

/* The loss of predicting `next` after `byte`. Where `grads` is not null, adds
 * the gradient of loss / share to them. */
static double example(const float* const* w, float* const* grads, int byte,
                      int next, float share) {
  const float* const in = w[kEmbedding] + byte * kWidth;
  float h[kWidth];
  for (int i = 0; i < kWidth; ++i) {
    float sum = w[kBias][i];
    for (int j = 0; j < kWidth; ++j) sum += w[kHidden][i * kWidth + j] * in[j];
    h[i] = tanhf(sum);
  }
  float out[kBytes];
  float most = -INFINITY;
  for (int b = 0; b < kBytes; ++b) {
    out[b] = w[kOutBias][b];
    for (int i = 0; i < kWidth; ++i) {
      out[b] += w[kEmbedding][b * kWidth + i] * h[i];
    }
    if (out[b] > most) most = out[b];
  }
  double total = 0;
  for (int b = 0; b < kBytes; ++b) total += exp(out[b] - most);
  const double loss = log(total) + most - out[next];
  if (grads == NULL) return loss;

  float dh[kWidth] = {0};
  for (int b = 0; b < kBytes; ++b) {
    const float d = ((float)(exp(out[b] - most) / total) - (b == next)) / share;
    grads[kOutBias][b] += d;
    for (int i = 0; i < kWidth; ++i) {
      grads[kEmbedding][b * kWidth + i] += d * h[i];
      dh[i] += d * w[kEmbedding][b * kWidth + i];
    }
  }
  for (int i = 0; i < kWidth; ++i) {
    const float d = dh[i] * (1 - h[i] * h[i]);
    grads[kBias][i] += d;
    for (int j = 0; j < kWidth; ++j) {
      grads[kHidden][i * kWidth + j] += d * in[j];
      /* The second use of the tied embedding adds to the same place. */
      grads[kEmbedding][byte * kWidth + j] += d * w[kHidden][i * kWidth + j];
    }
  }
  return loss;
}

/* Of the batch at `place`, this rank's half; its mean loss. */
static double batch(const struct rank* self, const float* const* weights,
                    float* const* grads, uint64_t place) {
  double loss = 0;
  for (int e = self->number; e < kBatch; e += kRanks) {
    const float at = (noise(place * kBatch + (uint64_t)e) + 1) / 2;
    const long where = (long)(at * (float)(self->text->size - 2));
    loss += example(weights, grads, self->text->bytes[where],
                    self->text->bytes[where + 1], kBatch / kRanks);
  }
  return loss / (kBatch / kRanks);
}

/* The mean loss of batches that no step trains on. */
static int32_t validate(struct rank* self, castor_engine* engine,
                        const int32_t* params, double* loss) {
  int32_t code = castor_engine_begin_evaluation(engine);
  if (code != CASTOR_OK) return code;
  const void* data[kParams];
  castor_param_lease* lease = NULL;
  code = castor_engine_acquire(engine, params, kParams, data, &lease);
  if (code == CASTOR_OK) {
    const float* weights[kParams];
    for (int p = 0; p < kParams; ++p) weights[p] = data[p];
    *loss = 0;
    for (uint64_t b = 0; b < 4; ++b) {
      *loss += batch(self, weights, NULL, ~UINT64_C(0) / kBatch - b) / 4;
    }
    code = castor_param_lease_release(lease);
  }
  const int32_t ended = castor_engine_end_evaluation(engine);
  return code != CASTOR_OK ? code : ended;
}

static int32_t train_step(struct rank* self, castor_engine* engine,
                          const int32_t* params, uint64_t step, double* loss) {
  int32_t code = castor_engine_begin_micro_batch(engine, 1);
  if (code != CASTOR_OK) return code;
  const void* data[kParams];
  castor_param_lease* lease = NULL;
  code = castor_engine_acquire(engine, params, kParams, data, &lease);
  if (code != CASTOR_OK) return code;
  const float* weights[kParams];
  float* grads[kParams];
  for (int p = 0; p < kParams && code == CASTOR_OK; ++p) {
    void* grad = NULL;
    code = castor_engine_grad(engine, params[p], &grad);
    weights[p] = data[p];
    grads[p] = grad;
  }
  if (code == CASTOR_OK) *loss = batch(self, weights, grads, step);
  const int32_t released = castor_param_lease_release(lease);
  if (code == CASTOR_OK) code = released;
  for (int p = 0; p < kParams && code == CASTOR_OK; ++p) {
    code = castor_engine_grad_ready(engine, params[p]);
  }
  if (code != CASTOR_OK) return code;
  return castor_engine_step(engine, 0.01, NULL);
}

static void* train(void* context) {
  struct rank* const self = context;
  castor_engine* engine = NULL;
  int32_t params[kParams];
  TRY(castor_engine_create(self->world, self->number, NULL, kConfig, &engine));
  TRY(register_params(engine, params));
  TRY(seal(engine, params));

  /* The trainer's own bytes: which batch comes next. */
  uint64_t step = 0;
  size_t checkpoints = 0;
  if (self->folder != NULL &&
      castor_checkpoint_list(self->folder, NULL, 0, &checkpoints) ==
          CASTOR_OK &&
      checkpoints > 0) {
    TRY(castor_engine_load(engine, self->folder, NULL, NULL));
    const void* bytes = NULL;
    size_t size = 0;
    TRY(castor_engine_loaded_trainer(engine, &bytes, &size));
    if (size == sizeof(step)) memcpy(&step, bytes, size);
    if (self->number == 0) printf("resumed after step %d\n", (int)step);
  }
  for (; step < (uint64_t)self->steps; ++step) {
    double loss = 0;
    TRY(train_step(self, engine, params, step, &loss));
    if ((step + 1) % 20 != 0) continue;
    double unseen = 0;
    TRY(validate(self, engine, params, &unseen));
    if (self->number == 0) {
      printf("step %d: loss %.3f, validation %.3f\n", (int)step + 1, loss,
             unseen);
    }
  }
  if (self->folder != NULL) {
    castor_save_options save = CASTOR_INIT(castor_save_options);
    save.trainer = &step;
    save.trainer_size = sizeof(step);
    save.keep = 2;
    TRY(castor_engine_save(engine, self->folder, &save));
  }
  uint64_t digest = 0;
  TRY(castor_engine_weight_digest(engine, &digest));
  if (self->number == 0) {
    printf("weight digest after step %d: %016llx\n", (int)step,
           (unsigned long long)digest);
  }
  TRY(castor_engine_close(engine));
end:
  castor_engine_destroy(engine);
  return NULL;
}

static int read_text(const char* path, struct text* text) {
  FILE* const file = fopen(path, "rb");
  if (file == NULL) return 0;
  fseek(file, 0, SEEK_END);
  text->size = ftell(file);
  rewind(file);
  if (text->size >= 2) text->bytes = malloc((size_t)text->size);
  const int whole =
      text->bytes != NULL &&
      fread(text->bytes, 1, (size_t)text->size, file) == (size_t)text->size;
  fclose(file);
  return whole;
}

int main(int argc, char** argv) {
  struct text text = {0};
  if (argc < 2 || argc > 4) {
    fprintf(stderr, "usage: train_lm FILE [STEPS [FOLDER]]\n");
    return 2;
  }
  if (!read_text(argv[1], &text)) {
    fprintf(stderr, "train_lm: cannot read two bytes of %s\n", argv[1]);
    return 4;
  }
  castor_world* world = NULL;
  if (castor_world_create(kRanks, NULL, &world) != CASTOR_OK) {
    fprintf(stderr, "train_lm: %s\n", castor_last_error());
    return 5;
  }
  struct rank ranks[kRanks];
  pthread_t threads[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    ranks[r] = (struct rank){world,
                             r,
                             &text,
                             argc > 2 ? strtol(argv[2], NULL, 10) : 100,
                             argc > 3 ? argv[3] : NULL,
                             0};
    if (pthread_create(&threads[r], NULL, train, &ranks[r]) != 0) return 5;
  }
  int failed = 0;
  for (int r = 0; r < kRanks; ++r) {
    pthread_join(threads[r], NULL);
    failed |= ranks[r].failed;
  }
  castor_world_destroy(world);
  free(text.bytes);
  return failed;
}
