# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What hooks into autograd: tensors that it saves, gradients that it gives, and calls that it compiles or computes again."""
