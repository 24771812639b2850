"""The head of DCSM from an archive like that of its authors, tensor by tensor."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.support.archives import tensor
from vlc_jax import models
from vlc_jax.configs import dcsm as scenes
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.models import dcsm as head
from vlc_jax.models import dcsm_network
from vlc_jax.setup import init_from, resolve, validate
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
    """Shapes of the parameters of our head."""
    fields = {
        "network": "cnn",
        "standardise": "tensor",
        "num_functional_words": 11,
        "hidden": HIDDEN,
        **options,
    }
    built = models.HEADS["dcsm"](PATCHES, LENGTH, **fields)
    layout = dcsm_network.parameters(built.network, "flat", PATCHES, LENGTH, HIDDEN)
    parameters = {name: np.zeros(shape, np.float32) for name, (_, shape) in layout.items()}
    return parameters | (
        {"functional_words": np.zeros((built.num_functional_words, PATCHES))}
        if built.num_functional_words
        else {}
    )


@pytest.fixture
def arrays():
    """network -> state dict of random numbers."""
    rng = np.random.default_rng(0)

    def make(network):
        weights = {f"{name}.weight": shape for name, shape in SHAPES[network].items()}
        biases = {f"{name}.bias": shape[:1] for name, shape in SHAPES[network].items()}
        tensors = {**weights, **biases}
        return {name: rng.normal(size=shape).astype("f4") for name, shape in tensors.items()}

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
    np.testing.assert_array_equal(params["functional_words"], rows)
    for index, name in enumerate(name for name in SHAPES[network] if name.startswith("conv")):
        np.testing.assert_array_equal(params[f"conv_{index}"], state[f"{name}.weight"])
        np.testing.assert_array_equal(params[f"conv_{index}_bias"], state[f"{name}.bias"])
    for index, name in enumerate(name for name in SHAPES[network] if name.startswith("fc")):
        np.testing.assert_array_equal(params[f"dense_{index}"], state[f"{name}.weight"].T)
        np.testing.assert_array_equal(params[f"dense_{index}_bias"], state[f"{name}.bias"])


def test_words_of_a_list_of_their_own_are_told(save, arrays):
    rows = np.ones((2, PATCHES), "f4")
    loaded = dcsm.load(save(arrays("cnn"), rows, ["LEFT", "RIGHT"]), shapes(num_functional_words=2))
    assert loaded.words == ("LEFT", "RIGHT")


def test_a_head_without_words_takes_no_vectors(save, arrays):
    params, _ = dcsm.load(
        save(arrays("cnn"), np.ones((11, PATCHES), "f4")), shapes(num_functional_words=0)
    )
    assert "functional_words" not in params


@pytest.mark.parametrize(
    ("options", "more", "message"),
    [
        ({"num_functional_words": 4}, {}, r"functional_words \(11, 10\) instead of \(4, 10\)"),
        ({"network": "mlp"}, {}, "no parameter of this model: conv1"),
        # of another backbone
        (
            {},
            {"dense_0": np.zeros((2 * 50 * LENGTH, HIDDEN), np.float32)},
            r"dense_0 \(120, 64\) instead of \(600, 64\).*B/16",
        ),
        # an average, which no archive has
        ({}, {"mean": np.zeros(())}, r"no name for: mean.*standardise=running"),
    ],
)
def test_another_head_is_refused(save, arrays, options, more, message):
    path = save(arrays("cnn"), np.ones((11, PATCHES), "f4"))
    with pytest.raises(WeightsError, match=message):
        dcsm.load(path, shapes(**options) | more)


def test_other_files_are_refused(torch_save, tmp_path):
    with pytest.raises(WeightsError, match="is no checkpoint of DCSM"):
        dcsm.load(torch_save({"state_dict": {"a": tensor(np.ones(2, "f4"))}}), shapes())
    with pytest.raises(WeightsError, match="is a folder; a checkpoint of DCSM's authors is a file"):
        dcsm.load(tmp_path, shapes())
    with pytest.raises(WeightsError, match="there is no file"):
        dcsm.load(tmp_path / "missing.pt", shapes())


@pytest.fixture
def run(save):
    """The setup and the shapes of a run whose head is an archive."""
    config = scenes.get_config("standardise=tensor")
    with config.unlocked():
        config.model.head.num_functional_words = len(head.WORDS)
        config.model.text.padding_mask = True
        functional = config.text.functional_words
        functional.words, functional.position = head.WORDS, "word"
        config.init_from = "towers"
        built = resolve(config).model.head
        state, rows = {}, np.ones((len(head.WORDS), built.patches), "f4")
        for name, (_, shape) in dcsm_network.parameters(
            "cnn", "flat", built.patches, built.length, 128
        ).items():
            theirs = name.replace("_bias", "").replace("conv_", "conv").replace("dense_", "fc")
            theirs = f"{theirs[:-1]}{int(theirs[-1]) + 1}"
            kind = "bias" if "bias" in name else "weight"
            state[f"{theirs}.{kind}"] = np.ones(shape, "f4").T if "fc" in theirs else np.ones(shape)
        config.head_from = str(save({k: v.astype("f4") for k, v in state.items()}, rows))
    setup = resolve(config)
    ends = SimpleNamespace(pad_id=2, eos_id=2, words=head.WORDS, position="word")
    return setup._replace(tokenizer=ends), setup.parameters.shapes


def test_a_head_and_its_scale_take_their_place_beside_the_towers(run, monkeypatch):
    setup, wanted = run
    towers = {"image": "of init_from", "text": "of init_from", "logit_scale": "of init_from"}
    monkeypatch.setattr(init_from, "_load", lambda *_: towers)
    params = init_from.load(setup, wanted)
    assert params["image"] == params["text"] == "of init_from"
    assert params["logit_scale"] == 0  # the logarithm of 1
    found = {name: x.shape for name, x in params["head"].items()}
    assert found == {name: x.shape for name, x in wanted["head"].items()}
    init_from.require_all(params, wanted, "x")
    assert init_from.load(setup, wanted, "other") is towers


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("position", "token", "position to 'word' and its words to"),
        ("words", ("left", "right"), r"its words to \('above', 'below'"),
        ("pad_id", 0, r"pads with token 0: set config.text.tokenizer to 'hf'"),
    ],
)
def test_texts_that_the_head_would_read_wrongly_are_refused(run, field, value, message):
    setup, wanted = run
    setattr(setup.tokenizer, field, value)
    with pytest.raises(UsageError, match=message):
        init_from._load_head(setup, wanted)


def test_another_model_is_refused(run):
    setup, wanted = run
    text = setup.model.text.clone(padding_mask=False)
    running = setup.model.clone(head=setup.model.head.clone(standardise="running"))
    for changed, error, message in (
        ({"origin": setup.origin._replace(model_name="pacl")}, UsageError, "name is 'pacl'"),
        ({"model": setup.model.clone(text=text)}, UsageError, "set config.model.text.padding_mask"),
        (
            {"parameters": setup.parameters._replace(model=running)},
            WeightsError,
            "no name for: mean.*standardise=running",
        ),
    ):
        with pytest.raises(error, match=message):
            init_from._load_head(setup._replace(**changed), wanted)


def test_a_head_without_towers_is_refused():
    config = scenes.get_config()
    with config.unlocked():
        config.head_from = "head.pt"
        config.update_from_flattened_dict({"init_from": None, "pretrain": {}, "frozen": ()})
    with pytest.raises(UsageError, match=r"config.head_from is a head for the towers"):
        validate.check_frozen(config)
