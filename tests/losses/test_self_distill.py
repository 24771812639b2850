"""The losses of SILC and TIPS: cross entropy between a student and its teacher over prototypes.

Padding, explicit meshes and a batch without masks: tests over all losses in this folder.
"""

import jax
import numpy as np
import pytest

from tests.losses import oracle
from tests.losses.conftest import per_example
from vlc_jax import errors, losses

# loss -> logits of the student and of the teacher in tests/losses/conftest.py
LOGITS = {
    "self_distill": ("positive", "teacher_image"),
    "masked_patches": ("negative", "teacher_negative"),
}
OPTIONS = {"student_temperature": 0.2, "teacher_temperature": 0.07}


def softmax(x):
    powers = np.exp(x - x.max())
    return powers / powers.sum()


def of_example(student, teacher, student_temperature=0.1, teacher_temperature=0.04):
    """The mean over the rows of `student` of -p log q, with p by the row of `teacher` or its only
    one (Caron et al. 2021, equation 1; iBOT, equation 2)."""
    values = []
    for n, row in enumerate(np.asarray(student, np.float64)):
        given = np.asarray(teacher, np.float64)
        given = given if given.ndim == 1 else given[n]
        target = softmax((given - oracle.CENTRE) / teacher_temperature)
        values.append(-(target * np.log(softmax(row / student_temperature))).sum())
    return np.mean(values)


def expected_of(name, batch, **options):
    student, teacher = (batch[key][..., :3] for key in LOGITS[name])
    return np.array([of_example(*pair, **options) for pair in zip(student, teacher, strict=True)])


@pytest.mark.parametrize("options", [{}, OPTIONS], ids=["defaults", "other temperatures"])
@pytest.mark.parametrize("name", LOGITS)
def test_a_loss_is_cross_entropy_with_the_centred_teacher(batch, name, options):
    found = per_example(name, batch, **options)
    np.testing.assert_allclose(found, expected_of(name, batch, **options), rtol=1e-5)


@pytest.mark.parametrize("name", LOGITS)
def test_the_gradient_is_numpys_and_none_reaches_the_teacher(all_outputs, batch, name):
    mask = batch["mask"]

    def value(outputs, mask):
        return losses.total({name: {"weight": 1.0}}, outputs, {"mask": mask})[0]

    slopes = jax.device_get(jax.jit(jax.grad(value, allow_int=True))(all_outputs, mask))
    key = LOGITS[name][0]
    found = slopes.view_logits.crops if name == "self_distill" else slopes.view_logits.masked
    rng = np.random.default_rng(0)
    direction = rng.normal(size=found.shape)

    def mean(step):
        moved = batch[key].astype(np.float64)
        moved[..., :3] += step * direction
        return expected_of(name, {**batch, key: moved})[mask].mean()

    slope = (mean(1e-5) - mean(-1e-5)) / 2e-5
    assert abs(slope) > 0.05
    np.testing.assert_allclose(np.sum(direction * found), slope, rtol=1e-5)
    for still in (slopes.teacher.view_logits[:3], slopes.centres):
        assert not any(np.any(x) for x in jax.tree.leaves(still))


def test_the_next_centre_is_a_moving_average_of_real_rows(all_outputs, batch):
    terms = {
        "crops": {"loss": "self_distill", "weight": 1.0, "centre_momentum": 0.75},
        "masked_patches": {"weight": 0.0},
    }
    call = jax.jit(lambda o, mask: losses.centres(terms, o, {"mask": mask}))
    found = call(all_outputs, batch["mask"])
    for name, key, momentum in (
        ("self_distill", "teacher_image", 0.75),
        ("masked_patches", "teacher_text", 0.9),  # of all patches
    ):
        logits = batch[key][batch["mask"]][:, :3]
        expected = momentum * np.array(oracle.CENTRE) + (1 - momentum) * logits.mean(axis=0)
        np.testing.assert_allclose(found[name], expected, rtol=1e-5)
    # a batch of padding alone has no mean
    for centre in call(all_outputs, np.zeros(24, bool)).values():
        np.testing.assert_allclose(centre, oracle.CENTRE, rtol=1e-6)
    assert losses.centres({"infonce": {"weight": 1.0}}, all_outputs) == {}


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("view_logits", r"config\.model\.name='self_distilled'"),
        ("centres", r"zeros\(prototypes\).*losses\.centres"),
        ("teacher", "need a teacher"),
    ],
)
def test_what_outputs_lack_is_named(all_outputs, missing, message):
    for name in LOGITS:
        with pytest.raises(errors.UsageError, match=message):
            losses.total({name: {"weight": 1.0}}, all_outputs._replace(**{missing: None}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"self_distill": {"teacher_temperature": 0.0}}, "positive number; got 0.0"),
        ({"self_distill": {"centre_momentum": 1.5}}, "share in .* got 1.5"),
        ({"self_distill": {"crops": 0}}, "crops .* from 1 on; got 0"),
        ({"self_distill": {"size": -8}}, "size .* from 0 on; got -8"),
        ({"self_distill": {"scale": (0.5, 0.1)}}, r"low <= high .* got \(0.5, 0.1\)"),
        ({"self_distill": {"scale": (0.1, 0.2, 0.3)}}, "low <= high .* got .*0.3"),
        ({"self_distill": {"student_temperature": np.inf}}, "positive number; got inf"),
        ({"masked_patches": {"ratio": 1.5}}, "ratio .* share in .* got 1.5"),
        ({"masked_patches": {"ratio": 0.0}}, "ratio of masked_patches is above 0"),
        ({"text_grounded": {"logit_scale": -10.0}}, "positive number; got -10"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(errors.UsageError, match=message):
        losses.check({name: {"weight": 1.0, **more} for name, more in options.items()})


def test_losses_share_a_teacher_of_one_decay():
    terms = {name: {"weight": 1.0, "decay": 0.25} for name in losses.TEACHERS}
    assert losses.teacher_decay(terms) == 0.25
    assert losses.teacher_decay({"masked_patches": {"weight": 1.0}}) == 0.996
    with pytest.raises(errors.UsageError, match=r"one teacher.* got .*'self_distill': 0\.5"):
        losses.teacher_decay({**terms, "self_distill": {"weight": 1.0, "decay": 0.5}})
