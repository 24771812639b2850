"""The table of losses and the weighted sum that training minimises."""

import jax
import numpy as np
import pytest

from vlc_jax import errors, losses, types
from vlc_jax.losses import infonce, sigmoid


@pytest.fixture
def outputs(arrays):
    return types.Outputs(
        image=types.ImageFeatures(arrays["image"]),
        text=types.TextFeatures(arrays["text"]),
        scores=arrays["image"] @ arrays["text"].T,
        logit_scale=arrays["logit_scale"],
        logit_bias=arrays["logit_bias"],
    )


def test_total_is_the_weighted_sum_of_means_over_real_examples(arrays, outputs):
    config = {"infonce": {"weight": 0.5}, "sigmoid": {"weight": 2.0}}
    value, parts = losses.total(config, outputs, arrays)
    scale, mask = arrays["logit_scale"], arrays["mask"]
    softmax_sum = infonce.dense(outputs.scores, scale, mask).sum()
    sigmoid_sum = sigmoid.dense(outputs.scores, scale, arrays["logit_bias"], mask).sum()
    np.testing.assert_allclose(value, 0.5 * softmax_sum / 19 + 2 * sigmoid_sum / 19, rtol=1e-5)
    assert [int(count) for _, count in parts.values()] == [19, 19]
    np.testing.assert_allclose(parts["sigmoid"][0], sigmoid_sum, rtol=1e-6)


@pytest.mark.parametrize("name", losses.LOSSES)
def test_every_implementation_in_the_table_gives_the_same_total(arrays, outputs, make_mesh, name):
    options = [{}, {"implementation": "chunked", "chunk": 7}, {"implementation": "ring"}]
    assert {o.get("implementation", "dense") for o in options} == set(losses.LOSSES[name])

    def total(option):
        return losses.total({name: {"weight": 1.0, **option}}, outputs, arrays, make_mesh(4, 2))[0]

    values = [total(option) for option in options]
    np.testing.assert_allclose(values, values[0], rtol=1e-5)


def test_a_batch_of_padding_gives_zero_not_nan(arrays, outputs):
    batch = {**arrays, "mask": np.zeros(24, bool)}
    config = {"infonce": {"weight": 1.0}, "sigmoid": {"weight": 1.0}}
    value, _ = losses.total(config, outputs, jax.tree.map(jax.numpy.asarray, batch))
    assert float(value) == 0.0


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"infoNCE": {"weight": 1.0}}, "unknown loss 'infoNCE'; did you mean 'infonce'"),
        ({"infonce": {"wieght": 1.0}}, "'wieght'; did you mean 'weight'"),
        ({"infonce": {}}, "needs a weight"),
        ({"infonce": {"weight": 1.0, "implementation": "rings"}}, "did you mean 'ring'"),
        ({"infonce": {"weight": 1.0, "implementation": "ring"}}, "mesh"),
        ({"infonce": {"weight": 1.0, "implementation": "chunked"}}, "chunk None"),
        ({"infonce": {"weight": 1.0, "chunk": 8}}, "'dense' and chunk 8"),
    ],
)
def test_a_wrong_config_is_refused_with_the_cure(arrays, outputs, config, message):
    with pytest.raises(errors.UsageError, match=message):
        losses.total(config, outputs, arrays)


def test_sigmoid_without_a_logit_bias_is_refused(arrays, outputs):
    with pytest.raises(errors.UsageError, match="logit_bias_init"):
        losses.total({"sigmoid": {"weight": 1.0}}, outputs._replace(logit_bias=None), arrays)
