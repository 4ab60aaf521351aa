# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""`castor.wrap(..., card=...)`: a whole step under one number, with the losses of the plain script."""

from __future__ import annotations

import copy
import gc
import random
import re
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from card_cases import MODELS, Alive, batch_for, losses, losses_from, made, step, tensors_in
from ranks import run

import castor.torch as castor
from castor.errors import DoesNotFit, FailedPrecondition, InvalidArgument
from castor.sizes import parse_size
from castor.torch._card import _sharing
from castor.torch._card._blocks import blocks_of, recompute
from castor.torch._card._rates import Rates

TYPES = [torch.float32, torch.bfloat16]
HOST = "1GiB"


def need(model: Any, batch: Any) -> int:
    """Bytes of a plain step: parameters, gradients, masters, moments, and the step's own tensors."""
    return 16 * sum(p.numel() for p in model.parameters()) + castor.dry_step(model, step, batch).peak_bytes


def peak_of(model: Any, optimizer: Any, batches: list[Any]) -> tuple[list[float], int]:
    """The losses, and the most that torch's tensors and Castor's chunks took."""
    given = [*model.buffers(), *(t for t in tensors_in([list(b.values()) if isinstance(b, dict) else b for b in batches[:1]]))]
    with Alive(*given) as alive:
        told = losses(model, optimizer, batches)
    return told, alive.peak + model._castor.engine.stats()["device_peak_bytes"]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", MODELS)
def test_a_step_stays_under_the_card_and_has_the_losses_of_the_plain_script(name: str, dtype: torch.dtype) -> None:
    batch = batch_for(name, 8)
    expected = losses(*castor.wrap(*made(name, dtype)), [batch] * 4)
    if dtype is torch.float32:  # in bfloat16 a plain AdamW has no masters
        assert expected == pytest.approx(losses(*made(name, dtype), [batch] * 4), rel=1e-6)
    model, optimizer = made(name, dtype)
    card = int(need(model, batch) * 0.4)
    model, optimizer = castor.wrap(model, optimizer, card=card, step=step, batch=batch, host=HOST)
    choice = model._castor.opening.card
    assert (choice.recomputed or choice.moved) and choice.step_bytes + choice.device_bytes == choice.card_bytes == card
    assert str(choice) in model.memory_summary()
    told, peak = peak_of(model, optimizer, [batch] * 4)
    assert told == expected
    assert peak <= card


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", MODELS)
def test_activations_move_where_the_link_is_cheaper_and_the_dry_step_tells_their_bytes(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = batch_for(name, 8, 256)
    expected = losses(*castor.wrap(*made(name, dtype)), [batch] * 3)
    for rates, kinds in ((Rates(1e8, 1e12), {"moved"}), (Rates(1e14, 1e6), {"recomputed"})):
        monkeypatch.setattr(_sharing, "measured", lambda device, dtype: rates)  # noqa: B023
        model, optimizer = made(name, dtype)
        card = int(need(model, batch) * 0.5)
        model, optimizer = castor.wrap(model, optimizer, card=card, step=step, batch=batch, host=HOST)
        choice = model._castor.opening.card
        assert {kind for kind in ("moved", "recomputed") if getattr(choice, kind)} == kinds
        with Alive(*model.buffers(), *(batch.values() if isinstance(batch, dict) else [batch])) as alive:
            told = losses(model, optimizer, [batch])
        # Gradients that stay with torch until the update count in the budget of chunks.
        borrowed = sum(p.numel() * p.itemsize for p in model.parameters()) if model._castor.residents.active else 0
        assert choice.step_bytes <= alive.peak <= choice.step_bytes + borrowed
        assert told + losses_from(model, optimizer, [batch] * 2) == expected


@pytest.mark.parametrize("name", MODELS)
def test_where_all_fits_nothing_is_computed_again(name: str) -> None:
    model, optimizer = made(name, torch.float32)
    batch = batch_for(name, 2)
    model, _ = castor.wrap(model, optimizer, card=4 * need(model, batch) + (64 << 20), step=step, batch=batch, host=HOST)
    assert not model._castor.opening.card.recomputed


def test_a_smaller_card_keeps_fewer_activations() -> None:
    chosen = []
    batch = batch_for("llama", 8)
    for share in (0.8, 0.5, 0.3, 0.2):
        model, optimizer = made("llama", torch.bfloat16)
        whole = need(model, batch)
        model, _ = castor.wrap(model, optimizer, card=int(whole * share), step=step, batch=batch, host=HOST)
        chosen.append(len(model._castor.opening.card.recomputed) + len(model._castor.opening.card.moved))
    assert chosen == sorted(chosen) and chosen[0] < chosen[-1]


def changes_of(error: Exception) -> list[str]:
    return str(error).split("Smallest changes that would do: ")[1].split("; ")


@pytest.mark.parametrize("name", ["llama", "plain"])
def test_a_refusal_comes_before_the_first_step_and_each_of_its_changes_is_enough(name: str) -> None:
    batch = batch_for(name, 8)
    model, optimizer = made(name, torch.float32)
    weights = copy.deepcopy(model.state_dict())
    with pytest.raises(DoesNotFit, match="whose own tensors take") as refused:
        castor.wrap(model, optimizer, card="3MiB", step=step, batch=batch, host=HOST)
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in weights.items())
    assert not any("forward" in vars(module) or vars(module).get("gradient_checkpointing") for module in model.modules()), "the model is as it was"
    changes = changes_of(refused.value)
    tried = 0
    for change in changes:
        model, optimizer = made(name, torch.float32)
        asked: dict[str, Any] = {"card": "3MiB", "batch": batch, "host": HOST}
        if found := re.fullmatch(r"(card|host)='(.*)'", change):
            asked[found[1]] = found[2]
        elif found := re.fullmatch(r"a batch of (\d+) of these 8 sequences or samples", change):
            asked["batch"] = batch_for(name, int(found[1]))
        elif found := re.fullmatch(r"a batch of (\d+) of these 96 tokens", change):
            asked["batch"] = batch_for(name, 8, int(found[1]))
        else:
            continue
        tried += 1
        model, optimizer = castor.wrap(model, optimizer, step=step, **asked)
        _, peak = peak_of(model, optimizer, [asked["batch"]] * 2)
        assert peak <= parse_size(asked["card"], "card"), change
    assert tried >= 2, changes


