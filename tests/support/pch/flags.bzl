# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""What tests are compiled with beyond the flags of all, and gtest_pch.h too."""

TEST_COPTS = [
    # Code for unwinding is a sixth of what compiling a test takes.
    "-fno-exceptions",
    # Its checks are two fifths of it, in the configuration that has them. What is tested keeps them.
    "-fno-sanitize=undefined",
]

# As .bazelrc has them for sources under tests/.
TEST_OPTIMISATION = ["-O0", "-U_FORTIFY_SOURCE"]
