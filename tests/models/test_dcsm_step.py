"""A training step of DCSM: its contrastive loss and its running moments."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vlc_jax import models, setup
from vlc_jax.configs import default
from vlc_jax.train import step as train_step
from vlc_jax.types import State


def cross_entropy(logits):
    """Mean over rows whose own column comes first, and its gradient."""
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    diagonal = np.eye(*logits.shape)
    return -np.log((shares * diagonal).sum(1)).mean(), (shares - diagonal) / len(logits)


def features(head, embed, count, normal):
    """Stored features of pairs with a hard negative each."""
    patches, length = head.patches, head.length
    return {
        "image_pooled": normal(count, embed),
        "image_tokens": normal(count, patches, embed),
        "text": np.zeros((count, length), np.int32),
        "text_pooled": normal(count, embed),
        "text_tokens": normal(count, length, embed),
        "negative_text": np.zeros((count, 1, length), np.int32),
        "negative_text_pooled": normal(count, 1, embed),
        "negative_text_tokens": normal(count, 1, length, embed),
        "negative_mask": np.ones((count, 1), bool),
        "mask": np.ones(count, bool),
        "stop": np.zeros(count, bool),
    }


@pytest.mark.slow
def test_eight_images_and_sixteen_texts_are_contrasted():
    """Images choose among 16 texts, the 8 matched texts among the images."""
    rng = np.random.default_rng(4)
    sub_batches, count = 2, 16

    def normal(*shape):
        return rng.normal(size=shape).astype("f4")

    head = {"num_functional_words": 0, "hidden": 32}
    model = models.build("dcsm", "mini", head=head, logit_scale_init=1.0)
    batch = features(model.head, model.image.embed, count, normal)
    config = default.get_config()
    with config.unlocked():
        config.batch_size, config.sub_batches = count, sub_batches
        config.frozen, config.init_from = ("image", "text"), "towers"
        config.losses = {"negclip": default.loss(2.0)}  # the sum of both, as their authors have it
        config.optimizer.warmup_steps = 1
    variables = jax.jit(model.init)(jax.random.key(0), batch)
    run = setup.step_setup(config, model, 9)
    params = jax.tree.map(lambda x: np.asarray(x) + 0.05 * normal(*x.shape), variables["params"])
    params["logit_scale"] = np.float32(0)
    first = State(np.int32(0), params, jax.jit(run.optimization.optimizer.init)(params), {})
    _, metrics = jax.jit(train_step.make_step(run))(first, {}, batch)

    @jax.jit
    def scores(params, part):
        outputs = model.apply({"params": params}, part)
        return jnp.exp(params["logit_scale"]) * jnp.concatenate(
            [outputs.scores, outputs.negative_scores[..., 0]], axis=1
        )

    @jax.jit
    def back(params, part, slopes):
        return jax.grad(lambda params: jnp.sum(slopes * scores(params, part)))(params)

    value, gradients = 0.0, []
    for index in range(sub_batches):
        part = {key: x[index::sub_batches] for key, x in batch.items()}
        whole = np.asarray(scores(params, part), np.float64)
        assert whole.shape == (8, 16)
        rows, of_rows = cross_entropy(whole)
        columns, of_columns = cross_entropy(whole[:, :8].T)
        value += (rows + columns) / sub_batches
        of_rows[:, :8] += of_columns.T
        gradients.append(back(params, part, (of_rows / sub_batches).astype("f4")))
    gradient = jax.tree.map(lambda *x: sum(x), *jax.device_get(gradients))
    assert metrics["loss"] == pytest.approx(value, rel=1e-5)
    assert metrics["grad_norm"] == pytest.approx(
        float(jax.jit(optax.tree.norm)(gradient)), rel=1e-4
    )
    assert metrics["grad_norm"] > 1e-3


def four_pairs(**options):
    """A small head with running moments, and features of four pairs."""
    rng = np.random.default_rng(0)
    head = {"standardise": "running", "network": "mlp", **options}
    one = {"depth": 1}  # the towers are initialised and do not run
    model = models.build("dcsm", "mini", head=head, image=one, text=one)
    patches, length, embed = model.head.patches, model.head.length, model.image.embed
    shapes = {"image_tokens": (4, patches, embed), "text_tokens": (4, length, embed)}
    shapes |= {"image_pooled": (4, embed), "text_pooled": (4, embed)}
    batch = {name: rng.normal(size=s).astype("f4") for name, s in shapes.items()}
    batch |= {"text": np.zeros((4, length), np.int32), "mask": np.ones(4, bool)}
    return model, batch | {"stop": np.zeros(4, bool)}


def test_a_finite_step_updates_running_moments():
    model, batch = four_pairs(num_functional_words=0)
    config = default.get_config()
    with config.unlocked():
        config.batch_size, config.sub_batches, config.optimizer.warmup_steps = 8, 2, 1
        config.frozen, config.init_from = ("image", "text"), "towers"
    run = setup.step_setup(config, model, 9)
    variables = jax.jit(model.init)(jax.random.key(0), batch)
    params, batch_stats = variables["params"], variables["batch_stats"]
    optimizer = jax.jit(run.optimization.optimizer.init)(params)
    assert params["head"].keys().isdisjoint(batch_stats["head"])
    first = State(np.int32(0), params, optimizer, batch_stats)
    assert len(jax.tree.leaves(optimizer)) < 3 * len(jax.tree.leaves(params))  # two moments, counts

    step = jax.jit(train_step.make_step(run))
    state, _ = step(first, {}, batch)
    found = state.batch_stats["head"]
    maps_ = [
        np.einsum("npd,mtd->nmpt", batch["image_tokens"][k::2], batch["text_tokens"][k::2])
        for k in range(2)  # of each sub-batch
    ]
    assert found["steps"] == 1
    assert found["mean"] == pytest.approx(np.mean(maps_), rel=1e-3)
    assert found["square"] == pytest.approx(np.mean(np.square(maps_)), rel=1e-4)
    broken = {**batch, "image_tokens": batch["image_tokens"].copy()}
    broken["image_tokens"][0] = np.nan
    same, metrics = step(state, {}, broken)
    assert not metrics["is_finite"]
    for a, b in zip(jax.tree.leaves(same), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(a, b)


def test_frozen_vectors_of_functional_words_stay_bit_for_bit():
    model, batch = four_pairs(num_functional_words=2)
    batch["text_marks"] = np.zeros(batch["text"].shape, np.int8)
    batch["text_marks"][:, 2] = 0, 1, 2, 1
    variables = jax.jit(model.init)(jax.random.key(0), batch)
    params, words = variables["params"], variables["params"]["head"]["functional_words"]
    for rules in ((), ("head/functional_words",)):
        config = default.get_config()
        with config.unlocked():
            config.batch_size, config.optimizer.warmup_steps = 8, 1
            config.optimizer.weight_decay = 0.1
            config.frozen, config.init_from = ("image", "text", *rules), "towers"
        run = setup.step_setup(config, model, 9)
        trained, frozen = run.parameters.split(params)
        optimizer = jax.jit(run.optimization.optimizer.init)(trained)
        state = State(np.int32(0), trained, optimizer, variables["batch_stats"])
        state, metrics = jax.jit(train_step.make_step(run))(state, frozen, batch)
        assert metrics["is_finite"]
        after = run.parameters.merge(frozen, state.params)["head"]
        assert np.array_equal(after["functional_words"], words) == bool(rules)
        assert not np.array_equal(after["dense_0"], params["head"]["dense_0"])
        moments = {leaf.shape for leaf in jax.tree.leaves(state.opt_state)}
        assert (words.shape in moments) == (not rules)
        assert state.batch_stats["head"]["steps"] == 1
