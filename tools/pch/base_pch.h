// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The same and the vocabulary that every folder shares, for all that is built
// on it.

#include "chunk/base/check.h"
#include "chunk/base/clock.h"
#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "tools/pch/std_pch.h"

#ifdef CASTOR_SHARES_INSTANCES
#include "tools/pch/instances.h"
#endif
