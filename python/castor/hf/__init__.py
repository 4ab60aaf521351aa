# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Castor in transformers' Trainer and all trainers made of it (TRL, sentence-transformers), on one rank or on several.

    from castor.hf import CastorTrainer, with_castor
    trainer = CastorTrainer(model=model, args=args, train_dataset=data, castor={"device": "8GiB", "nvme": "/scratch"})
    trainer = with_castor(SFTTrainer)(model=model, args=args, train_dataset=data, castor={"device": "8GiB"})
"""

from castor.hf._arguments import CastorArguments
from castor.hf._trainer import CastorTrainer, with_castor

__all__ = ["CastorArguments", "CastorTrainer", "with_castor"]