def test_more_of_the_host_is_a_change_where_states_have_no_room() -> None:
    model, optimizer = made("llama", torch.float32)
    batch = batch_for("llama", 2)
    with pytest.raises(DoesNotFit) as refused:
        castor.wrap(model, optimizer, card="8MiB", step=step, batch=batch, host="4MiB")
    host = next(change for change in changes_of(refused.value) if change.startswith("host="))
    model, optimizer = made("llama", torch.float32)
    castor.wrap(model, optimizer, card="8MiB", step=step, batch=batch, host=host.split("'")[1])


def test_drawn_models_and_cards_end_before_a_step_or_stay_under_the_card() -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    drawn = random.Random(seed)
    for _ in range(8):
        name, dtype = drawn.choice(list(MODELS)), drawn.choice(TYPES)
        batch = batch_for(name, drawn.randint(1, 8), drawn.choice((33, 64, 96)))
        model, optimizer = made(name, dtype)
        card = int(need(model, batch) * drawn.uniform(0.1, 1.2))
        try:
            model, optimizer = castor.wrap(model, optimizer, card=card, step=step, batch=batch, host=HOST, max_norm=drawn.choice((0.0, 1.0)))
        except DoesNotFit:
            continue
        _, peak = peak_of(model, optimizer, [batch] * 3)
        assert peak <= card, (name, dtype, card)


@pytest.mark.parametrize("what", ["card", "card_alone"])
def test_two_ranks_share_one_choice(what: str, tmp_path: Path) -> None:
    found = run(what, 2, tmp_path)
    assert found["chosen"][0] == found["chosen"][1] and found["chosen"][0]
    assert found["losses"] == pytest.approx(found["plain"], rel=1e-5)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", MODELS)
