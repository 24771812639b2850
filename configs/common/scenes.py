"""CLIP on the embedded scenes, and the evaluation sets of the scenes."""

from ml_collections import ConfigDict

from vlc_jax.configs import default


def make(
    steps: int = 1000, world: str = "scenes-mini", split: str = "validation", pooling: str = "cls"
) -> ConfigDict:
    """CLIP trained on the scenes for `steps` steps; arguments as in configs/scenes/clip.py."""
    config = default.get_config()
    with config.unlocked():
        config.steps = steps
        config.eval.every = config.steps // 2
        config.model.image.pooling = pooling
        config.input.scenes.world = config.text.scenes.world = world
        config.evals = ConfigDict(evaluations(split, world=world))
    return config


def siglip(steps: int = 1000, world: str = "scenes-mini", split: str = "validation") -> ConfigDict:
    """CLIP's towers and data with SigLIP's loss, scale and bias; see configs/scenes/siglip.py."""
    config = make(steps, world, split)
    with config.unlocked():
        config.losses = ConfigDict({"sigmoid": default.loss(weight=1.0)})
        config.model.logit_scale_init = 10.0
        config.model.logit_bias_init = -10.0
        config.model.logit_scale_max = None  # published SigLIP checkpoints lie above CLIP's 100
    return config


def evaluations(
    split: str = "validation",
    count: int = 2000,
    candidates: int = 1000,
    world: str = "scenes-mini",
    more: tuple[str, ...] = (),
) -> dict:
    """Every evaluation set of the scenes: `count` cases each, retrieval among `candidates`.

    more: further sets, such as "scenes_spatial", the questions of "scenes_whatsup".
    """
    retrieval = ("scenes_retrieval", "scenes_held_retrieval")
    cases = (
        "scenes_zero_shot_objects",
        "scenes_zero_shot_colours",
        "scenes_objects",
        "scenes_attributes",
        "scenes_attribute_swap",
        "scenes_relation_swap",
        "scenes_replace",
        "scenes_replace_unseen",
        "scenes_swap",
        "scenes_swap_relation",
        "scenes_order",
        "scenes_whatsup",
        "scenes_negation",
        "scenes_held_attribute_swap",
        "scenes_held_relation_swap",
    )
    counts = dict.fromkeys(retrieval, candidates) | dict.fromkeys((*cases, *more), count)
    return {name: {"split": split, "count": n, "world": world} for name, n in counts.items()}


def geometry(split: str, count: int = 1000, world: str = "scenes-mini") -> dict:
    """Diagnostics of embeddings: conditions of an ideal CLIP, superposition, a linear probe of
    binding, the distance of the two images of a pair, and accuracies of unpooled tokens."""
    where = {"split": split, "world": world}
    return {
        "scenes_conditions": where,
        "scenes_superposition": where | {"count": count},
        "scenes_binding": where,
        "scenes_binding_relation": where | {"reader": "scenes_binding", "kind": "relation"},
        "scenes_pair_geometry": where
        | {"reader": "scenes_whatsup", "geometry": True, "count": count},
        **{
            f"scenes_{name}_tokens": where
            | {"reader": f"scenes_{name}", "tokens": True, "count": count}
            for name in ("objects", "attribute_swap")
        },
    }
