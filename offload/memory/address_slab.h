// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_MEMORY_ADDRESS_SLAB_H_
#define CASTOR_OFFLOAD_MEMORY_ADDRESS_SLAB_H_

// Slabs of addresses alone, for worlds without bytes: no memory is promised,
// and a page is there only once somebody touches it. Part of the slabs
// (slab.h).

#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "offload/memory/slab.h"

namespace castor {

// Page aligned, and zero where it is read. Unavailable where the system has no
// such addresses left. REQUIRES: size >= 0.
Result<Slab> MakeAddressSlab(Tier tier, Bytes size);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_MEMORY_ADDRESS_SLAB_H_
