# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Small models of transformers' whose files have other names than the modules: five families, as their files on the hub are."""

from __future__ import annotations

from typing import Any

import torch

_SIZES: dict[str, Any] = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
                          "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 0}
_EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, "num_key_value_heads": 2}
_LATENT: dict[str, Any] = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8}

CONFIGS: dict[str, dict[str, Any]] = {
    "Mixtral": {**_EXPERTS, "num_local_experts": 4},
    "Qwen3Moe": {**_EXPERTS, "num_experts": 12, "moe_intermediate_size": 24, "head_dim": 8},  # 12 experts: 10 comes after 9, and not after 1
    "Olmoe": {**_EXPERTS, "num_experts": 4},
    "DeepseekV3": {**_EXPERTS, **_LATENT, "n_routed_experts": 4, "moe_intermediate_size": 24, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1},
    "GPTNeoX": {},
}
# A name of the family's files on the hub that the modules do not have.
IN_FILES = {
    "Mixtral": "model.layers.0.block_sparse_moe.experts.3.w1.weight",
    "Qwen3Moe": "model.layers.0.mlp.experts.11.gate_proj.weight",
    "Olmoe": "model.layers.1.mlp.experts.2.down_proj.weight",
    "DeepseekV3": "model.layers.1.mlp.experts.3.up_proj.weight",
    "GPTNeoX": "embed_out.weight",
}


def renamed(family: str, head: str = "ForCausalLM", **more: Any) -> Any:
    import transformers

    config = getattr(transformers, f"{family}Config")(**{**_SIZES, **CONFIGS[family], **more})
    return getattr(transformers, f"{family}{head}")(config)


def with_values(model: Any, seed: int = 7) -> Any:
    """A model with other values in all that a file holds, biases and buffers too."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for values in model.state_dict().values():
            values.normal_()
    return model
