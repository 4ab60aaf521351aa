// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_CLASS_PAIRS_H_
#define CASTOR_CHUNK_CLASS_PAIRS_H_

// What is known of every class there could be, one for each pair of thresholds:
// bounds of the least it wastes, made tighter only where a search asks.
// Next-fit packs a fixed list into a number of chunks that never rises with C,
// so n chunks at the right end of a range of sizes bound what its left end
// allocates from below. Thread-compatible.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "chunk/base/units.h"
#include "chunk/chunk_packer.h"
#include "chunk/class_runs.h"
#include "chunk/search_certificate.h"
#include "chunk/size_runs.h"

namespace castor {

// One class: the parameters between two thresholds.
struct ClassPair {
  bool known = false;   // Bracket has been asked; else the rest is zero
  Elements least;       // it wastes at least this
  Elements waste;       // and at most this,
  Elements chunk_size;  // in chunks of this size
  int64_t chunks = 0;   // of which it needs this many
  // Proves `least`; by size, without a gap.
  std::vector<CertificateInterval> intervals;
};

class ClassPairs {
 public:
  // `nodes` are the thresholds that may be chosen, by number, from 0 to D.
  // `runs` outlives this.
  ClassPairs(const ClassRuns& runs, std::vector<int> nodes,
             const PackOptions& options);

  int nodes() const { return static_cast<int>(nodes_.size()); }
  const ClassRuns& runs() const { return runs_; }
  int threshold(int node) const { return nodes_[static_cast<size_t>(node)]; }

  // The class of the parameters above node i and up to node k. REQUIRES: i < k.
  const ClassPair& pair(int i, int k) const { return pairs_[IndexOf(i, k)]; }

  // Bounds a pair by its smallest and its largest size, unless it is known.
  void Bracket(int i, int k);

  // Proves that the pair wastes at least `goal`, or finds the least it wastes
  // and the smallest size that does. REQUIRES: the pair is known.
  void Refine(int i, int k, Elements goal);

  // The pair in chunks of another size. REQUIRES: one it may have.
  RunCount CountAt(int i, int k, Elements chunk_size);

  // How many runs have been looked at: the work done, on any machine.
  int64_t steps() const { return steps_; }

 private:
  size_t IndexOf(int i, int k) const {
    return static_cast<size_t>(k) * static_cast<size_t>(k - 1) / 2 +
           static_cast<size_t>(i);
  }
  void Select(int i, int k);
  RunCount Count(Elements chunk_size);
  Elements SmallestSizeWith(int64_t chunks, Elements from, Elements to);

  const ClassRuns& runs_;
  const Elements quantum_;
  std::vector<int> nodes_;
  std::vector<ClassPair> pairs_;
  SizeRuns selected_;
  size_t selected_index_;
  int64_t steps_ = 0;
};

}  // namespace castor

#endif  // CASTOR_CHUNK_CLASS_PAIRS_H_
