"""The split of parameters into trained and frozen ones."""

import re

import jax
import numpy as np
import pytest

from tests.support.training import optimizer_of
from vlc_jax import models
from vlc_jax.devices import sharding
from vlc_jax.errors import UsageError
from vlc_jax.models.parameters import Parameters, fingerprint

SMALL = {"width": 8, "heads": 2, "depth": 1, "projection": 4}
MODEL = models.build(
    "clip",
    "B/32",
    image={**SMALL, "image_size": 8, "patch_size": 4},
    text={**SMALL, "vocab_size": 10, "context_length": 4, "eos_id": 2},
)


SHAPES = jax.eval_shape(lambda: models.init(MODEL, jax.random.key(0)))


def frozen(*rules):
    return Parameters(MODEL, 0, SHAPES, rules)


@pytest.fixture(scope="module")
def params():
    return jax.jit(frozen().init)()


def sizes(tree):
    return sum(x.size for x in jax.tree.leaves(tree))


@pytest.mark.parametrize(
    ("rules", "is_frozen"),
    [
        ((), lambda path: False),
        (("image",), lambda path: path[0] == "image"),
        (("logit_scale",), lambda path: path == ("logit_scale",)),
        (("text", "logit_scale"), lambda path: path[0] in ("text", "logit_scale")),
        ((".*/norm/.*",), lambda path: path[1:2] == ("norm",)),
        # each tower has one block
        (("all_but_last_0",), lambda path: any(map(re.compile("block|.*embed|pre_").match, path))),
        (("all_but_last_1",), lambda path: any(map(re.compile(".*embed|pre_").match, path))),
    ],
)
def test_rules_split_and_merging_gives_all_back(params, rules, is_frozen):
    parameters = frozen(*rules)
    trained, kept = parameters.split(params)
    names = lambda tree: {  # noqa: E731
        tuple(key.key for key in path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)
    }
    assert names(kept) == {path for path in names(params) if is_frozen(path)}
    assert names(trained) == names(params) - names(kept)
    jax.tree.map(np.testing.assert_array_equal, parameters.merge(kept, trained), params)
    assert parameters.count(kept, trained)["trained"] == sizes(trained)
    assert parameters.has_frozen == bool(rules)


def test_frozen_parameters_have_no_gradient_and_no_moments(params):
    parameters = frozen("image")
    trained, _ = parameters.split(params)
    shapes = jax.eval_shape(optimizer_of(trained).init, trained)
    moments = sum(x.size for x in jax.tree.leaves(shapes) if x.ndim)
    matrices = sum(x.size for x in jax.tree.leaves(trained) if np.ndim(x))
    assert moments == 2 * matrices


def test_a_rule_that_matches_nothing_is_an_error_naming_it():
    with pytest.raises(UsageError, match=r"config\.frozen: 'imgae' matches no parameter"):
        frozen("image", "imgae").check_frozen()


def test_freezing_everything_is_an_error():
    with pytest.raises(UsageError, match="freezes every parameter"):
        frozen(".*").check_frozen()


def test_trained_parameters_in_bfloat16_are_refused():
    half = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, "bfloat16"), SHAPES["text"])
    shapes = {**SHAPES, "text": half}
    Parameters(MODEL, 0, shapes, ("text",)).check_frozen()
    with pytest.raises(UsageError, match=r"text/.* has dtype bfloat16; only frozen parameters may"):
        Parameters(MODEL, 0, shapes).check_frozen()


@pytest.mark.devices
def test_a_fingerprint_is_of_the_values_wherever_they_lie(monkeypatch):
    rng = np.random.default_rng(0)
    params = {"a": rng.normal(size=(16, 5)).astype("f4"), "b": {"c": np.zeros((), "f4")}}
    plain = fingerprint(params)
    mesh = sharding.make_mesh(data=2, fsdp=4)
    rows = jax.device_put(params["a"], sharding.batch_sharding(mesh))
    assert fingerprint({**params, "a": rows}) == plain
    with monkeypatch.context() as patch:  # as on an accelerator
        patch.setattr(sharding, "is_on_cpu_here", lambda x: False)
        assert fingerprint(jax.device_put({**params, "a": rows})) == plain
    swapped = params["a"].copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    changed = params["a"].copy()
    changed[3, 2] = np.nextafter(changed[3, 2], np.float32(9))
    others = [swapped, changed, params["a"].T.copy(), -params["a"], params["a"][:15]]
    assert len({plain, *(fingerprint({**params, "a": other}) for other in others)}) == 6
