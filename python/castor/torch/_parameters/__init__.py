# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Parameters whose values live in chunks: where they begin, what serves them outside their modules, and what is refused."""
