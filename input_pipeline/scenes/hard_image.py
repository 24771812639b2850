"""Hard images: the same picture with two objects or colours exchanged, or one object replaced.

The captions of the two pictures are counterparts ("X left of Y", "Y left of X"), each false for the
other picture: a hard negative of one is the caption of the other.
"""

import dataclasses
import functools
from typing import NamedTuple

from vlc_jax.input_pipeline.scenes import contrast, grammar, sample
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.input_pipeline.scenes.grammar import Caption, Style
from vlc_jax.input_pipeline.scenes.stream import Stream
from vlc_jax.input_pipeline.scenes.world import Scene, World

KINDS = ("relation", "attribute", "negation", "denial")

# scenes; in the named worlds two in three have a hard image
_TRIES = 1000
# index offset from one try to the next: beyond the index of any record
_SERIES = 2**40


class Pair(NamedTuple):
    """A scene with a caption, and its hard image with the counterpart of the caption."""

    kind: str
    scene: Scene
    caption: Caption
    hard_scene: Scene
    hard_caption: Caption


def draw_pair(world: World, split: str, index: int, style: Style, shares: dict[str, float]) -> Pair:
    """Pair `index` of a split, a pure function of the arguments.

    relation   two objects exchange positions; a relation caption and its `contrast.reverse`
    attribute  two objects exchange colours; a list caption with both, and its `contrast.swap`
    negation   Z is replaced by an absent Y; "X and no Y", and "X and no Z"
    denial     Z is replaced by an absent shape; "X and Z" or a relation caption, and its
               `contrast.negate`, "X and no Z"

    The kind is drawn first, from `shares`; then scenes (`index` of the split, then others) and
    captions are drawn until the kind is possible, so shares are exact. Apart from kind, colours
    and `completeness`, captions follow `style`. No change creates a held-out shape-colour pair.

    Raises ValueError for a world whose scenes hardly ever allow the kind.
    """
    # The kind before the scene: skipping scenes that lack a kind must not lower its share.
    stream = Stream(f"{world.id}/{split}/{index}/hard_image")
    total = sum(shares.values())
    kind = list(shares)[stream.weighted([share / total for share in shares.values()])]
    makers = (_relation, _attribute, _negation, _denial)
    make = dict(zip(KINDS, makers, strict=True))[kind]
    for attempt in range(_TRIES):
        scene = sample.sample_scene(world, split, index + attempt * _SERIES)
        pair = make(scene, stream, _style_of(style, kind)) if len(scene.objects) > 1 else None
        if pair is not None and _is_exact(pair):
            return pair
    raise ValueError(
        f"none of {_TRIES} scenes of world {world.id!r} has a hard image of kind {kind!r}; it "
        f"needs two objects (world_options counts) that a caption tells apart"
    )


@functools.cache
def _style_of(style: Style, kind: str) -> Style:
    """The style with captions of one kind only; of a denial, lists and relations as in `style`."""
    shares = {name: float(kind == name) for name in ("relation", "negation")}
    if kind == "denial":
        shares["relation"] = style.relation
    # a pair needs two objects, whatever share of them other captions name
    style = dataclasses.replace(style, completeness=None, saliency=0.0)
    return dataclasses.replace(style, count=0.0, place=0.0, single=0.0, **shares)


def _relation(scene: Scene, stream: Stream, style: Style) -> Pair | None:
    caption = grammar.describe(scene, stream, style)
    hard_caption = contrast.reverse(caption, scene)
    if hard_caption is None:
        return None
    i, j = (_object(scene, phrase.shape) for phrase in caption.phrases)
    hard_scene = worlds.reverse_relation(scene, i, j)
    if hard_scene is None:
        return None
    return Pair("relation", scene, caption, hard_scene, hard_caption)


def _attribute(scene: Scene, stream: Stream, style: Style) -> Pair | None:
    caption = grammar.describe(scene, stream, style)
    if caption.kind != "list":
        return None
    phrases = list(caption.phrases)
    a, b = sorted(stream.sample(len(phrases), 2))
    i, j = (_object(scene, phrases[k].shape) for k in (a, b))
    for k, index in ((a, i), (b, j)):
        colour = phrases[k].colour or scene.objects[index].colour
        phrases[k] = phrases[k]._replace(colour=colour)
    caption = caption._replace(phrases=tuple(phrases))
    hard_caption = contrast.swap(caption, scene, "colour", (a, b))
    if hard_caption is None:
        return None
    hard_scene = worlds.exchange(scene, i, j, "colour")
    return Pair("attribute", scene, caption, hard_scene, hard_caption)


def _negation(scene: Scene, stream: Stream, style: Style) -> Pair | None:
    caption = grammar.describe(scene, stream, style)
    affirmed, absent = caption.phrases
    j = stream.choice([k for k in range(len(scene.objects)) if k != _object(scene, affirmed.shape)])
    present = scene.objects[j]
    # the changed object keeps its colour, which may make a held-out pair
    if (absent.shape, present.colour) in scene.world.held_combinations:
        return None
    objects = list(scene.objects)
    objects[j] = present._replace(shape=absent.shape)
    hard_caption = caption._replace(phrases=(affirmed, absent._replace(shape=present.shape)))
    return Pair("negation", scene, caption, scene._replace(objects=tuple(objects)), hard_caption)


def _denial(scene: Scene, stream: Stream, style: Style) -> Pair | None:
    caption = grammar.describe(scene, stream, style)
    hard_caption = contrast.negate(caption, scene)
    if hard_caption is None:
        return None
    j = _object(scene, caption.phrases[1].shape)
    objects, shape = list(scene.objects), stream.choice(grammar.absent_shapes(scene))
    if (shape, objects[j].colour) in scene.world.held_combinations:
        return None
    objects[j] = objects[j]._replace(shape=shape)
    return Pair("denial", scene, caption, scene._replace(objects=tuple(objects)), hard_caption)


def _object(scene: Scene, shape: str) -> int:
    """Index of the first object of a shape; only copies share one, which `_is_exact` checks."""
    return next(i for i, obj in enumerate(scene.objects) if obj.shape == shape)


def _is_exact(pair: Pair) -> bool:
    """True if each caption is true for its own picture and false for the other one."""
    return (
        grammar.is_true(pair.caption, pair.scene)
        and grammar.is_true(pair.hard_caption, pair.hard_scene)
        and not grammar.is_true(pair.caption, pair.hard_scene)
        and not grammar.is_true(pair.hard_caption, pair.scene)
    )
