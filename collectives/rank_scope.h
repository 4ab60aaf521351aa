// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_RANK_SCOPE_H_
#define CASTOR_COLLECTIVES_RANK_SCOPE_H_

// Part of the communicator (communicator.h).
//
// Among which ranks of a world a gather or a reduction is, and which slice of
// its buffers is whose. Ranks lie along two axes: inside a group of ranks that
// follow each other (those of a host, as a rule), and across groups. Of eight
// ranks in groups of four:
//
//     inside ──▶                           slices of a chunk, by their rank
//     group 0    0  1  2  3    │ across    ┌─────┬─────┬─────┬─────┐
//     group 1    4  5  6  7    ▼           │ 0 4 │ 1 5 │ 2 6 │ 3 7 │
//                                          └─────┴─────┴─────┴─────┘
//
// Slices are ordered by the place inside the group first. So slices of ranks
// that stand for each other (1 and 5) are one piece. What these ranks gather of
// each other is what each of them keeps. Value; pure functions, thread-safe.

#include <cstdint>

namespace castor {

enum class Among : uint8_t {
  kWorld,     // all ranks
  kGroup,     // those of one's group
  kReplicas,  // those at one's place in every group
};

struct RankScope {
  Among among = Among::kWorld;
  // Ranks of a group; 0: all are one group.
  int32_t group = 0;

  friend bool operator==(const RankScope&, const RankScope&) = default;

  // Whether a world of that size falls into such groups.
  bool Divides(int world) const {
    return group >= 0 && (group == 0 || world % group == 0);
  }

  // The rest REQUIRES that it does.

  // Whether it is the same as one group of all ranks.
  bool plain(int world) const {
    return size(world) == world && (group <= 1 || group == world);
  }
  // How many ranks it is among.
  int size(int world) const {
    if (among == Among::kWorld) return world;
    return among == Among::kGroup ? inside(world) : world / inside(world);
  }
  // The place of the slice of `rank` among those that it shares with others.
  int place(int rank, int world) const {
    const int ranks = inside(world);
    switch (among) {
      case Among::kWorld:
        return rank % ranks * (world / ranks) + rank / ranks;
      case Among::kGroup:
        return rank % ranks;
      case Among::kReplicas:
        return rank / ranks;
    }
    return rank;
  }
  // The place of `rank` among those it is among, in rank order.
  int index(int rank, int world) const {
    return among == Among::kWorld ? rank : place(rank, world);
  }
  // The i-th in rank order of those `rank` is among, itself included.
  int member(int i, int rank, int world) const {
    const int ranks = inside(world);
    switch (among) {
      case Among::kWorld:
        return i;
      case Among::kGroup:
        return rank / ranks * ranks + i;
      case Among::kReplicas:
        return i * ranks + rank % ranks;
    }
    return i;
  }

 private:
  int inside(int world) const { return group > 0 ? group : world; }
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_RANK_SCOPE_H_
