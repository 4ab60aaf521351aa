// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/search/family_pieces.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/chunk_layout.h"

namespace castor {
namespace {

bool SameCounts(const SizePiece& a, const SizePiece& b) {
  return a.chunks == b.chunks && a.oversize_chunks == b.oversize_chunks &&
         a.oversize_allocated == b.oversize_allocated;
}

// A swept piece begins at a multiple of Q. The pieces that hold a multiple of
// `quantum`, each from its first one on.
std::vector<SizePiece> AtMultiples(std::vector<SizePiece> pieces,
                                   Elements quantum) {
  std::vector<SizePiece> kept;
  for (SizePiece& piece : pieces) {
    piece.from = RoundUp(piece.from, quantum);
    if (!kept.empty() && kept.back().from == piece.from) kept.pop_back();
    kept.push_back(piece);
  }
  return kept;
}

// Finds the pieces of one group some parameters of which stay whole.
class Bisection {
 public:
  Bisection(const PackedGroup& group, Elements quantum,
            const PackOptions& options)
      : group_(group), quantum_(quantum), options_(options) {}

  std::vector<SizePiece> Run(Elements min_size, Elements max_size) && {
    // At each of these the set of oversize parameters changes.
    std::vector<Elements> begins = {min_size};
    for (const Elements size : group_.sizes) {
      if (size > min_size && size <= max_size) {
        begins.push_back(RoundUp(size, quantum_));
      }
    }
    std::sort(begins.begin(), begins.end());
    begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
    for (size_t i = 0; i < begins.size() && begins[i] <= max_size; ++i) {
      const bool last = i + 1 == begins.size() || begins[i + 1] > max_size;
      const SizePiece first = PieceAt(begins[i]);
      Add(first);
      Split(first, PieceAt(last ? max_size : begins[i + 1] - quantum_));
    }
    return std::move(pieces_);
  }

 private:
  SizePiece PieceAt(Elements size) const {
    const PackCount count =
        CountPacking(group_.sizes, size, options_, group_.whole);
    SizePiece piece;
    piece.from = size;
    piece.chunks = count.chunks - count.oversize_chunks;
    piece.oversize_chunks = count.oversize_chunks;
    piece.oversize_allocated = count.oversize_allocated;
    return piece;
  }

  void Add(const SizePiece& piece) {
    if (pieces_.empty() || !SameCounts(pieces_.back(), piece)) {
      pieces_.push_back(piece);
    }
  }

  // Adds what begins behind `low`, up to `high`. The depth is the logarithm of
  // the distance.
  void Split(const SizePiece& low, const SizePiece& high) {
    if (SameCounts(low, high)) return;
    const int64_t steps = (high.from - low.from) / quantum_;
    if (steps == 1) return Add(high);
    const SizePiece middle = PieceAt(low.from + quantum_ * (steps / 2));
    Split(low, middle);
    Split(middle, high);
  }

  const PackedGroup& group_;
  const Elements quantum_;
  const PackOptions& options_;
  std::vector<SizePiece> pieces_;
};

std::vector<SizePiece> GroupPieces(const PackedGroup& group, Elements min_size,
                                   Elements max_size, Elements quantum,
                                   const PackOptions& options) {
  if (!group.whole.empty()) {
    return Bisection(group, quantum, options).Run(min_size, max_size);
  }
  std::vector<SizePiece> pieces =
      SweepChunkSizes(group.sizes, min_size, max_size, options);
  if (quantum == ChunkQuantum(options.world)) return pieces;
  return AtMultiples(std::move(pieces), quantum);
}

// The pieces of both together. REQUIRES: they begin at one size.
std::vector<SizePiece> Sum(std::span<const SizePiece> a,
                           std::span<const SizePiece> b) {
  std::vector<SizePiece> sum;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    SizePiece piece;
    piece.from = std::max(a[i].from, b[j].from);
    piece.chunks = a[i].chunks + b[j].chunks;
    piece.oversize_chunks = a[i].oversize_chunks + b[j].oversize_chunks;
    piece.oversize_allocated =
        a[i].oversize_allocated + b[j].oversize_allocated;
    sum.push_back(piece);
    // Whichever ends first goes on to its next piece.
    const bool a_ends = j + 1 == b.size() ||
                        (i + 1 < a.size() && a[i + 1].from <= b[j + 1].from);
    const bool b_ends = i + 1 == a.size() ||
                        (j + 1 < b.size() && b[j + 1].from <= a[i + 1].from);
    if (a_ends) ++i;
    if (b_ends) ++j;
  }
  return sum;
}

// Oversize chunks of all groups use the same slots: one for each distinct size.
void AddClasses(std::span<const PackedGroup> groups, Elements q,
                std::vector<SizePiece>* pieces) {
  std::vector<Elements> classes;
  for (const PackedGroup& group : groups) {
    for (const Elements size : group.sizes) {
      if (size > pieces->front().from) classes.push_back(RoundUp(size, q));
    }
  }
  std::sort(classes.begin(), classes.end());
  classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
  Elements sum;
  for (auto piece = pieces->rbegin(); piece != pieces->rend(); ++piece) {
    for (; !classes.empty() && classes.back() > piece->from;
         classes.pop_back()) {
      sum += classes.back();
    }
    piece->oversize_classes = sum;
  }
}

}  // namespace

std::vector<SizePiece> FamilyPieces(std::span<const PackedGroup> groups,
                                    Elements min_size, Elements max_size,
                                    Elements quantum,
                                    const PackOptions& options) {
  CASTOR_CHECK(!groups.empty());
  CASTOR_CHECK_LE(min_size, max_size);
  CASTOR_CHECK_EQ(min_size % quantum, Elements(0));
  CASTOR_CHECK_EQ(max_size % quantum, Elements(0));
  std::vector<SizePiece> pieces =
      GroupPieces(groups[0], min_size, max_size, quantum, options);
  for (const PackedGroup& group : groups.subspan(1)) {
    pieces =
        Sum(pieces, GroupPieces(group, min_size, max_size, quantum, options));
  }
  AddClasses(groups, ChunkQuantum(options.world), &pieces);
  return pieces;
}

}  // namespace castor
