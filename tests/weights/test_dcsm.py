"""The head of DCSM from an archive like that of its authors, tensor by tensor."""

import numpy as np
import pytest

from tests.archives import tensor
from vlc_jax import models
from vlc_jax.errors import WeightsError
from vlc_jax.models import dcsm as head
from vlc_jax.weights import dcsm

PATCHES, LENGTH, HIDDEN = 10, 6, 64
CELLS = PATCHES * LENGTH
SHAPES = {  # as torch has them
    "cnn": {
        "conv1": (2, 1, 3, 3),
        "conv2": (2, 2, 3, 3),
        "fc1": (HIDDEN, 2 * CELLS),
        "fc2": (1, HIDDEN),
    },
    "mlp": {"fc1": (32, CELLS), "fc2": (16, 32), "fc3": (1, 16)},
}


def shapes(**options):
    """Of the parameters of a head of ours."""
    fields = {"network": "cnn", "standardise": "tensor", "words": 11, "hidden": HIDDEN, **options}
    made = models.HEADS["dcsm"](PATCHES, LENGTH, **fields)
    layout = head._parameters(made.network, "flat", PATCHES, LENGTH, HIDDEN)
    found = {name: np.zeros(shape, np.float32) for name, (_, shape) in layout.items()}
    return found | ({"rows": np.zeros((made.words, PATCHES))} if made.words else {})


@pytest.fixture
def arrays():
    """network -> state dict of random numbers."""
    rng = np.random.default_rng(0)

    def make(network):
        weights = {f"{name}.weight": shape for name, shape in SHAPES[network].items()}
        biases = {f"{name}.bias": shape[:1] for name, shape in SHAPES[network].items()}
        found = {**weights, **biases}
        return {name: rng.normal(size=shape).astype("f4") for name, shape in found.items()}

    return make


@pytest.fixture
def save(torch_save):
    """save(state dict, vectors, lookup) -> path of what the authors' training saves."""

    def make(state, rows, lookup=None):
        embedding = torch_save.module_kind()
        embedding.__dict__ = {"training": True, "_parameters": {"weight": tensor(rows)}}
        return torch_save(
            {
                "epoch": 26,
                "model_state_dict": {name: tensor(x) for name, x in state.items()},
                "optimizer_state_dict": {"state": {0: {"exp_avg": tensor(np.ones(3, "f4"))}}},
                "clip_state_dict": {"logit_scale": tensor(np.float32(4.6).reshape(()))},
                "train_loss": [0.5],
                "external_logic_token_embeddings": embedding,
                "learned_lookup": lookup,
            }
        )

    return make


@pytest.mark.parametrize("network", ["cnn", "mlp"])
def test_every_parameter_is_that_of_the_archive(save, arrays, network):
    state, rows = arrays(network), np.random.default_rng(1).normal(size=(11, PATCHES)).astype("f4")
    wanted = shapes(network=network)
    params, words = dcsm.load(save(state, rows), wanted)
    assert words is None
    assert params.keys() == wanted.keys()
    assert {name: x.shape for name, x in params.items()} == {k: v.shape for k, v in wanted.items()}
    np.testing.assert_array_equal(params["rows"], rows)
    for index, name in enumerate(name for name in SHAPES[network] if name.startswith("conv")):
        np.testing.assert_array_equal(params[f"conv_{index}"], state[f"{name}.weight"])
        np.testing.assert_array_equal(params[f"conv_{index}_bias"], state[f"{name}.bias"])
    for index, name in enumerate(name for name in SHAPES[network] if name.startswith("fc")):
        np.testing.assert_array_equal(params[f"dense_{index}"], state[f"{name}.weight"].T)
        np.testing.assert_array_equal(params[f"dense_{index}_bias"], state[f"{name}.bias"])


def test_words_of_a_list_of_their_own_are_told(save, arrays):
    rows = np.ones((2, PATCHES), "f4")
    loaded = dcsm.load(save(arrays("cnn"), rows, ["LEFT", "RIGHT"]), shapes(words=2))
    assert loaded.words == ("LEFT", "RIGHT")


def test_a_head_without_words_takes_no_vectors(save, arrays):
    params, _ = dcsm.load(save(arrays("cnn"), np.ones((11, PATCHES), "f4")), shapes(words=0))
    assert "rows" not in params


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"words": 4}, r"rows \(11, 10\) instead of \(4, 10\)"),
        ({"network": "mlp"}, "no parameter of this model: conv1"),
    ],
)
def test_another_head_is_refused(save, arrays, options, message):
    path = save(arrays("cnn"), np.ones((11, PATCHES), "f4"))
    with pytest.raises(WeightsError, match=message):
        dcsm.load(path, shapes(**options))


def test_a_network_of_another_backbone_is_refused(save, arrays):
    path = save(arrays("cnn"), np.ones((11, PATCHES), "f4"))
    wanted = shapes()
    wanted["dense_0"] = np.zeros((2 * 50 * LENGTH, HIDDEN), np.float32)
    with pytest.raises(WeightsError, match=r"dense_0 \(120, 64\) instead of \(600, 64\).*B/16"):
        dcsm.load(path, wanted)


def test_an_average_that_no_archive_has_is_asked_for_in_vain(save, arrays):
    path = save(arrays("cnn"), np.ones((11, PATCHES), "f4"))
    with pytest.raises(WeightsError, match=r"no name for: mean.*standardise=running"):
        dcsm.load(path, shapes() | {"mean": np.zeros(())})


def test_other_files_are_refused(torch_save, tmp_path):
    with pytest.raises(WeightsError, match="is no checkpoint of DCSM"):
        dcsm.load(torch_save({"state_dict": {"a": tensor(np.ones(2, "f4"))}}), shapes())
    with pytest.raises(WeightsError, match="no checkpoint of a DCSM head at"):
        dcsm.load(tmp_path / "missing.pt", shapes())