def test_without_a_batch_the_first_training_forward_shares_the_card(name: str, dtype: torch.dtype) -> None:
    """What comes before takes no choice. Losses are the same bits, and later steps stay under the card."""
    batch = batch_for(name, 8)
    expected = losses(*castor.wrap(*made(name, dtype)), [batch] * 4)
    model, optimizer = made(name, dtype)
    card = int(need(model, batch) * 0.4)
    model, optimizer = castor.wrap(model, optimizer, card=card, host=HOST)
    model.eval()
    with torch.no_grad():
        step(model, batch)
    model.train()
    assert model._castor.opening.card is None
    torch.manual_seed(8)
    told = losses(model, optimizer, [batch])
    choice = model._castor.opening.card
    assert (choice.recomputed or choice.moved) and choice.step_bytes + choice.device_bytes == choice.card_bytes == card
    assert str(choice) in model.memory_summary()
    given = [*model.buffers(), *(batch.values() if isinstance(batch, dict) else [])]  # what the forward is given
    with Alive(*given) as alive:
        told += losses_from(model, optimizer, [batch] * 3)
    assert told == expected
    # Gradients that stay with torch until the update count in the budget of chunks; the script keeps losses.
    borrowed = sum(p.numel() * p.itemsize for p in model.parameters()) if model._castor.residents.active else 0
    assert alive.peak <= choice.step_bytes + borrowed + 64
    assert model._castor.engine.stats()["device_budget_bytes"] <= choice.device_bytes


def test_without_a_batch_a_card_that_is_too_small_is_refused_before_the_forward() -> None:
    model, optimizer = made("gpt2", torch.float32)
    batch = batch_for("gpt2", 8)
    model, optimizer = castor.wrap(model, optimizer, card="6MiB", host=HOST)
    seen: list[Any] = []
    model.transformer.wte.register_forward_pre_hook(lambda *_: seen.append(1))
    for _ in range(2):
        with pytest.raises(DoesNotFit, match="does not hold a step, whose own tensors take .*Smallest changes that would do"):
            model(**batch)
    assert not seen and not any(hasattr(layer, "_gradient_checkpointing_func") for layer in model.transformer.h)
    small = {key: values[:1, :16] for key, values in batch.items()}
    assert losses(model, optimizer, [small] * 2) == losses(*castor.wrap(*made("gpt2", torch.float32)), [small] * 2)


def test_without_a_batch_a_model_without_a_loss_counts_a_cross_entropy() -> None:
    """Logits in float32, their log-softmax and the gradient of both: the loss of the script, outside the model."""
    words, width = 3000, 32

    def script() -> tuple[Any, Any]:
        torch.manual_seed(3)
        model: Any = torch.nn.Sequential(torch.nn.Embedding(words, width), torch.nn.Linear(width, words, bias=False))
        return model, torch.optim.AdamW(model.parameters())

    def trained(model: Any, optimizer: Any) -> list[float]:
        told = []
        for seed in range(3):
            ids = torch.randint(words, (4, 32), generator=torch.Generator().manual_seed(seed))
            loss = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            told.append(loss.item())
        return told

    model, optimizer = castor.wrap(*script(), card="24MiB", host=HOST)
    assert trained(model, optimizer) == trained(*castor.wrap(*script()))
    logits = 4 * 4 * 32 * words
    assert model._castor.opening.card.step_bytes >= 3 * logits


@pytest.mark.parametrize("name", ["llama", "plain"])
def test_without_a_batch_larger_steps_share_the_card_anew(name: str) -> None:
    """Between steps, before the larger forward. A card that does not hold the larger step refuses the forward, and smaller ones go on."""
    small, large, huge = batch_for(name, 8, 32), batch_for(name, 8, 96), batch_for(name, 512, 96)
    expected = losses(*castor.wrap(*made(name, torch.float32)), [small, large, small, large])
    model, optimizer = made(name, torch.float32)
    card = int(need(model, large) * 0.4)
    model, optimizer = castor.wrap(model, optimizer, card=card, host=HOST)
    told = losses(model, optimizer, [small])
    first = model._castor.opening.card
    told += losses_from(model, optimizer, [large])
    second = model._castor.opening.card
    assert second is not first and second.device_bytes + second.step_bytes == card
    with pytest.raises(DoesNotFit, match="does not hold a step"):
        step(model, huge)
    assert model._castor.opening.card is second
    with Alive(*model.buffers(), *(large.values() if isinstance(large, dict) else [])) as alive:
        told += losses_from(model, optimizer, [small, large])
    assert told == expected
    borrowed = sum(p.numel() * p.itemsize for p in model.parameters()) if model._castor.residents.active else 0
    assert alive.peak <= second.step_bytes + borrowed + 64
    assert model._castor.opening.card is second


def test_a_model_that_watches_its_forwards_is_not_kept() -> None:
    model, optimizer = castor.wrap(*made("llama", torch.float32), card="16MiB", host=HOST)
    losses(model, optimizer, [batch_for("llama", 2)])
    gone = weakref.ref(model)
    del model, optimizer
    gc.collect()
    assert gone() is None


