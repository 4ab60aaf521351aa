# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""``card=`` without a batch in transformers' Trainer and in Lightning: the trainer's first batch, and the same losses to the bit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import castor.torch as castor
from castor.errors import DoesNotFit, InvalidArgument
from castor.torch._card._first_batch import first_batch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from castor.hf import CastorTrainer  # noqa: E402


def tokens(index: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(0, 64, (32,), generator=torch.Generator().manual_seed(index))
    return {"input_ids": ids, "labels": ids}


class Tokens(torch.utils.data.Dataset[Any]):
    """Each item draws from every kind of generator, as augmentations do, and counts."""

    def __init__(self) -> None:
        self.own, self.of_numpy, self.of_torch, self.read = random.Random(1), numpy.random.default_rng(2), torch.Generator().manual_seed(3), 0
        self.order: list[int] = []

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        self.read += 1
        self.order.append(index)
        item = tokens(index)
        drawn = (random.random() + numpy.random.rand() + self.own.random() + self.of_numpy.random() + float(torch.rand(())) +
                 float(torch.rand((), generator=self.of_torch)))
        ids = item["input_ids"].clone()
        ids[0] = int(drawn * 10) % 64
        return {"input_ids": ids, "labels": ids}


class Stream(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return (tokens(index) for index in range(32))


class Once(torch.utils.data.IterableDataset[Any]):
    def __init__(self) -> None:
        self.lines = (tokens(index) for index in range(32))

    def __iter__(self) -> Iterator[Any]:
        return self.lines


class Collator:
    """Makes a generator at the first batch, as transformers' collators for masked language models do."""

    def __init__(self) -> None:
        self.generator: Any = None

    def __call__(self, items: list[Any]) -> Any:
        if self.generator is None:
            self.generator = torch.Generator().manual_seed(7)
        batch = {key: torch.stack([item[key] for item in items]) for key in items[0]}
        batch["input_ids"][:, 1] = torch.randint(0, 64, (len(items),), generator=self.generator)
        return batch


def gpt2() -> Any:
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=3, n_head=2, bos_token_id=0, eos_token_id=0))


def trainer_of(folder: Path, budgets: dict[str, Any], data: Any, **more: Any) -> Any:
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), report_to="none", use_cpu=True, disable_tqdm=True, max_steps=4, per_device_train_batch_size=4, logging_steps=1,
        save_strategy="no", learning_rate=1e-2, remove_unused_columns=False, **more)
    random.seed(5)
    numpy.random.seed(5)
    return CastorTrainer(model=gpt2(), args=arguments, train_dataset=data, data_collator=Collator(), castor={"host": "64MiB", **budgets})


def losses_of(trainer: Any) -> list[Any]:
    exact: list[Any] = []
    inner = trainer.compute_loss

    def compute_loss(*arguments: Any, **keywords: Any) -> Any:
        loss = inner(*arguments, **keywords)
        exact.append((loss[0] if isinstance(loss, tuple) else loss).item())
        return loss

    trainer.compute_loss = compute_loss
    trainer.train()
    return exact


@pytest.mark.parametrize(("data", "more"), [
    (Tokens, {}), (Stream, {}), (Tokens, {"gradient_accumulation_steps": 2}), (Tokens, {"bf16": True}), (Tokens, {"gradient_checkpointing": True}),
    (Tokens, {"dataloader_num_workers": 1, "dataloader_persistent_workers": True}),
])
def test_the_trainer_takes_its_first_batch_and_keeps_each_loss(data: Any, more: dict[str, Any], tmp_path: Path) -> None:
    plain = trainer_of(tmp_path, {"device": "64MiB"}, data(), **more)
    want = losses_of(plain)
    trainer = trainer_of(tmp_path, {"card": "2MiB"}, data(), **more)
    got = losses_of(trainer)
    choice = trainer.model._castor.opening.card
    assert got == want and len(set(want)) == len(want) == 4 * more.get("gradient_accumulation_steps", 1)
    assert 0 < choice.step_bytes < choice.card_bytes == 2 << 20
    if data is Tokens:
        assert trainer.train_dataset.read == plain.train_dataset.read and trainer.train_dataset.order == plain.train_dataset.order
    assert len(trainer.accelerator._dataloaders) == len(plain.accelerator._dataloaders)


def test_the_step_counts_the_trainers_mode_and_type(tmp_path: Path) -> None:
    batch = {key: torch.stack([tokens(index)[key] for index in range(4)]) for key in tokens(0)}

    def bytes_of_step(**more: Any) -> tuple[int, int, int]:
        """As `card=` has it; as a dry step has it where the model is trained, and where the model is evaluated."""
        trainer = trainer_of(tmp_path, {"card": "64MiB"}, Stream(), **more)
        model = trainer.model
        found = [castor.dry_step(model.train(mode), lambda model, batch: model(**batch).loss, batch, as_wrapped=True).peak_bytes for mode in (True, False)]
        trainer.create_optimizer()  # in the mode of evaluations, as from_pretrained leaves a model: dropout takes nothing there
        assert not any(module.training for module in model.modules())
        choice = model._castor.opening.card
        assert choice.recomputed == choice.moved == ()
        return choice.step_bytes, found[0], found[1]

    step, trained, evaluated = bytes_of_step()
    assert step == trained > evaluated
    step, trained, _ = bytes_of_step(bf16=True)
    assert step != trained, "autocast computes in another type"


