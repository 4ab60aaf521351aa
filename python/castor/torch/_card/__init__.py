# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""One budget for a whole card: a step's own tensors and Castor's chunks under one number."""