def test_a_card_that_is_full_all_the_same_names_the_step_it_was_shared_for(caplog: pytest.LogCaptureFixture) -> None:
    model, optimizer = castor.wrap(*made("llama", torch.float32), card="32MiB", host=HOST)
    losses(model, optimizer, [batch_for("llama", 2)])
    with caplog.at_level("WARNING", "castor"):
        model._castor.forwards.run_out()  # as torch's allocator of a GPU tells
    (said,) = [record.getMessage() for record in caplog.records]
    assert re.search(r"card='32.00 MiB' was shared for a batch of 2 x 96, whose step peaks at \d.* in the (for|back)ward of .*: give castor.wrap batch=", said), said


def test_without_a_batch_what_cannot_be_told_is_refused() -> None:
    model, optimizer = castor.wrap(*made("plain", torch.float32), card="16MiB", host=HOST)
    model.blocks[0](torch.randn(2, 4, 64), scale=torch.ones(())).sum().backward()
    with pytest.raises(FailedPrecondition, match="waits for a training forward of the model itself"):
        optimizer.step()
    with pytest.raises(InvalidArgument, match="step= is a function of the model and of a batch"):
        castor.wrap(*made("plain", torch.float32), card="16MiB", step=step)
    unnamed = made("plain", torch.float32)[0]
    unnamed.lock = threading.Lock()
    with pytest.raises(InvalidArgument, match="copies the model without its parameters, which fails here"):
        castor.wrap(unnamed, torch.optim.AdamW(unnamed.parameters()), card="16MiB", host=HOST)
    model, optimizer = castor.wrap(*made("plain", torch.float32), card="16MiB", host=HOST)
    penalty = model.head.weight.sum()
    with pytest.raises(FailedPrecondition, match="tensors over parameters are kept"):
        model(batch_for("plain", 2))
    assert model._castor.opening.card is None and penalty.requires_grad


def test_a_models_own_loss_is_the_step_where_none_is_given() -> None:
    model, optimizer = made("gpt2", torch.float32)
    batch = batch_for("gpt2", 4)
    model, optimizer = castor.wrap(model, optimizer, card="16MiB", batch=batch, host=HOST)
    assert losses(model, optimizer, [batch] * 2)
    with pytest.raises(InvalidArgument, match="has no loss: give castor.wrap step="):
        castor.wrap(*made("plain", torch.float32), card="16MiB", batch=batch_for("plain", 2))


def test_what_has_no_meaning_is_refused() -> None:
    for asked, words in (
        ({"batch": batch_for("plain", 2)}, "give card= as well"),
        ({"card": "16MiB", "device": "8MiB", "batch": batch_for("plain", 2)}, "give one of them"),
        ({"card": "much", "batch": batch_for("plain", 2), "step": step}, "card is 'much'"),
    ):
        with pytest.raises(InvalidArgument, match=re.escape(words)):
            castor.wrap(*made("plain", torch.float32), **asked)


def test_a_copy_of_a_recomputing_model_computes_with_its_own_weights() -> None:
    model, _ = made("plain", torch.float32)
    recompute(model, blocks_of(model))
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.blocks[0].up.weight.zero_()
        other.blocks[0].up.bias.zero_()
    x = torch.randn(2, 64)
    model.eval(), other.eval()
    assert not torch.equal(model(x), other(x))


def test_blocks_are_the_outermost_that_repeat() -> None:
    names = {name: [block.name for block in blocks_of(MODELS[name]())] for name in MODELS}
    assert names["llama"] == [f"model.layers.{i}" for i in range(6)]
    assert names["t5"] == [f"{half}.block.{i}" for half in ("encoder", "decoder") for i in range(3)]
    assert names["plain"] == [f"blocks.{i}" for i in range(5)]
    model = MODELS["gpt2"]()
    model.gradient_checkpointing_enable()
    assert blocks_of(model) == [], "the script has chosen"


def test_the_page_says_what_happens(capsys: pytest.CaptureFixture) -> None:
    page = (Path(__file__).parents[3] / "docs" / "pytorch.md").read_text()
    code = page.split("### A whole card")[1].split("<!-- tested -->\n```python\n")[1].split("```")[0]
    exec(compile(code, "pytorch.md", "exec"), {"torch": torch, "transformers": transformers, "castor": castor})
    assert capsys.readouterr().out.splitlines() == [line[2:] for line in code.splitlines() if line.startswith("# ")]
