# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What a training step needs of a device, known before the step runs: its operators on tensors without memory, counted."""
