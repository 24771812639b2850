"""Loss and gradients of the methods, by their recipes, are those of torch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from tests.parity.test_towers import HF, HF_SIGLIP
from vlc_jax import losses, models, weights
from vlc_jax.configs import (
    c2lip,
    ce_clip,
    clic,
    conclip,
    csclip,
    dac,
    degla,
    flair,
    fsc_clip,
    hp_hn,
    leftright,
    negclip,
    pacl,
    read_clip,
    sparc,
    tripletclip,
)
from vlc_jax.setup.init_from import architecture

pytestmark = pytest.mark.slow

FILES = "weights=clip.pt,path=train.json"  # which no config opens
# case of methods_reference.py -> our recipe of the published row, and its arguments
RECIPES = {
    "hp_hn": (hp_hn, f"data=coco,hn_weight=0.5,{FILES}"),
    "sigmoid_negatives": (leftright, f"data=coco,family=siglip,{FILES}"),
    "flair": (flair, "data=coco,path=train.json"),
    "read_clip": (read_clip, f"data=coco,{FILES}"),
    "pacl_own": (pacl, f"data=llava,rope=feature_1d,{FILES}"),
    "pacl_pairs": (pacl, f"data=llava,pooling=pairwise,{FILES}"),
    "sparc": (sparc, f"data=llava,rope=feature_1d,{FILES}"),
}

# shares of a sum of losses, in one program: 1, 2, ... of their sum
TOGETHER = {
    "hard_texts": [
        (negclip, f"data=coco,hard_images=0,{FILES}"),
        (dac, f"data=coco,negatives=rule,{FILES}"),
        *((recipe, f"data=coco,{FILES}") for recipe in (tripletclip, conclip, csclip, clic)),
    ],
    # our loss, and that of the released code
    **{
        name: [(recipe, f"data=coco{more},{FILES}") for more in (rest, f",as_released{rest}")]
        for name, recipe, rest in (
            ("ce_clip", ce_clip, ""),
            ("degla", degla, ""),
            ("c2lip", c2lip, ",phrases=table"),
            ("fsc_clip", fsc_clip, ""),
        )
    },
}


def build(config: ConfigDict):
    """The tiny model of the recipe; dropout, whose random numbers differ, is left out."""
    dropout = {"dropout": 0.0} if config.model.name in ("pacl", "sparc") else {}
    head = {**config.model.head, **dropout}
    is_sigmoid = any(name.startswith("sigmoid") for name in config.losses)
    sizes = {**HF_SIGLIP, "logit_bias_init": -10.0} if is_sigmoid else HF
    return models.build(config.model.name, head=head, **sizes)


def of_attention(io, kind):
    """The arrays of torch's attention and norms, by the names of FLAIR's head."""
    tree = {"out": {"kernel": io[f"{kind}/attention.out_proj.weight"].T}}
    tree["out"]["bias"] = io[f"{kind}/attention.out_proj.bias"]
    kernels, biases = (np.split(io[f"{kind}/attention.in_proj_{x}"], 3) for x in ("weight", "bias"))
    for n, name in enumerate(("query", "key", "value")):
        tree[name] = {"kernel": kernels[n].T, "bias": biases[n]}
        tree[f"{name}_norm"] = {"scale": io[f"{kind}/norm.{n}.weight"]}
        tree[f"{name}_norm"]["bias"] = io[f"{kind}/norm.{n}.bias"]
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree)


def of_head(io, kind):
    """The arrays of torch's head by our names."""
    if f"{kind}/norm.0.weight" in io:
        return of_attention(io, kind)
    tree = {}
    for name in [name for name in io if name.startswith(f"{kind}/")]:
        embedder, layer, leaf = name.partition("/")[2].split(".")
        is_matrix = leaf == "weight" and layer != "norm"
        ours = "bias" if leaf == "bias" else "kernel" if is_matrix else "scale"
        tree.setdefault(embedder, {}).setdefault(layer, {})[ours] = io[name].T
    return tree


@pytest.mark.parametrize("case", [*RECIPES, *TOGETHER])
def test_loss_and_every_gradient_are_those_of_torch(there, tmp_path, case):
    recipes = TOGETHER.get(case) or [RECIPES[case]]
    config, *others = (recipe.get_config(arguments) for recipe, arguments in recipes)
    there("methods_reference.py", case, tmp_path)
    with np.load(tmp_path / "io.npz") as saved:
        io = dict(saved)
    model = build(config)
    shapes = dict(jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0)))
    head_shapes = shapes.pop("head", {})

    def tree(folder, kind):
        read, _ = weights.load(tmp_path / folder, shapes, architecture(model))
        whole = {**read, "head": of_head(io, kind)} if head_shapes else read
        return jax.device_put(whole)

    params, expected = tree("before", "head"), tree("gradient", "head_gradient")
    batch = {key: x for key, x in io.items() if key.endswith(("image", "text", "mask"))}
    batch |= {"mask": np.ones(len(io["image"]), bool)}
    batch |= {"id": np.arange(2 * len(io["image"]), dtype=np.uint32).reshape(-1, 2)}

    teacher = tree("teacher", "head") if "distill" in config.losses else None
    thresholds = jax.device_put(
        np.array([0.5, 20.0, -1.0, 2.0], np.float32)
    )  # those of methods_reference.py

    def loss(params, batch):
        outputs = model.apply({"params": params}, batch)._replace(thresholds=thresholds)
        if teacher is not None:
            outputs = outputs._replace(teacher=model.apply({"params": teacher}, batch))
        shares = np.arange(1, 1 + len(recipes)) / np.arange(1, 1 + len(recipes)).sum()
        every = (config, *others)
        totals = (losses.total(x.losses.to_dict(), outputs, batch)[0] for x in every)
        following = [losses.thresholds(x.losses.to_dict(), outputs, batch) for x in every]
        return sum(share * total for share, total in zip(shares, totals, strict=True)), following

    def evaluated(params, batch):
        def score(module):
            image, text = module.encode_image(batch["image"]), module.encode_text(batch["text"])
            return module.score(image, text)

        return model.apply({"params": params}, method=score)

    step = jax.jit(
        lambda *given: (jax.value_and_grad(loss, has_aux=True)(*given), evaluated(*given))
    )
    ((value, following), gradient), scores = step(params, batch)
    if "thresholds" in io:
        np.testing.assert_allclose(following, io["thresholds"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(value, io["loss"], rtol=1e-5)
    np.testing.assert_allclose(scores, io["scores"], atol=1e-5)
    assert np.ptp(io["scores"]) > 0.05
    largest = max(float(np.abs(x).max()) for x in jax.tree.leaves(expected))

    def check(path, ours, theirs):
        name = jax.tree_util.keystr(path)
        np.testing.assert_allclose(ours, theirs, atol=2e-5 * largest, err_msg=name)

    jax.tree_util.tree_map_with_path(check, gradient, expected)
