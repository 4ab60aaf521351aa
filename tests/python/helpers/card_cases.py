# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Models with a step each, and what a run of theirs takes of the CPU's memory beside Castor's."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, Optional

import torch
import transformers
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode


class Alive(TorchDispatchMode):
    """Bytes of the tensors that operators make, until their storages die. Chunks' memory is not torch's, and does not count."""

    def __init__(self, *given: torch.Tensor) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: dict[int, weakref.ref[Any]] = {}
        for tensor in given:
            self._meet(tensor)

    def _meet(self, tensor: torch.Tensor) -> None:
        memory = tensor.untyped_storage()
        known = self._known.get(memory._cdata)
        if (known is not None and known() is not None) or not memory.resizable():
            return
        size = memory.nbytes()
        self._known[memory._cdata] = weakref.ref(memory)
        self.now += size
        weakref.finalize(memory, self._died, size)
        self.peak = max(self.peak, self.now)

    def _died(self, size: int) -> None:
        self.now -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Optional[dict[str, Any]] = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._schema.returns and all(one.alias_info is None for one in func._schema.returns):
            for tensor in tensors_in(result):
                self._meet(tensor)
        return result


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part)


class Block(nn.Module):
    """A script's own, with dropout and a tensor in a keyword."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.drop, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Dropout(0.1), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.drop(torch.nn.functional.gelu(self.up(self.norm(x))))) * scale


class Plain(nn.Module):
    """Blocks of no library."""

    def __init__(self, width: int = 64, layers: int = 5) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.full((), 0.5)
        for block in self.blocks:
            x = block(x, scale=scale)
        return self.head(x)


def llama() -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=128, intermediate_size=344, num_hidden_layers=6, num_attention_heads=4, vocab_size=400, pad_token_id=0))


def mixtral() -> Any:
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, vocab_size=400, num_local_experts=4, pad_token_id=0))


def gpt2() -> Any:
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=5, n_embd=64, n_head=2, vocab_size=400, n_positions=512, bos_token_id=0, eos_token_id=0))


def t5() -> Any:
    return transformers.T5ForConditionalGeneration(transformers.T5Config(
        d_model=64, d_ff=128, num_layers=3, num_heads=4, d_kv=16, vocab_size=400, decoder_start_token_id=0))


MODELS: dict[str, Callable[[], Any]] = {"llama": llama, "mixtral": mixtral, "gpt2": gpt2, "t5": t5, "plain": Plain}


def batch_for(name: str, sequences: int, tokens: int = 96, seed: int = 1) -> Any:
    drawn = torch.Generator().manual_seed(seed)
    if name == "plain":
        return torch.randn(sequences, tokens, 64, generator=drawn)
    ids = torch.randint(1, 400, (sequences, tokens), generator=drawn)
    return {"input_ids": ids, "labels": ids}


def step(model: Any, batch: Any) -> torch.Tensor:
    if isinstance(batch, torch.Tensor):
        return model(batch.to(model.head.weight.dtype)).float().pow(2).mean()
    return model(**batch).loss


def made(name: str, dtype: torch.dtype) -> tuple[Any, torch.optim.Optimizer]:
    torch.manual_seed(7)
    model = MODELS[name]().to(dtype).train()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def losses(model: Any, optimizer: Any, batches: list[Any]) -> list[float]:
    torch.manual_seed(11)
    return losses_from(model, optimizer, batches)


def losses_from(model: Any, optimizer: Any, batches: list[Any]) -> list[float]:
    """With the random states that there are."""
    told = []
    for batch in batches:
        loss = step(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        told.append(float(loss.detach()))
    return told
