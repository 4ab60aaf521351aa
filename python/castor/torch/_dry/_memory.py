# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What a dry step says: bytes that the step holds besides parameters, over its operators and by module."""

from __future__ import annotations

import dataclasses

from castor.sizes import format_size

OUTSIDE = "(step)"  # the name in place of a module's for what the step itself computes
_SHOWN = 5  # modules in the text of a result


@dataclasses.dataclass(frozen=True, repr=False)
class StepMemory:
    """Bytes of one training step on the device besides parameters; buffers and the batch count, gradients of parameters are apart.

    Modules have their names of ``model.named_modules()``; ``"(step)"`` stands for what the step computes outside the model. Workspaces inside a kernel and
    the rounding of an allocator are not counted.
    """

    saved_bytes: int
    """What autograd holds for the backward when the backward begins, each storage once; the largest such moment of several backwards."""
    saved_by_module: dict[str, int]
    """The same bytes by the innermost module whose forward saved a storage first."""
    peak_bytes: int
    """The most bytes that are alive at one operator, its inputs and outputs included."""
    peak_module: str
    """The module of this operator; of an operator in the backward, the module whose forward made the operator's node."""
    peak_moment: str
    """``"forward"`` or ``"backward"``."""
    after_forward_bytes: int
    """What is alive at the first operator of the backward, the loss's own gradient included."""
    gradient_bytes: int
    """The most bytes of parameters' gradients as plain PyTorch keeps them; no other number counts a gradient once it is the parameter's."""
    logits_bytes: int
    """Outputs of the model that are alive when the backward begins: saved ones, and ones that the step still holds. Scalars do not count."""
    curve: list[tuple[str, str, int]]
    """Moment, module and bytes alive, for each operator in order."""
    flops: int
    """Floating-point operations of matrix products, convolutions and attention, as `torch.utils.flop_counter` counts them."""
    forward_flops_by_module: dict[str, int]
    """Those of the forward, by the innermost module that computes."""

    def __repr__(self) -> str:
        lines = [
            f"peak       {format_size(self.peak_bytes)}, in the {self.peak_moment} of {self.peak_module or 'the model itself'}",
            f"saved      {format_size(self.saved_bytes)}",
            f"forward    {format_size(self.after_forward_bytes)} alive at its end, {format_size(self.logits_bytes)} of the model's outputs",
            f"gradients  {format_size(self.gradient_bytes)}, apart",
        ]
        most = sorted(self.saved_by_module.items(), key=lambda item: (-item[1], item[0]))
        lines += [f"  {format_size(size)} saved by {name or 'the model itself'}" for name, size in most[:_SHOWN]]
        if len(most) > _SHOWN:
            lines.append(f"  {format_size(sum(size for _, size in most[_SHOWN:]))} saved by {len(most) - _SHOWN} others")
        return "\n".join(lines)
