// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_RULES_PATRICKSTAR_RULE_H_
#define CASTOR_CHUNK_RULES_PATRICKSTAR_RULE_H_

// The chunk-size search of PatrickStar (CS_SEARCH=1 of
// examples/run_transformers.sh, which runs examples/eval_chunk_size.py for each
// of eight sizes; people then pick the best utilization by eye). A size fails
// where a module does not fit a chunk, or where 14 bytes for each allocated
// element exceed the machine the script assumes: one GPU of 32 GiB, of which a
// warm-up share counts, and 240 GiB of host memory, whatever the real one is.
//
// The truth is that of append_tensor: the direct parameters of a module go
// together, without alignment, into the last chunk or else a new one, and
// chunks without parameters are added until their number is a multiple of the
// ranks, each of which owns whole chunks. Embeddings are in chunks, as the
// script's default has them. Pure function, thread-safe.

#include <cstdint>
#include <span>

#include "chunk/base/units.h"
#include "chunk/rules/rule_result.h"

namespace castor {

struct PatrickStarRuleOptions {
  int world = 1;
  Elements largest{int64_t{312} << 20};  // tried first
  Elements smallest{int64_t{64} << 20};
  Elements step{int64_t{32} << 20};
  Bytes device_memory = GiB(32);
  Bytes host_memory = GiB(240);
  double device_ratio = 0.8 * 0.1;  // overall, of it during the warm-up
  double host_ratio = 0.8;
};

// What the rule makes of a list: of the best utilization the size tried first.
// The claim is one minus the utilization, chunks added for the ranks left out.
// REQUIRES: world, step > 0, smallest > 0; sizes >= 0 of a sum from 1 to
// kMaxRuleElements.
RuleResult ApplyPatrickStarRule(std::span<const RuleParam> params,
                                const PatrickStarRuleOptions& options);

}  // namespace castor

#endif  // CASTOR_CHUNK_RULES_PATRICKSTAR_RULE_H_
