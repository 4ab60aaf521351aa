// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_TRAINER_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_TRAINER_H_

// Training with Castor. The ranks are threads of this process, which share its
// workers; or this process is one of a group of ranks. A failure on one rank
// ends all. Thread-safe; the threads and all memory are gone on return.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/zero_engine.h"
#include "offload/memory/pinned_arena.h"
#include "offload/twin/simulated_link.h"
#include "placement/trace/trace_file.h"
#include "tools/examples/gpt/ranks/rank_group.h"
#include "tools/examples/gpt/text_data.h"
#include "tools/examples/gpt/train_options.h"

namespace castor::gpt {

struct StepReport {
  int64_t step = 0;  // counts from 1
  double loss = 0;   // mean over ranks and micro-batches
  double grad_norm = 0;
  bool applied = true;  // false: a gradient was not finite
  double loss_scale = 1;
  double seconds = 0;  // since the last report
  int64_t tokens = 0;  // of all ranks
  TierUse tiers[3];    // of this rank
};

// The reports of a run, however long it is: the first few, the last thousand,
// and sums of all.
class StepHistory {
 public:
  static constexpr size_t kFirst = 5;
  static constexpr size_t kLast = 1000;

  void push_back(const StepReport& report);

  // How many steps were reported, and their sums.
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t tokens() const { return tokens_; }
  double seconds() const { return seconds_; }

  // The first kFirst, and the last kLast, at most.
  const std::vector<StepReport>& first() const { return first_; }
  const std::deque<StepReport>& last() const { return last_; }
  const StepReport& back() const { return last_.back(); }

 private:
  size_t size_ = 0;
  int64_t tokens_ = 0;
  double seconds_ = 0;
  std::vector<StepReport> first_;
  std::deque<StepReport> last_;
};

// What the links of one rank carried.
struct RankLinks {
  LinkUse to_device = {};
  LinkUse from_device = {};
  LinkUse nvme_read = {};  // where the machine says anything of its drive
  LinkUse nvme_write = {};
};

// What a process held at its peak, by what for. Castor's tiers are those that
// lie in the process's own memory, of all its ranks.
struct ProcessMemory {
  Bytes peak;         // resident, as the system counts; 0: it does not tell
  Bytes tiers;        // of the device's twin and of pinned host memory
  Bytes activations;  // the models' own arrays
  Bytes conversions;  // parameters and gradients on their way to fp32
  Bytes text;
  Bytes record;  // events that were not written yet
  // The program, its libraries, BLAS's buffers, stacks: what is left.
  Bytes rest() const;
};

struct TrainOutcome {
  StepHistory steps;
  std::map<int64_t, uint64_t> digests;  // of the weights, by step
  uint64_t final_digest = 0;
  std::vector<EngineStats> ranks;
  std::vector<RankLinks> links;  // by rank; empty where no machine was given
  PinnedArenaStats arena;        // of a rank's batches on their way
  ProcessMemory memory;
  TraceFile trace;         // of a rank's last step; others' are like it
  std::string trace_file;  // where that was written; empty: nowhere
  std::string checkpoint;  // the last one saved; empty: none
  Status save_failure;     // of what was to be saved at the end
  // Which rule placed which state of which chunk, a sentence each.
  std::vector<std::string> placed_by_rules;
  int64_t last_step = 0;  // that was made, of the whole run
  bool stopped_early = false;
  // Steps at the end of the run whose loss was not finite.
  int64_t steps_without_loss = 0;
};

struct TrainHooks {
  // Called once per step, in order, from the thread of the first rank here. May
  // be empty.
  std::function<void(const StepReport&)> on_step;
  // When it becomes true, training ends after the step under way. May be null.
  const std::atomic<bool>* stop = nullptr;
};

// Blocks. The failure that came first where there are several. With a group,
// of which options.ranks is the size, every rank calls it; steps are reported
// and numbers returned of all ranks on each.
Result<TrainOutcome> Train(const TrainOptions& options, const TextData& data,
                           const TrainHooks& hooks, RankGroup* group = nullptr);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_TRAINER_H_
