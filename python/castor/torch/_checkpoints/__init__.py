# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The values of a whole model: read and written, saved and loaded, asleep and awake."""
