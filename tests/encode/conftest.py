"""A tiny model, and towers that compile nothing."""

import jax
import numpy as np
import pytest

from tests.support import small_models, tiny
from vlc_jax.encode.batches import BatchEncoder
from vlc_jax.setup import resolve
from vlc_jax.types import ImageFeatures, TextFeatures


@pytest.fixture(scope="module")
def run():
    """Setup of the tiny model on all devices, and random parameters."""
    return with_parameters(resolve(tiny.get_config(), "eval"))


def with_parameters(setup):
    params = jax.device_put(small_models.normal(setup.parameters.shapes, 0.1))
    return setup, {"params": params, "batch_stats": {}}


@pytest.fixture
def towers(monkeypatch):
    """Towers that compile nothing: features are random numbers, seeded by an item and a parameter.
    Gives the items that were encoded, in their order.
    """
    items = []

    def batches(encoder, variables, asked):
        scale = float(variables["params"]["logit_scale"])
        for start in range(0, len(asked), 8):
            encoder._interrupt.check()
            part = asked[start : start + 8]
            items.extend(part)
            seeds = [hash((scale, x if isinstance(x, str) else x.tobytes())) for x in part]
            rows = [np.random.default_rng(abs(seed)).random(6, np.float32) for seed in seeds]
            kind = TextFeatures if isinstance(part[0], str) else ImageFeatures
            tokens = np.stack(rows)[:, None] if encoder.has_tokens else None
            yield range(start, start + len(part)), kind(np.stack(rows), tokens)

    monkeypatch.setattr(BatchEncoder, "batches", batches)
    monkeypatch.setattr(BatchEncoder, "has_tokens", False, raising=False)
    return items


def with_evaluation(setup, **changes):
    return setup._replace(evaluation=setup.evaluation._replace(**changes))
