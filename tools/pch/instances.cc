// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#define CASTOR_INSTANCE template

#include "tools/pch/base_pch.h"
#include "tools/pch/instances.h"
