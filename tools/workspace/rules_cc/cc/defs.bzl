# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""The C++ rules under the names that newer versions of Bazel load; Bazel 4.2.3 has them built in.

Castor uses the first four; Bazel's own toolchain packages load the others.
"""

cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_test = native.cc_test

cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
