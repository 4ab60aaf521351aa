# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Castor as a strategy of Lightning's Trainer and of Fabric.

    from castor.lightning import CastorStrategy
    trainer = Trainer(accelerator="cpu", devices=2, strategy=CastorStrategy(device="8GiB", nvme="/scratch"))

In a file for LightningCLI:

    strategy: {class_path: castor.lightning.CastorStrategy, init_args: {device: 8GiB, dtype: bfloat16}}

In a script with Fabric, where ``fabric.setup(model, optimizer)`` wraps both:

    fabric = Fabric(accelerator="cpu", devices=2, strategy=CastorFabricStrategy(device="8GiB"))

``Trainer(callbacks=[CastorMonitor()])`` logs what Castor did.

Importing this package registers ``castor_stage_1`` to ``castor_stage_3`` for both: ``Trainer(strategy="castor_stage_3")``.
"""

from castor.lightning._fabric import CastorFabricStrategy
from castor.lightning._monitor import CastorMonitor
from castor.lightning._strategy import CastorStrategy

__all__ = ["CastorFabricStrategy", "CastorMonitor", "CastorStrategy"]
