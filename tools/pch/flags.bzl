# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""Flags that a source and the header compiled for it share."""

# Not optimised; what many sources instantiate is compiled once (instances.h).
PLAIN_COPTS = [
    "-O0",
    "-DCASTOR_SHARES_INSTANCES",
]
