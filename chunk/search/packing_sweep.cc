// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/search/packing_sweep.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "chunk/base/check.h"
#include "chunk/search/size_event_queue.h"

namespace castor {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

int64_t RoundUpTo(int64_t value, int64_t multiple) {
  const int64_t rest = value % multiple;
  return rest == 0 ? value : value + (multiple - rest);
}

// The packing at one size, kept up to date while the size grows. Positions are
// those of one endless chunk: parameter i lies at [start, end), so it fits in a
// chunk that begins with parameter b where end(i) <= start(b) + C. That holds
// for oversize parameters too: they never fit behind another.
class Sweep {
 public:
  Sweep(std::span<const Elements> sizes, int64_t min_size, int64_t max_size,
        const PackOptions& options)
      : quantum_(ChunkQuantum(options.world).count()),
        max_size_(max_size),
        size_(min_size),
        queue_(min_size, max_size, sizes.size()) {
    params_.reserve(sizes.size());
    int64_t start = 0;
    for (const Elements size : sizes) {
      if (size == Elements(0)) continue;
      params_.push_back({start, start + size.count()});
      start += RoundUpTo(size.count(), options.align.count());
    }
    count_ = static_cast<int32_t>(params_.size());
    chunks_.resize(params_.size());
  }

  struct Count {
    int64_t from;
    int64_t chunks;  // oversize ones included
  };

  // The number of chunks at every size, as the sizes at which it changes.
  std::vector<Count> Run() {
    int64_t chunks = 0;
    for (int32_t i = 0; i < count_; i = chunks_[i].end) {
      Close(i, /*hint=*/i);
      ++chunks;
    }
    std::vector<Count> counts = {{size_, chunks}};
    SizeEventQueue::Event event;
    while (queue_.Pop(&event)) {
      const Chunk& chunk = chunks_[event.item];
      if (chunk.end == kNoChunk || chunk.changes_at != event.size) continue;
      if (event.size != size_) {
        Record(size_, chunks, &counts);
        size_ = event.size;
      }
      chunks += Repair(event.item);
    }
    Record(size_, chunks, &counts);
    return counts;
  }

 private:
  struct Param {
    int64_t start;
    int64_t end;
  };
  // A chunk, kept at the index of its first parameter.
  struct Chunk {
    int64_t changes_at = kNever;
    int32_t end = kNoChunk;  // the parameter that begins the next one
  };
  static constexpr int32_t kNoChunk = -1;

  static void Record(int64_t size, int64_t chunks, std::vector<Count>* counts) {
    if (counts->back().chunks != chunks) counts->push_back({size, chunks});
  }

  // Fills the chunk that begins with `first` at the current size. `hint` is a
  // parameter near its end.
  void Close(int32_t first, int32_t hint) {
    const Param& param = params_[first];
    int64_t change = param.end - param.start;  // an oversize one: its size
    int32_t end = first + 1;
    if (change <= size_) {
      end = FirstBeyond(param.start + size_, first, hint);
      change = end < count_ ? params_[end].end - param.start : kNever;
    }
    Chunk& chunk = chunks_[first];
    chunk.end = end;
    chunk.changes_at = kNever;
    if (change > max_size_) return;
    change = RoundUpTo(change, quantum_);
    if (change > max_size_) return;
    chunk.changes_at = change;
    queue_.Push({change, first});
  }

  // The first parameter that ends beyond `limit`; `inside` does not.
  int32_t FirstBeyond(int64_t limit, int32_t inside, int32_t hint) const {
    if (hint > inside && hint < count_ && params_[hint].end <= limit) {
      inside = hint;
    }
    int32_t step = 1;
    while (step < count_ - inside && params_[inside + step].end <= limit) {
      inside += step;
      step *= 2;
    }
    int32_t beyond = std::min(count_ - inside, step) + inside;
    while (beyond - inside > 1) {
      const int32_t middle = inside + (beyond - inside) / 2;
      (params_[middle].end <= limit ? inside : beyond) = middle;
    }
    return beyond;
  }

  // Closes chunk `first` anew and those after it until a border is an old one;
  // returns by how many the chunks grew in number. Old chunks further on that
  // change at this size too have events of their own, and those come by rising
  // position, so a size costs one pass over what changes.
  int64_t Repair(int32_t first) {
    int64_t growth = 0;
    int32_t old_border = chunks_[first].end;
    Close(first, old_border);
    int32_t border = chunks_[first].end;
    while (old_border != border) {
      if (old_border < border) {
        const int32_t next = chunks_[old_border].end;
        chunks_[old_border].end = kNoChunk;
        old_border = next;
        --growth;
      } else {
        Close(border, old_border);
        border = chunks_[border].end;
        ++growth;
      }
    }
    return growth;
  }

  const int64_t quantum_;
  const int64_t max_size_;
  int64_t size_;  // the current C
  int32_t count_ = 0;
  std::vector<Param> params_;
  std::vector<Chunk> chunks_;
  SizeEventQueue queue_;
};

// What is oversize at every size, as the sizes at which it changes.
std::vector<SizePiece> OversizeSteps(std::span<const Elements> sizes,
                                     Elements min_size, Elements max_size,
                                     Elements quantum) {
  std::vector<Elements> classes;
  for (const Elements size : sizes) {
    if (size > min_size) classes.push_back(RoundUp(size, quantum));
  }
  std::sort(classes.begin(), classes.end());

  // From above the largest downwards, a class at a time: one of size s is
  // oversize below s.
  std::vector<SizePiece> steps;
  SizePiece step;
  while (true) {
    const bool ends = classes.empty();
    step.from = ends ? min_size : classes.back();
    if (step.from <= max_size) steps.push_back(step);
    if (ends) break;
    const Elements size = classes.back();
    step.oversize_classes += size;
    while (!classes.empty() && classes.back() == size) {
      ++step.oversize_chunks;
      step.oversize_allocated += size;
      classes.pop_back();
    }
  }
  std::reverse(steps.begin(), steps.end());
  return steps;
}

}  // namespace

std::vector<SizePiece> SweepChunkSizes(std::span<const Elements> sizes,
                                       Elements min_size, Elements max_size,
                                       const PackOptions& options) {
  const Elements quantum = ChunkQuantum(options.world);
  CASTOR_CHECK_GT(min_size, Elements(0));
  CASTOR_CHECK_LE(min_size, max_size);
  CASTOR_CHECK_EQ(min_size % quantum, Elements(0));
  CASTOR_CHECK_EQ(max_size % quantum, Elements(0));
  const std::vector<Sweep::Count> counts =
      Sweep(sizes, min_size.count(), max_size.count(), options).Run();
  const std::vector<SizePiece> steps =
      OversizeSteps(sizes, min_size, max_size, quantum);

  std::vector<SizePiece> pieces;
  pieces.reserve(counts.size() + steps.size());
  size_t c = 0;
  size_t s = 0;
  while (true) {
    SizePiece piece = steps[s];
    piece.from = std::max(Elements(counts[c].from), steps[s].from);
    piece.chunks = counts[c].chunks - piece.oversize_chunks;
    pieces.push_back(piece);
    const int64_t next_count =
        c + 1 < counts.size() ? counts[c + 1].from : kNever;
    const int64_t next_step =
        s + 1 < steps.size() ? steps[s + 1].from.count() : kNever;
    if (next_count == kNever && next_step == kNever) break;
    if (next_count <= next_step) ++c;
    if (next_step <= next_count) ++s;
  }
  return pieces;
}

}  // namespace castor
