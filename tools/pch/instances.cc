// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What instances.h says is instantiated elsewhere is so here.

#define CASTOR_INSTANCE template
#define CASTOR_SHARES_INSTANCES

#include "tools/pch/base_pch.h"
