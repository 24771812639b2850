"""What all heads have in common: chunks and devices change nothing."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import FrozenDict
from jax.sharding import AxisType, NamedSharding

from tests.support import small_models
from tests.support.compilations import apply
from tests.support.marks import slow_but
from vlc_jax import errors, models, setup, types
from vlc_jax.configs import default
from vlc_jax.devices import sharding
from vlc_jax.models import heads
from vlc_jax.train import step as train_step
from vlc_jax.types import State

PAIRS, PATCHES, LENGTH, EMBED, DEVICES = 16, 9, 6, 7, 8
KEY = jax.random.key(0)
SHALLOW = {"depth": 1}  # towers that are initialised and do not run
DECODER = {"vocab_size": 9, "patches": PATCHES, "has_class_token": False, "width": 8,
           "attention_heads": 2}  # fmt: skip
HEADS = {
    "clip": {},
    "labclip": {"width": EMBED},
    "pacl": {"width": EMBED, "dropout": 0.0, "has_class_token": False},
    "flair": {"width": EMBED, "attention_heads": 1, "has_class_token": False},
    "pooled": {"rule": "maxsim", "mapping": "linear", "width": EMBED, "has_class_token": False},
    "self_distilled": {"prototypes": 5, "hidden": 6, "bottleneck": 4, "width": EMBED,
                       "tower_width": EMBED, "has_class_token": False},
    "sparc": {"width": EMBED, "dropout": 0.0, "has_class_token": False},
    "tflocal": {"patches": PATCHES, "length": LENGTH, "has_class_token": False, "hidden": 8,
                "depth": 2, "attention_heads": 2},
    "dcsm": {"patches": PATCHES, "length": LENGTH, "num_functional_words": 2, "hidden": 32},
    "blip": {
        "vocab_size": 9,
        "width": EMBED,
        "encoder": {"width": 8, "depth": 1, "heads": 2, "mlp_width": 12, "positions": LENGTH},
        "projection": 5,
        "match_id": 8,
    },
    "xvlm": {
        "vocab_size": 9,
        "width": EMBED,
        "encoder": {"width": 8, "depth": 2, "heads": 2, "mlp_width": 12, "positions": LENGTH},
        "projection": 5,
    },
    "captioner": DECODER | {"depth": 1},
    "instructblip": DECODER | {
        "depth": 1,
        "length": LENGTH,
        "qformer": {"queries": 2, "width": 8, "depth": 1, "heads": 2, "mlp_width": 8},
    },
    "vlm2vec": DECODER | {"depth": 2},
    "qwen3_vl": {
        "vocab_size": 9,
        "patches": PATCHES,
        "has_class_token": False,
        "decoder": FrozenDict(width=8, depth=2, heads=2, mlp_width=8, scaling=None,
                              sections=(1, 1, 0)),
        "suffix": (3, 1),
        "marks": (2, 4),
    },
}  # fmt: skip
CASES = [  # of heads that score pairs by their tokens, chunk by chunk
    *(("flair", {}), ("pacl", {}), ("pooled", {}), ("sparc", {}), ("tflocal", {})),
    *(("dcsm", {}), ("dcsm", {"standardise": "per_pair"})),
    *(("captioner", {}), ("blip", {}), ("xvlm", {}), ("instructblip", {})),
]
OF_DECODERS = [("vlm2vec", {}), ("qwen3_vl", {})]
ON_RUNS_MESH = [*CASES, *OF_DECODERS]
# X-VLM's scores are BLIP's
ON_RUNS_MESH.remove(("blip", {}))
# of decoders without a prefix and a question, which stand replicated beside tokens of the batch
ON_EXPLICIT_MESH = [("clip", {}), ("labclip", {}), ("self_distilled", {}), *ON_RUNS_MESH]


def test_every_head_is_tested_here():
    tested = {name for name, _ in ON_RUNS_MESH + ON_EXPLICIT_MESH}
    assert tested | {"blip"} == HEADS.keys() == models.HEADS.keys()
    assert models.HEADS["xvlm"].score is models.HEADS["blip"].score


@pytest.fixture(scope="module")
def features():
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.normal(size=shape).astype(np.float32)

    mask = np.arange(LENGTH)[None] < rng.integers(2, LENGTH + 1, PAIRS)[:, None]
    marks = np.zeros((PAIRS, LENGTH), np.int8)
    marks[::2, 2], marks[::3, 4] = 1, 2
    question = rng.integers(0, 9, (PAIRS, 3)).astype(np.int32)
    question[::2, 1:] = types.NOT_ASKED
    image = types.ImageFeatures(normal(PAIRS, EMBED), normal(PAIRS, PATCHES, EMBED), question)
    text = types.TextFeatures(
        *(normal(PAIRS, EMBED), normal(PAIRS, LENGTH, EMBED), mask, marks),
        rng.integers(0, 9, (PAIRS, LENGTH)).astype(np.int32),
    )
    return image, text


def features_for(name, features):
    """The features that a head reads: InstructBLIP reads the question of a text, in the first half
    of its row, captioner and vlm2vec that of an image."""
    image, text = features
    if name == "qwen3_vl":  # tokens of the decoder's width, and of one inner block
        tokens = np.concatenate([image.tokens, image.tokens, image.tokens[..., :2]], axis=-1)
        grid = np.stack([2 * (1 + np.arange(PAIRS) % 3), np.full(PAIRS, 6)], axis=1)
        return image._replace(tokens=tokens, grid=grid.astype(np.int32)), text
    if name not in ("captioner", "vlm2vec"):
        image = image._replace(question=None)
    if name == "instructblip":
        question = text.ids[:, LENGTH // 2 :]
        text = text._replace(ids=np.concatenate([-2 - question, question], axis=1))
    return image, text


def scored(module, image, text):
    return module.score(module.image(image), module.text(text))


def weighted(name, chunk, options):
    """A function of parameters and features: scores, weighted and summed, and the scores."""
    has_chunks = (name, options) in CASES
    options = {**HEADS[name], **options, **({"chunk": chunk} if has_chunks else {})}
    head = models.HEADS[name](**options)
    weights = np.sin(np.arange(PAIRS**2, dtype=np.float32).reshape(PAIRS, PAIRS))

    def value(variables, image, text):
        scores = head.apply(variables, image, text, method=scored)
        return jnp.sum(weights * scores), scores

    gradient = jax.grad(value, argnums=(0, 1, 2), has_aux=True, allow_int=True)
    return head, jax.jit(gradient)


def random_variables(head, *features):
    """Random numbers in place of initial ones, whose program would be compiled for nothing else."""
    init = functools.partial(head.init, method=scored)
    return small_models.drawn(init, *features, scale=0.3, seed=1)


@functools.cache
def without_chunks(name, options):
    """Variables of a head, made once for features, and scores and gradients on one device."""
    head, whole = weighted(name, PAIRS, dict(options))
    variables = []

    def call(*features):
        if not variables:
            variables.append(random_variables(head, *features))
        return variables[0], jax.device_get(whole(variables[0], *jax.device_put(features)))

    return call


def whole_scores(name, options, features):
    return without_chunks(name, tuple(options.items()))(*features)


def assert_close(found, expected):
    found, expected = (  # without the gradients of integers
        [x for x in jax.tree.leaves(tree) if x.dtype == jnp.float32] for tree in (found, expected)
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5 * max(1, np.abs(b).max()))


@pytest.mark.devices
@pytest.mark.parametrize(("name", "options"), slow_but((("pacl", {}),), ON_RUNS_MESH), ids=str)
def test_parts_on_many_devices_give_the_whole(features, name, options):
    mesh, features = sharding.make_mesh(data=4, fsdp=2), features_for(name, features)
    variables, expected = whole_scores(name, options, features)

    # two parts on each device; the compiler splits the rows of a part of heads with a decoder
    has_decoder = isinstance(models.HEADS[name](**HEADS[name]), heads.Decoding)
    _, parts = weighted(name, DEVICES if has_decoder else 1, options)
    placed = jax.device_put(features, sharding.batch_sharding(mesh))
    variables = jax.device_put(variables, sharding.replicated(mesh))
    with jax.set_mesh(mesh):
        compiled = parts.lower(variables, *placed).compile()
    found = compiled(variables, *placed)
    assert_close(found, expected)

    moved = re.findall(
        r"= (.*) (?:all-gather|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(",
        compiled.as_text(),
    )
    sizes = [{int(size) for size in re.findall(r"\d+(?=[,\]])", shape)} for shape in moved]
    assert any(PAIRS in size for size in sizes)  # texts
    assert not any({PATCHES, EMBED} <= size for size in sizes), moved


@pytest.mark.devices
@pytest.mark.parametrize(("name", "options"), slow_but((("pacl", {}),), ON_EXPLICIT_MESH), ids=str)
def test_explicit_axes_give_the_scores_and_gradients_of_one(features, name, options):
    image, text = features_for(name, features)
    if image.question is not None:  # without one, and for the whole, whose program has one, empty
        image = image._replace(question=np.full_like(image.question, types.NOT_ASKED))
    variables, expected = whole_scores(name, options, (image, text))
    features = image._replace(question=None), text
    _, gradient = weighted(name, 1, options)
    mesh = jax.make_mesh((4, 2), types.BATCH_AXES, axis_types=(AxisType.Explicit,) * 2)
    with jax.set_mesh(mesh):
        placed = jax.device_put(features, NamedSharding(mesh, jax.P(types.BATCH_AXES)))
        found = gradient(jax.device_put(variables, NamedSharding(mesh, jax.P())), *placed)
    assert_close(found, expected)


@pytest.mark.devices
def test_rows_that_devices_do_not_divide_are_scored_too(features):
    mesh = sharding.make_mesh(data=DEVICES)
    image, text = features
    image = jax.tree.map(lambda x: x[:5], image)
    head = models.HEADS["pacl"](**HEADS["pacl"], chunk=2)
    variables = random_variables(head, image, text)

    whole = NamedSharding(mesh, jax.P())
    with jax.set_mesh(mesh):
        found = apply(head, *jax.device_put((variables, image, text), whole), method=scored)
    expected = apply(head, variables, image, text, method=scored)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def stored(image, **texts):
    """A batch of features of frozen towers."""
    batch = {"image_pooled": image.pooled, "image_tokens": image.tokens}
    for name, text in texts.items():
        batch[name] = np.zeros(text.tokens.shape[:-1], np.int32)
        batch |= {f"{name}_pooled": text.pooled, f"{name}_tokens": text.tokens}
    return batch


def test_marks_of_captions_and_hard_texts_reach_the_head(features):
    head = models.HEADS["dcsm"](**HEADS["dcsm"], network="mlp")
    model = models.build("clip", "mini", image=SHALLOW, text=SHALLOW).clone(head=head)
    image, text = features
    negatives = jax.tree.map(lambda x: x[::-1, None], text)
    batch = stored(image, text=text, negative_text=negatives)
    batch |= {"text_marks": text.marks, "negative_text_marks": negatives.marks}
    outputs, variables = jax.jit(model.init_with_output)(jax.random.key(0), batch)
    np.testing.assert_array_equal(outputs.text.marks, text.marks)
    np.testing.assert_array_equal(outputs.negative_text.marks, negatives.marks)
    del batch["text_marks"], batch["negative_text_marks"]
    with pytest.raises(errors.UsageError, match="words, and the batch has no text_marks"):
        jax.eval_shape(model.apply, variables, batch)


def test_a_temperature_is_learned_unless_it_is_frozen(features):
    head = models.HEADS["sparc"](**HEADS["sparc"])
    model = models.build("clip", "mini", image=SHALLOW, text=SHALLOW).clone(
        head=head, logit_scale_init=3.0
    )
    image, text = features
    batch = stored(image, text=text)
    batch |= {"mask": np.ones(PAIRS, bool), "stop": np.zeros(PAIRS, bool)}
    params = jax.jit(model.init)(jax.random.key(0), batch)["params"]
    scores = apply(model, {"params": params}, batch).scores
    moved = []
    for frozen in ((), ("logit_scale",)):
        config = default.get_config()
        config.batch_size, config.optimizer.warmup_steps = PAIRS, 1
        config.frozen, config.init_from = ("image", "text", *frozen), "towers"
        run = setup.step_setup(config, model, 9)
        trained, kept = run.parameters.split(params)
        step = jax.jit(train_step.make_step(run))
        optimizer = jax.jit(run.optimization.optimizer.init)(trained)
        state = State(jax.device_put(np.int32(0)), trained, optimizer, {})
        for _ in range(2):  # the rate of the first step is 0
            state = step(state, kept, batch)[0]
        after = run.parameters.merge(kept, state.params)
        moved.append(float(after["logit_scale"]) - float(params["logit_scale"]))

    def loss(scale):
        logits = scale * np.asarray(scores, np.float64)
        sums = [np.log(np.exp(logits).sum(axis)) for axis in (0, 1)]
        return np.mean(sum(sums) / 2 - np.diag(logits))

    assert np.sign(moved[0]) == np.sign(loss(2.99) - loss(3.01))
    assert abs(moved[0]) > 1e-4
    assert moved[1] == 0
