# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What a model trains on: the device, the ranks and the memory of each."""
