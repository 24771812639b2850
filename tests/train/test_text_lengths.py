"""config.text.lengths: shorter batches of texts, with the same loss."""

import functools
from functools import partial

import jax
import numpy as np
import pytest

from tests.support import tiny
from vlc_jax.configs import dcsm
from vlc_jax.devices import sharding
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline import batch as batch_contract
from vlc_jax.setup import resolve
from vlc_jax.setup.state import init_state
from vlc_jax.train import step as train_step

pytestmark = pytest.mark.devices

END, PAD = 2, 0


def test_the_longest_text_of_any_kind_decides():
    text = np.array([[5, END, 0, 0, 0, 0], [5, END, 6, END, 0, 0]])
    negative = np.array([[[5, 6, 7, 8, END, 0], [0, 0, 0, 0, 0, 0]]] * 2)
    batch = {"text": text, "text_marks": text, "image": np.zeros((2, 8, 8, 3))}
    assert batch_contract.longest_text(batch, PAD, END) == 4
    batch |= {"negative_text": negative, "negative_text_marks": negative}
    assert batch_contract.longest_text(batch, PAD, END) == 5
    short = batch_contract.with_text_length(batch, 5)
    assert {key: x.shape for key, x in short.items()} == {
        "text": (2, 5),
        "text_marks": (2, 5),
        "image": (2, 8, 8, 3),
        "negative_text": (2, 2, 5),
        "negative_text_marks": (2, 2, 5),
    }
    padded_by_end = {"text": np.where(text == PAD, END, text)}
    assert batch_contract.longest_text(padded_by_end, END, END) == 4
    assert batch_contract.longest_text({"text": np.full((1, 3), 7)}, END, END) == 3


def captioner(**fields):
    config = tiny.get_config()
    with config.unlocked():
        config.losses = {"caption": {**config.losses.infonce}}
        config.model.name, config.model.text_tower = "captioner", False
        config.model.head = {"width": 8, "depth": 1}
        config.text.lengths, config.mesh.data = (10, 14), 8
        config.update_from_flattened_dict(fields)
    return config


def test_a_shorter_batch_has_the_loss_and_gradient_of_the_whole():
    setup = resolve(captioner(), "train")
    rows = setup.training.data.make_loader(0, [])
    batch = rows.next(timeout=None)
    rows.close()
    batch["text"][:, 12:] = setup.tokenizer.pad_id
    batch["text"][:, 11] = setup.tokenizer.eos_id
    end, pad = setup.tokenizer.eos_id, setup.tokenizer.pad_id
    assert batch_contract.longest_text(batch, pad, end) == 12
    state = jax.jit(partial(init_state, setup))({})
    step = jax.jit(train_step.make_step(setup))

    def run(batch):
        batch = {**batch, "id": batch_contract.split_ids(batch["id"]), "stop": np.zeros(16, bool)}
        with jax.set_mesh(setup.mesh):
            after, metrics = step(state, {}, sharding.put_batch(setup.mesh, batch))
        return after.params, metrics

    whole, found = run(batch), run(batch_contract.with_text_length(batch, 14))
    for name in ("loss", "grad_norm"):
        np.testing.assert_allclose(found[1][name], whole[1][name], rtol=1e-5)
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=2e-5), found[0], whole[0])


@pytest.mark.parametrize(
    ("lengths", "message"),
    [((14, 10), "ascend"), ((10, 20), "below config.text.context_length=20"), ((1,), "from 2")],
)
def test_lengths_that_are_none_are_refused(lengths, message):
    with pytest.raises(UsageError, match=message):
        resolve(captioner(**{"text.lengths": lengths}), "eval")


def test_models_that_read_padding_are_refused():
    config = dcsm.get_config()
    with config.unlocked():
        config.pretrain, config.frozen, config.text.lengths = {}, (), (10,)
    with pytest.raises(UsageError, match="leave out padding, which this model"):
        resolve(config, "eval")
