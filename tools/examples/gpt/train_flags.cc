// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/train_flags.h"

#include <fmt/format.h>

#include "tools/cli/nvme_flag.h"
#include "tools/cli/placement_flags.h"
#include "tools/cli/prefetch_flag.h"

namespace castor::gpt {

void DeclareTrainFlags(CLI::App& app, TrainFlags& flags) {
  TrainOptions& train = flags.train;
  AddTextFlag(app, "--text", &flags.text,
              fmt::format("file or folder to train on, byte by byte (default "
                          "{})",
                          kDefaultTextPath));
  AddIntFlag(app, "--layers", &flags.layers, 1, 4096, "blocks (default 9)");
  AddIntFlag(app, "--heads", &flags.heads, 1, 4096,
             "attention heads (default 8)");
  AddIntFlag(app, "--embd", &flags.embd, 1, 65536,
             "columns of the residual stream (default 512)");
  AddIntFlag(app, "--seq", &flags.seq, 1, 65536,
             "tokens of a sequence (default 256)");
  AddIntFlag(app, "--batch", &flags.batch, 1, 65536,
             "sequences of a rank's micro-batch (default 2)");
  AddIntFlag(app, "--accumulate", &flags.accumulate, 1, 65536,
             "micro-batches of a step (default 1)");
  AddIntFlag(app, "--steps", &train.steps, 1, 1'000'000'000,
             "steps (default 30)");
  AddIntFlag(app, "--seed", &flags.seed, 0, INT64_MAX,
             "of initial values and data (default 1)");
  AddChoiceFlag(app, "--dtype", &flags.dtype, {"f32", "bf16", "f16"},
                "of parameters and gradients (default f32)");
  AddRealFlag(app, "--lr", &train.lr, 0, 1e3, "learning rate (default 3e-4)");
  AddRealFlag(app, "--weight-decay", &train.weight_decay, 0, 1e3,
              "of AdamW (default 0.1)");
  AddChoiceFlag(app, "--decay", &flags.decay, {"all", "matrices"},
                "what weight decay is for: all parameters, or not norms and "
                "biases (default all)");
  AddIntFlag(app, "--warmup", &train.warmup, 0, 1'000'000'000,
             "steps in which the learning rate rises (default 0)");
  AddChoiceFlag(app, "--schedule", &flags.schedule,
                {"constant", "linear", "cosine"},
                "how the rate goes to 0 after that, if it does (default "
                "constant)");
  AddRealFlag(app, "--clip", &train.clip_norm, 0, 1e30,
              "largest global norm of the gradient; 0: none (default 1)");
  AddTextFlag(app, "--loss-scale", &flags.loss_scale,
              "factor of the loss, for f16; dynamic: from 65536 on, less "
              "where gradients overflow (default: none)");
  AddChoiceFlag(app, "--grad-mode", &flags.grad_mode,
                {"separate", "fp32", "reuse"},
                "gradients are of the parameters' type, or fp32, or take the "
                "place of parameters (default separate)");
  AddChoiceFlag(app, "--accumulation-order", &flags.accumulation_order,
                {"each", "last"},
                "every micro-batch's gradients are reduced, or they are added "
                "up, whole, and reduced once (default each)");
  RefuseFlag(app, "--update-order",
             "every step updates chunks in the same order; leave it away");
  AddIntFlag(app, "--ranks", &flags.ranks, 1, 1024,
             "ranks, threads of this process (default 1); under mpirun, as "
             "many as there are processes");
  AddIntFlag(app, "--rank", &flags.rank, 0, 1'000'000,
             "which of --ranks this process is, where nothing that started it "
             "tells");
  AddChoiceFlag(app, "--backend", &flags.backend, {"host", "nccl"},
                "where ranks meet: in host memory, or each is a process with "
                "a GPU, and NCCL connects them (default host)");
  AddChoiceFlag(app, "--reduce", &flags.reduce, {"exact", "native"},
                "of nccl: sums in rank order, with the bits of every other "
                "way to train, or NCCL's own (default exact)");
  AddTextFlag(app, "--id-file", &flags.id_file,
              "of nccl: a new file that all ranks see, by which they find each "
              "other (default: by mpirun, or MASTER_ADDR and MASTER_PORT, or "
              "Slurm's step)");
  AddIntFlag(app, "--rank-timeout", &flags.rank_timeout, 0, 1'000'000,
             "seconds that a rank may hold the others up; 0: for ever "
             "(default 120)");
  AddIntFlag(app, "--stage", &flags.stage, 0, 3, "of ZeRO (default 3)");
  AddIntFlag(app, "--shard-group", &flags.shard_group, 1, 1'000'000,
             "ranks that share one set of shards, as those of a host; other "
             "groups keep copies (default: all ranks)");
  AddChoiceFlag(app, "--optimizer-span", &flags.optimizer_span,
                {"group", "world"},
                "optimizer states are cut among the ranks of a group, or among "
                "all (default group)");
  AddTextFlag(app, "--plan", &flags.plan,
              "file of castor plan -o with budgets, stage, chunks and policy, "
              "instead of their flags");
  AddTextFlag(app, "--config", &flags.config,
              "file of the engine's options, learning rates, ranks and "
              "checkpoints (castor.config/1, collectives/zero_config.h); what "
              "it leaves out flags say, and nothing is said twice");
  AddSizeFlag(app, "--device-budget", &train.device_budget,
              "device bytes per rank (default: room for everything)");
  AddSizeFlag(app, "--host-budget", &train.host_budget,
              "pinned host bytes per rank (default 0)");
  AddTextListFlag(app, "--nvme", &flags.nvme, kNvmeFlagHelp);
  AddSizeFlag(app, "--chunk", &train.chunk_size,
              "chunk size (default: searched between 1 MiB and an eighth of "
              "the device budget)");
  AddTextFlag(app, "--layout", &flags.layout,
              "file of castor search -o that says where every parameter lies, "
              "instead of --chunk");
  AddTextFlag(app, "--prefetch", &flags.prefetch, kPrefetchFlagHelp,
              "N|deadlines");
  AddTextFlag(app, "--compute", &flags.compute,
              "how long a rank computes in a step, for example 850ms: for "
              "--prefetch deadlines (default: unknown)",
              "TIME");
  AddSwitch(app, "--no-prefetch", &flags.no_prefetch,
            "gather on demand only, as --prefetch 0");
  AddChoiceFlag(app, "--policy", &flags.policy, {"auto", "planned"},
                "who decides which copies stay on the device: next use "
                "weighed by cost, or the cheapest plan (default auto)");
  AddTextListFlag(app, "--limit", &flags.limit, kLimitFlagHelp);
  AddTextListFlag(app, "--place", &flags.place, kPlaceFlagHelp);
  AddTextFlag(app, "--machine", &flags.machine,
              "file of a machine's speeds (castor.machine/1): what moves "
              "between device, host and nvme takes at least its time, and is "
              "weighed by it; a link that it does not name is not slowed");
  AddTextFlag(app, "--record", &flags.record,
              "file for the run's events, for castor report");
  AddTextFlag(
      app, "--trace", &flags.trace,
      "file for the trace of the last step (castor.trace/1), for castor "
      "search --order trace");
  AddTextFlag(app, "--save", &train.save,
              "folder for checkpoints: one after the last step, also of a run "
              "that is stopped");
  AddIntFlag(app, "--save-every", &flags.save_every, 1, 1'000'000'000,
             "save after every so many steps too");
  AddIntFlag(app, "--keep", &flags.keep, 1, 1'000'000'000,
             "checkpoints that stay in the folder (default: all)");
  AddSwitch(app, "--save-async", &train.save_async,
            "save while the next step computes");
  AddTextFlag(app, "--resume", &train.resume,
              "checkpoint to go on from, or a folder of them for the latest; "
              "where it is that of --save, it may hold none yet");
  AddTextFlag(app, "--init", &train.init,
              "weights to begin with instead of random ones: a checkpoint, or "
              "a model of the same names and shapes (.safetensors, an index, a "
              "folder)");
  AddIntFlag(app, "--digest-at", &flags.digest_at, 1, 1'000'000'000,
             "print the weights' digest after this step too");
  AddSwitch(app, "--reference", &flags.reference,
            "train in plain arrays on one rank, without Castor and its flags");
  AddSwitch(app, "--json", &flags.json, "the summary as one JSON document");
  AddSwitch(app, "--print-model", &flags.print_model,
            "print the parameters, a list for castor search - --order file, "
            "and train nothing");
  NoteGivenFlags(app, &flags.given);
}

}  // namespace castor::gpt
