// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_LAYOUT_FILE_H_
#define CASTOR_CHUNK_LAYOUT_FILE_H_

// A layout as text, to be found once and trained with as often as one likes. A
// parameter, a chunk and a group have a line each, so that grep and diff say
// something:
//
//   {
//   "schema": "castor.layout/1",
//   "world": 2,
//   "align_elements": 64,
//   "quantum_elements": 256,
//   "groups": [
//   {"dtype": "F32", "trainable": true, "chunk_elements": 512}
//   ],
//   "chunks": [
//   {"group": 0, "elements": 512, "oversize": false}
//   ],
//   "parameters": [
//   {"name": "w", "shape": [4, 100], "dtype": "F32", "trainable": true,
//    "chunk": 0, "offset": 0},                        (in one line)
//   {"name": "e", "shape": [0], "dtype": "F32", "trainable": true,
//    "chunk": null, "offset": null}
//   ]
//   }
//
// Groups, chunks and parameters are numbered from 0 in the order in which they
// stand; parameters stand in initialization order. Chunks of one dtype and kind
// (trainable or frozen) are a group and have one size; oversize chunks belong
// to the group whose parameters they hold. Everything is counted in elements of
// the group's dtype. Pure functions, thread-safe.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/chunk_layout.h"
#include "chunk/param_spec.h"

namespace castor {

inline constexpr char kLayoutSchema[] = "castor.layout/1";

// A longer text is refused.
inline constexpr uint64_t kMaxLayoutBytes = uint64_t{256} << 20;

struct LayoutFile {
  std::vector<ParamSpec> params;  // in initialization order
  ChunkLayout layout;             // of `params`
};

// The same layout gives the same text, which ParseLayout reads back as it was.
// InvalidArgument, naming the parameter, where a name is empty, not UTF-8 or
// given twice. REQUIRES: `layout` was packed from `params`.
Result<std::string> WriteLayout(std::span<const ParamSpec> params,
                                const ChunkLayout& layout);

// Malformed, naming the place, for every text that is no layout. Wrong are
// another schema; keys that are unknown, missing or given twice; numbers out of
// their limits. Parameters may not overlap, be misaligned or out of order, nor
// lie outside their chunk or differ from its type. Chunks may not be empty, nor
// of another size than their group says. Memory stays in proportion to the
// text.
Result<LayoutFile> ParseLayout(std::string_view text);

// Whether a layout that was made before is one of the model at hand:
// InvalidArgument where `file` is for another number of ranks than `world`, or
// its parameters are not `params` in their order, with the names, shapes,
// dtypes and kinds (trainable or frozen) that those have. The message names the
// first difference and what to do.
Status CheckLayoutFits(const LayoutFile& file,
                       std::span<const ParamSpec> params, int world);

}  // namespace castor

#endif  // CASTOR_CHUNK_LAYOUT_FILE_H_
