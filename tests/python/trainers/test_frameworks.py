# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Wrapped models in trainers that know nothing of Castor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import castor.torch as castor
from models import gpt2



class Tokens(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = torch.randint(0, 64, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": ids}


def trained_by_transformers(folder: Path, wrap: bool, workers: int) -> tuple[list[Any], dict[str, torch.Tensor]]:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = gpt2(resid_pdrop=0, attn_pdrop=0, embd_pdrop=0)
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if wrap:
        model, optimizer = castor.wrap(model, optimizer, device="600KiB", host="64MiB", chunk="16KiB")
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=6, per_device_train_batch_size=4, gradient_accumulation_steps=2, logging_steps=1, report_to=[],
        use_cpu=True, max_grad_norm=0.5, save_strategy="no", eval_strategy="steps", eval_steps=3, disable_tqdm=True,
        dataloader_num_workers=workers,
    )
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=Tokens(), eval_dataset=Tokens(), optimizers=(optimizer, scheduler)
    )
    trainer.train()
    trainer.save_model(str(folder / "model"))
    seen = [(log.get("loss", log.get("eval_loss")), log.get("grad_norm")) for log in trainer.state.log_history[:-1]]
    return seen, transformers.GPT2LMHeadModel.from_pretrained(folder / "model").state_dict()


def test_the_trainer_of_transformers_trains_clips_evaluates_and_saves(tmp_path: Path) -> None:
    want, plain = trained_by_transformers(tmp_path / "plain", False, 0)
    # Loader processes are forked in the middle of the training.
    got, weights = trained_by_transformers(tmp_path / "castor", True, 2)
    for mine, theirs in zip(got, want, strict=True):
        assert mine[0] == pytest.approx(theirs[0], rel=1e-5)
        assert (mine[1] is None) == (theirs[1] is None)
        if mine[1] is not None:
            assert float(mine[1]) == pytest.approx(float(theirs[1]), rel=1e-4)
    for name, values in plain.items():
        torch.testing.assert_close(weights[name], values, rtol=1e-4, atol=1e-6, msg=name)


def trained_by_lightning(folder: Path, strategy: Any, epochs: int, resume: Any = None) -> Any:
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 3))
            self.seen: list[float] = []

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = torch.nn.functional.cross_entropy(self.inner(batch[0]), batch[1])
            self.seen.append(loss.item())
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("right", (self.inner(batch[0]).argmax(1) == batch[1]).float().mean())

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
            return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)}

    torch.manual_seed(0)
    module = Module()
    x = torch.randn(48, 8, generator=torch.Generator().manual_seed(1))
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x[:, :3].argmax(1)), batch_size=8)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, strategy=strategy, max_epochs=epochs, default_root_dir=folder, logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, gradient_clip_val=0.3, accumulate_grad_batches=2, num_sanity_val_steps=0, use_distributed_sampler=False,
    )
    trainer.fit(module, data, data, ckpt_path=resume)
    trainer.save_checkpoint(folder / "last.ckpt")
    return module.seen, float(trainer.callback_metrics["right"]), folder / "last.ckpt"


@pytest.mark.parametrize("by_name", [False, True])
def test_lightning_trains_clips_validates_and_resumes(tmp_path: Path, by_name: bool) -> None:
    pytest.importorskip("lightning")
    from castor.lightning import CastorStrategy

    want, right, _ = trained_by_lightning(tmp_path / "plain", "auto", 4)

    def strategy() -> Any:
        return "castor_stage_3" if by_name else CastorStrategy(device="64MiB", host="64MiB", stage=2)

    got, mine, _ = trained_by_lightning(tmp_path / "castor", strategy(), 4)
    assert got == pytest.approx(want, rel=1e-5)
    assert mine == pytest.approx(right)
    first, _, checkpoint = trained_by_lightning(tmp_path / "half", strategy(), 2)
    rest, mine, _ = trained_by_lightning(tmp_path / "rest", strategy(), 4, checkpoint)
    assert first + rest == pytest.approx(want, rel=1e-5)
    assert mine == pytest.approx(right)


@pytest.mark.parametrize("by_name", [False, True])
def test_lightning_loads_on_one_device_in_the_order_of_the_script(by_name: bool) -> None:
    lightning = pytest.importorskip("lightning")
    from castor.lightning import CastorStrategy

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.seen = torch.nn.Linear(1, 1), []

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            self.seen += batch[:, 0].tolist()
            return self.layer(batch).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

    module = Module()
    strategy = "castor_stage_3" if by_name else CastorStrategy(device="64MiB", host="64MiB")
    trainer = lightning.Trainer(accelerator="cpu", devices=1, strategy=strategy, max_epochs=1, logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(module, torch.utils.data.DataLoader(torch.arange(8.0).reshape(8, 1), batch_size=2, shuffle=False))
    assert module.seen == list(range(8))
    assert len(trainer.optimizers) == 1


def test_adapters_of_peft_are_trained_saved_and_generate(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")

    def trained(wrap: Any) -> tuple[list[float], Any]:
        torch.manual_seed(0)
        lora = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["c_attn"], fan_in_fan_out=True, init_lora_weights=False)
        model: Any = peft.get_peft_model(gpt2(resid_pdrop=0, attn_pdrop=0, embd_pdrop=0), lora)
        optimizer: Any = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
        if wrap is not None:
            model, optimizer = castor.wrap(model, optimizer, **wrap)
        losses = []
        for step in range(4):
            ids = torch.randint(0, 64, (2, 16), generator=torch.Generator().manual_seed(step))
            loss = model(input_ids=ids, labels=ids).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, model

    want, _ = trained(None)
    got, model = trained({"device": "600KiB", "host": "64MiB", "chunk": "16KiB", "config": {"poison": True}})
    assert got == pytest.approx(want, rel=1e-5)
    model.save_pretrained(tmp_path, state_dict=model.state_dict())
    prompt = torch.zeros(1, 2, dtype=torch.long)
    words = model.generate(input_ids=prompt, max_new_tokens=4, do_sample=False)
    torch.manual_seed(0)
    again = peft.PeftModel.from_pretrained(gpt2(resid_pdrop=0, attn_pdrop=0, embd_pdrop=0), tmp_path).eval()
    assert torch.equal(again.generate(input_ids=prompt, max_new_tokens=4, do_sample=False), words)


def by_accelerate(wrap: Any) -> list[float]:
    from accelerate import Accelerator

    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-2)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    if wrap is not None:
        model, optimizer = castor.wrap(model, optimizer, **wrap)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    data = torch.utils.data.DataLoader(torch.randn(32, 8, generator=torch.Generator().manual_seed(1)), batch_size=4)
    model, optimizer, data, scheduler = accelerator.prepare(model, optimizer, data, scheduler)
    losses = []
    for x in data:
        with accelerator.accumulate(model):
            loss = model(x).pow(2).mean()
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    assert set(accelerator.get_state_dict(model)) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    return losses


def test_accelerate_prepares_what_is_wrapped() -> None:
    pytest.importorskip("accelerate")
    want = by_accelerate(None)
    assert by_accelerate({"device": "64MiB", "host": "64MiB"}) == pytest.approx(want, rel=1e-5)
