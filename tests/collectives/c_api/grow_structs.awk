# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# castor.h, or a file that includes what stands beside it, as of a later version: each struct that begins with its size has one more
# member.

{ gsub(/"collectives\/c_api\//, "\"tests/collectives/c_api/grown/") }
/^ *size_t struct_size;/ { grows = 1 }
/^} castor_[a-z_]*;/ && grows { print "  int64_t added_later;"; grows = 0 }
{ print }
