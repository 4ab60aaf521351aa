// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What most tests include. They include what they use all the same: without
// this header they only take longer.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
