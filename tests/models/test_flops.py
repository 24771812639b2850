"""Analytic FLOPs against open_clip's docs/model_profile.csv and against XLA's own count."""

import jax
import jax.numpy as jnp
import pytest

from vlc_jax import losses, models, types
from vlc_jax.models import dcsm_network, flops
from vlc_jax.models.parameters import Parameters, merge_trees

# image_gflops, text_gflops of docs/model_profile.csv (two decimals, 2 FLOPs per multiply-add)
PROFILE = {
    "S/16": (9.2, 3.38),
    "B/32": (8.82, 5.96),
    "B/16": (35.13, 5.96),
    "L/14": (162.03, 13.3),
    "L/14-336": (381.92, 13.3),
    "H/14": (334.59, 47.09),
    "g/14": (534.06, 47.09),
    "SigLIP-B/16": (35.42, 11.02),
    "SigLIP-L/16-256": (162.56, 39.06),
    "SigLIP-SO400M/14-384": (670.35, 53.13),
    "EVA02-B/16": (35.13, 5.96),
    "EVA02-L/14": (162.0, 13.3),
    "EVA02-L/14-336": (381.86, 13.3),
}


@pytest.mark.parametrize("variant", PROFILE)
def test_forward_flops_are_those_of_the_published_profile(variant):
    model = models.build("clip", variant)
    image, text = PROFILE[variant]
    assert flops.image_tower(model.image, tokens=True) / 1e9 == pytest.approx(image, abs=0.0051)
    assert flops.text_tower(model.text, tokens=True) / 1e9 == pytest.approx(text, abs=0.0051)


def test_shorter_texts_cost_less():
    text = models.build("clip", "B/32").text
    assert flops.text_tower(text, length=32, tokens=True) / 1e9 == pytest.approx(2.44, abs=0.0051)


@pytest.mark.parametrize("variant", ["mini", "B/32", "SigLIP-B/16", "EVA02-B/16"])
@pytest.mark.parametrize("tokens", [False, True])
def test_flops_are_those_of_the_program_that_runs(variant, tokens):
    model = models.build("clip", variant)
    params = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    batch = jax.eval_shape(lambda: models.example_batch(model))
    for part, expected in (
        ("image", flops.image_tower(model.image, tokens=tokens)),
        ("text", flops.text_tower(model.text, tokens=tokens)),
    ):

        def tower(module, array, part=part):
            return getattr(module, part)(
                array, types.FeatureRequest("projected" if tokens else "none")
            )

        def encode(params, array, tower=tower):
            features = model.apply({"params": params}, array, method=tower)
            return features.pooled  # so that the projection of the other tokens is dropped

        counted = jax.jit(encode).lower(params, batch[part]).cost_analysis()["flops"]
        assert expected <= counted < 1.07 * expected  # XLA also counts norms, softmax, GELU


def test_training_costs_three_forwards_and_a_frozen_tower_one():
    model = models.build("clip", "B/32")
    assert flops.train_step(model, tokens=True) / 1e9 == pytest.approx(44.3, abs=0.051)
    image, text = flops.image_tower(model.image), flops.text_tower(model.text)
    assert flops.train_step(model) == 3 * (image + text)
    assert flops.train_step(model, frozen=("image",)) == image + 3 * text
    assert flops.train_step(model, texts=3) == 3 * (image + 3 * text)
    assert flops.train_step(model, texts=3, frozen=("text",)) == 3 * image + 3 * text


@pytest.mark.parametrize(
    ("name", "options", "size", "rules"),
    [
        ("dcsm", {}, 4, ("head/functional_words",)),
        ("dcsm", {"layout": "grid", "standardise": "per_pair"}, 4, ("head/functional_words",)),
        ("dcsm", {"network": "mlp"}, 4, ()),
        ("pacl", {}, 4, ()),
        ("pacl", {"chunk": 64}, 64, ()),  # more texts than patches, in one part
        ("pacl", {"pooling": "own_caption"}, 4, ()),
        ("sparc", {}, 4, ()),
        ("labclip", {}, 64, ()),
    ],
)
@pytest.mark.parametrize("frozen", [(), ("image", "text")])
def test_flops_of_a_head_are_those_of_its_gradient(monkeypatch, name, options, size, rules, frozen):
    # a loop is counted once, not per round
    monkeypatch.setattr(dcsm_network, "shifted", dcsm_network.convolved)
    one = {"depth": 1}
    model = models.build(name, "B/32", head=options, context_length=30, image=one, text=one)
    shapes = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    parameters = Parameters(model, 0, shapes, rules)
    heads = {part: shapes[part] for part in ("head", "logit_scale")}
    params, fixed = parameters.split(heads)
    batch = stored(model, size)

    def loss(params, features, fixed, rest):
        rngs = {"dropout": jax.random.key(0)}
        variables = {"params": merge_trees(fixed, params)}
        outputs = model.apply(variables, {**features, **rest}, rngs=rngs)
        names = ("infonce", "sparc_local") if name == "sparc" else ("infonce",)
        return losses.total({name: {"weight": 1.0} for name in names}, outputs, rest)[0]

    rest = {key: batch.pop(key) for key in ("text", "text_marks", "mask") if key in batch}
    gradient = jax.value_and_grad(loss, argnums=0 if frozen else (0, 1))
    counted = jax.jit(gradient).lower(params, batch, fixed, rest).cost_analysis()["flops"]
    trained = parameters.trained_share("head")
    expected = size * flops.head(model, pairs=size, frozen=frozen, trained=trained)
    # XLA also counts norms, sigmoid, GELU; not what a convolution does on the padding
    least = 0.88 if options.get("layout") == "grid" else 0.99
    assert least * expected <= counted < 1.12 * expected


def stored(model, batch):
    """Shapes of `batch` rows of stored features, as `model.head` requests them."""
    sizes = model.image.grid**2 + 1, model.text.context_length
    rows = {"text": jax.ShapeDtypeStruct((batch, sizes[1]), jnp.int32)}
    rows["mask"] = jax.ShapeDtypeStruct((batch,), bool)
    if getattr(model.head, "num_functional_words", 0):
        rows["text_marks"] = jax.ShapeDtypeStruct((batch, sizes[1]), "int8")
    towers = {"image": model.image, "text": model.text}
    for (part, tower), request, count in zip(
        towers.items(), model.head.requests, sizes, strict=True
    ):
        rows[f"{part}_pooled"] = jax.ShapeDtypeStruct((batch, tower.projection), jnp.float32)
        if request.has_tokens:
            width = tower.projection if request.tokens == "projected" else tower.width
            rows[f"{part}_tokens"] = jax.ShapeDtypeStruct((batch, count, width), jnp.float32)
    return rows
