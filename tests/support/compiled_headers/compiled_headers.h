// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The headers that most tests include. A test names its headers itself too: a
// build without the compiled header only takes longer.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "tools/workspace/compiled_headers/library_headers.h"
