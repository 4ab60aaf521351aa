# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""What tests are compiled with beyond the flags of all, and gtest_pch.h too."""

# Code for unwinding is a sixth of what compiling a test takes.
TEST_COPTS = ["-fno-exceptions"]

# As .bazelrc has them for sources under tests/.
TEST_OPTIMISATION = ["-O0", "-U_FORTIFY_SOURCE"]
