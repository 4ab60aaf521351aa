# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A first script: a plain training loop of PyTorch, and the two lines that put all its states under budgets.

    python first_script.py
"""

import torch
from torch import nn

import castor.torch as castor

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(d_model=256, nhead=4, dropout=0.0, batch_first=True)
model = nn.TransformerEncoder(layer, num_layers=12)
x = torch.randn(2, 32, 256)

# [readme wrap]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer = castor.wrap(model, optimizer, device="48MiB", host="64MiB", nvme=".")

for step in range(20):
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
# [end]
print(f"loss {loss.item():.4f}")
print(model.memory_summary())
