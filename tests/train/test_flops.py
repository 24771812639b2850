"""FLOPs of a jaxpr against open_clip's docs/model_profile.csv and against XLA's own count."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax._src.cudnn import fused_attention_stablehlo as cudnn

from tests.support import tiny
from tests.support.marks import slow_but
from vlc_jax import losses, models, types
from vlc_jax.configs import default
from vlc_jax.models import attention, dcsm_network
from vlc_jax.models.parameters import Parameters
from vlc_jax.plan import step_jaxpr
from vlc_jax.setup import plan_search
from vlc_jax.train import flops

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


def count(function, *shapes):
    return flops.count(jax.make_jaxpr(function)(*shapes))


@functools.cache  # B/16 and B/32 have the same text tower
def tower_flops(tower, shape, dtype):
    # the profile counts every block on every token, and the projection of one token
    request = types.FeatureRequest("projected")
    array = jax.ShapeDtypeStruct(shape, dtype)
    one = tower.clone(depth=1)  # init traces each block, and all blocks have the same shapes
    params = jax.eval_shape(lambda key, array: one.init(key, array, request),
                            jax.random.key(0), array)["params"]  # fmt: skip
    params |= {f"block_{index}": params["block_0"] for index in range(tower.depth)}
    variables = {"params": params}
    return count(lambda *given: tower.apply(*given, request).pooled, variables, array)


@pytest.mark.parametrize("variant", slow_but(("B/32", "SigLIP-B/16", "EVA02-B/16"), PROFILE))
def test_forward_flops_are_those_of_the_published_profile(variant):
    model = models.build("clip", variant, scan_layers=True)
    batch = jax.eval_shape(lambda: models.example_batch(model))
    for part, expected in zip(("image", "text"), PROFILE[variant], strict=True):
        counted = tower_flops(getattr(model, part), batch[part].shape, batch[part].dtype)
        assert counted.model / 1e9 == pytest.approx(expected, abs=0.0051)
        assert counted.executed == counted.model


def step(*more_losses, **fields):
    """FLOPs of a training step of a shallow model."""
    config = tiny.get_config().copy_and_resolve_references()
    with config.unlocked():
        config.model.image.depth = config.model.text.depth = 2
        config.losses.update({name: default.loss(weight=1.0) for name in more_losses})
        config.update_from_flattened_dict({k.replace("__", "."): v for k, v in fields.items()})
    return flops.count(step_jaxpr._jaxpr(next(plan_search.planned(config))))


@pytest.fixture(scope="module")
def plain():
    return step()


EXECUTED = {
    "remat": {"model__remat": "block", "model__scan_layers": True},
    "microbatch": {"microbatch": 8},
    "sub_batches": {"sub_batches": 2},
    "chunked": {"losses__infonce__implementation": "chunked", "losses__infonce__chunk": 8},
}


@pytest.mark.parametrize("case", slow_but(("remat",), EXECUTED))
def test_rematerialised_work_is_executed_work_alone(plain, case):
    assert plain.executed == plain.model
    counted = step(**EXECUTED[case])
    # sub-batches have fewer scores, and a chunked loss computes its own
    assert counted.model == pytest.approx(plain.model, rel=1e-3)
    least = 1 if case == "chunked" else 1.1
    assert least * plain.model < counted.executed < 1.4 * plain.model


def test_a_frozen_tower_counts_once_and_every_text_counts(plain):
    forward = step(frozen=("text", "logit_scale"), init_from="x").model
    text = (plain.model - forward) / 2
    more = step("negclip", input__negatives__count=2).model
    assert more == pytest.approx(plain.model + 2 * 3 * text, rel=0.01)


def test_a_strided_convolution_counts_as_often_as_its_products():
    """The gradient for its input has zeros between the gradients of its outputs."""
    x, kernel = jnp.zeros((2, 16, 16, 3)), jnp.zeros((2, 2, 3, 8))

    def total(x, kernel):
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, kernel, (2, 2), "VALID", dimension_numbers=numbers
        ).sum()

    forward = 2 * (2 * 8 * 8 * 8) * (2 * 2 * 3)
    assert count(total, x, kernel).model == forward
    assert count(jax.grad(total, (0, 1)), x, kernel).model == 2 * forward


def test_the_shifts_of_dcsm_count_as_the_convolution():
    x, kernel = jnp.zeros((1, 5, 7, 3)), jnp.zeros((4, 1, 3, 3))
    counts = []
    for convolve in (dcsm_network.shifted, dcsm_network.convolved):
        gradient = jax.grad(lambda *each, f=convolve: (f(*each) ** 2).sum(), (0, 1))
        counts.append(count(gradient, x, kernel))
    assert counts[0] == counts[1]
    assert counts[0].model == 3 * 2 * (4 * 5 * 7 * 3) * 9


@pytest.mark.parametrize("length", [6, 7])
def test_the_attention_of_cudnn_counts_as_that_of_xla(monkeypatch, length):
    monkeypatch.setattr(cudnn, "check_cudnn_version", lambda: 91_000)
    monkeypatch.setattr(cudnn, "check_is_flash_attention", lambda *arguments: None)
    query = jax.ShapeDtypeStruct((2, length, 3, 8), jnp.bfloat16)

    def gradient(implementation):
        def total(*arrays):
            return (attention.full_attention(*arrays, False, implementation) ** 2).sum()

        return count(jax.grad(total, (0, 1, 2)), query, query, query)

    ours, xla = gradient("cudnn"), gradient("xla")
    padded = length + length % 2  # cuDNN's lengths are even
    assert ours.model == pytest.approx(xla.model * (padded / length) ** 2)
    assert ours.executed == pytest.approx(
        ours.model * 7 / 6
    )  # the scores again, in the backward pass


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dcsm", {"layout": "grid", "standardise": "per_pair"}),
        ("pacl", {"pooling": "own_caption"}),
        ("sparc", {}),
        ("labclip", {}),
    ],
)
def test_flops_of_a_head_are_those_of_its_compiled_gradient(name, options):
    one, size = {"depth": 1}, 4
    model = models.build(name, "B/32", head=options, context_length=30, image=one, text=one)
    shapes = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    parameters = Parameters(model, 0, shapes, ("image", "text"))
    params, _ = parameters.split({part: shapes[part] for part in ("head", "logit_scale")})
    batch = jax.eval_shape(lambda: models.example_batch(model, size))
    rest = {"text": batch["text"], "mask": jax.ShapeDtypeStruct((size,), bool)}
    rest |= {key: batch[key] for key in ("text_marks",) if key in batch}
    features = jax.eval_shape(
        lambda params, batch: model.apply({"params": params}, batch, method="tower_features"),
        shapes,
        batch,
    )

    def loss(params, features, rest):
        rngs = {"dropout": jax.random.key(0)}
        outputs = model.apply({"params": params}, {**features, **rest}, rngs=rngs)
        names = ("infonce", "sparc_local") if name == "sparc" else ("infonce",)
        return losses.total({name: {"weight": 1.0} for name in names}, outputs, rest)[0]

    gradient = jax.value_and_grad(loss)
    xla = jax.jit(gradient).lower(params, features, rest).cost_analysis()["flops"]
    counted = count(gradient, params, features, rest)
    # XLA also counts norms, sigmoid, GELU; not what a convolution does on the padding
    least = 0.85 if options.get("layout") == "grid" else 0.99
    assert least * counted.model <= xla < 1.12 * counted.model
