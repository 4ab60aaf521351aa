// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/base/quantity_text.h"
#include "chunk/base/units_text.h"
