// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_SEARCH_SEARCH_CERTIFICATE_H_
#define CASTOR_CHUNK_SEARCH_SEARCH_CERTIFICATE_H_

// The proof that no allowed chunk size wastes less: intervals that cover
// [min, max] without a gap, each with one set of oversize parameters. Counts
// never rise with C inside an interval (family_pieces.h). So each size of an
// interval allocates at least the left end times the ordinary chunks at the
// right end, plus the oversize chunks. Checking takes one packing per interval
// and no search. Values and pure functions, thread-safe.

#include <cstdint>
#include <span>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/layout/size_family.h"

namespace castor {

struct CertificateInterval {
  Elements from;  // both ends allowed sizes
  Elements to;
  int64_t chunks = 0;  // ordinary chunks when packed at `to`
  Elements oversize;   // elements allocated by oversize chunks
};

struct SearchCertificate {
  // The allowed sizes: multiples of the family's quantum in [min, max].
  Elements min_size;
  Elements max_size;
  Elements lower_bound_waste;  // no allowed size wastes less
  bool optimal = false;        // the bound equals what the best one wastes
  std::vector<CertificateInterval> intervals;
};

// Verifies `certificate` for the groups of a family, independently of the
// search. Malformed with the first thing that does not hold: a gap, a size that
// the family does not allow, a wrong count, or two oversize sets in one
// interval. Malformed, too, where the bound is not the least of the intervals',
// or `optimal` does not say whether `best_waste` equals the bound. REQUIRES: a
// family as SizeFamilies makes it with these options.
Status VerifyCertificate(const SearchCertificate& certificate,
                         const SizeFamily& family, const PackOptions& options,
                         Elements best_waste);

// The same of one group of these sizes, none of which stays whole. REQUIRES:
// sizes >= 0.
Status VerifyCertificate(const SearchCertificate& certificate,
                         std::span<const Elements> sizes,
                         const PackOptions& options, Elements best_waste);

}  // namespace castor

#endif  // CASTOR_CHUNK_SEARCH_SEARCH_CERTIFICATE_H_
