# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The version that chunk/base/version.h has; a test compares them."""

VERSION = "0.1.0"