def test_a_small_card_is_refused_before_the_first_step(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, {"card": "100KiB"}, Tokens())
    with pytest.raises(DoesNotFit, match="card='100.00 KiB' does not hold a step"):
        trainer.train()
    assert trainer.state.global_step == 0 and trainer.train_dataset.read == 0


def test_what_cannot_be_read_twice_or_called_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="which can be read once: give batch="):
        trainer_of(tmp_path, {"card": "2MiB"}, Once()).train()
    batch = {key: value[None] for key, value in tokens(0).items()}
    once = trainer_of(tmp_path, {"card": "2MiB", "batch": batch}, Once())
    assert len(losses_of(once)) == 4, "a batch of the script's is taken as before"
    trainer = trainer_of(tmp_path, {"card": "2MiB"}, Stream())
    trainer.model.forward = lambda input_ids: {"logits": input_ids}
    with pytest.raises(InvalidArgument, match=r"the keys input_ids, labels \(.*'labels'\): give step= and batch="):
        trainer.train()
    trainer = trainer_of(tmp_path, {"card": "2MiB"}, Stream())
    trainer.model.forward = lambda input_ids, labels: {"logits": input_ids}
    with pytest.raises(InvalidArgument, match="needs the loss of a step, and the model returned dict without one"):
        trainer.train()
    trainer = trainer_of(tmp_path, {"card": "2MiB"}, Stream())
    trainer.data_collator = lambda items: [item["input_ids"] for item in items]
    with pytest.raises(InvalidArgument, match="first training batch, which has the type list: give step= and batch="):
        trainer.train()
    with pytest.raises(InvalidArgument, match="the training data are empty"):
        first_batch(torch.utils.data.DataLoader([]))


class Loaders(torch.utils.data.DataLoader[Any]):
    """Of `Tokens` in an order of the loader's own generator."""

    def __init__(self) -> None:
        super().__init__(Tokens(), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(9), collate_fn=Collator())


def fitted(folder: Path, budgets: dict[str, Any], **more: Any) -> Any:
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")
    from castor.lightning import CastorStrategy

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.losses, self.made = gpt2().train(), [], 0

        def training_step(self, batch: Any, index: int) -> Any:
            loss = self.model(**batch).loss
            self.log("loss", loss)
            self.log_dict({"again": loss}, on_step=True)
            self.losses.append(loss.detach())
            return {"loss": loss}

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    torch.manual_seed(4)
    random.seed(5)
    numpy.random.seed(5)
    module, loader = Module(), Loaders()
    trainer = lightning.Trainer(accelerator="cpu", devices=1, max_steps=4, default_root_dir=folder, logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, strategy=CastorStrategy(host="64MiB", **budgets), **more)
    trainer.fit(module, loader)
    return module, loader


@pytest.mark.parametrize("more", [{}, {"accumulate_grad_batches": 2}, {"precision": "bf16-mixed"}])
def test_lightning_takes_its_first_batch_and_keeps_each_loss(more: dict[str, Any], tmp_path: Path) -> None:
    plain, read = fitted(tmp_path, {"device": "64MiB"}, **more)
    module, again = fitted(tmp_path, {"card": "2MiB"}, **more)
    assert torch.equal(torch.stack(module.losses), torch.stack(plain.losses)) and len(set(module.losses)) == 4 * more.get("accumulate_grad_batches", 1)
    assert again.dataset.order == read.dataset.order and again.dataset.read == read.dataset.read
    choice = module._castor.opening.card
    assert 0 < choice.step_bytes < choice.card_bytes == 2 << 20
    assert "log" not in vars(module), "logging is the module's own again"


def test_lightning_refuses_a_small_card_and_a_module_that_optimizes_by_hand(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")
    from castor.lightning import CastorStrategy

    with pytest.raises(DoesNotFit, match="card='100.00 KiB' does not hold a step"):
        fitted(tmp_path, {"card": "100KiB"})

    class ByHand(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.automatic_optimization = torch.nn.Linear(4, 4), False

        def training_step(self, batch: Any, index: int) -> None:
            raise AssertionError("no step runs")

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

    trainer = lightning.Trainer(accelerator="cpu", devices=1, max_steps=1, default_root_dir=tmp_path, logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, strategy=CastorStrategy(card="2MiB"))
    with pytest.raises(InvalidArgument, match="optimizes by hand in training_step: give step= and batch="):
        trainer.fit(ByHand(), torch.utils.data.DataLoader(torch.randn(4, 4)))
