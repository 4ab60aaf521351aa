// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#define CASTOR_INSTANCE template

#include "tests/support/pch/gtest_pch.h"
