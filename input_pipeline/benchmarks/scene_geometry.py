"""Scenes that differ in one property: sets that measure the geometry of embeddings.

The conditions of an ideal CLIP, and the four steps of the proof that none exists, from "Is CLIP
ideal? No. Can we fix it? Yes!" (ICCV 2025), on exact images: single objects, attribute and object,
compositions of two, and their counterparts with swapped colours or a reversed relation. The
difference between two renderings of one scene (background, noise, shades) is the reference for
other differences.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.benchmarks.scene_set import Where, collect, where_of
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.scenes import draw, grammar, sample
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.input_pipeline.scenes.grammar import Caption, Phrase
from vlc_jax.input_pipeline.scenes.stream import Stream, normal_table
from vlc_jax.input_pipeline.scenes.world import Scene, SceneObject, World

# version of the questions; `World.version` covers the images
VERSION = 2
# pairs of coloured shapes in `binding`, each with a probe of its own
PAIRS = 20
# placements per pair to fit its probe
LEARNED = {"training": 48, "validation": 16}
# index of their first scene, beyond the scenes of all cases
_LEARNED_FROM = 10_000_000


class Views(NamedTuple):
    """A two-object scene, "a red circle left of a blue square", and its variations.

    third: an object of another shape and colour, with position and size of the second object.
    """

    scene: Scene
    stream: Stream
    third: SceneObject

    @property
    def objects(self) -> tuple[SceneObject, SceneObject]:
        first, second = self.scene.objects
        return first, second

    def of(self, *objects: SceneObject) -> Scene:
        """The same image with other objects."""
        return self.scene._replace(objects=objects)

    @property
    def first(self) -> Scene:
        """The first object alone, in place."""
        return self.of(self.objects[0])

    @property
    def second(self) -> Scene:
        """The second object alone, in place."""
        return self.of(self.objects[1])

    @property
    def recoloured(self) -> Scene:
        """The first object alone, in the colour of the second."""
        first, second = self.objects
        return self.of(first._replace(colour=second.colour))

    @property
    def replaced(self) -> Scene:
        """One object: shape and colour of the second, position of the first."""
        first, second = self.objects
        return self.of(first._replace(shape=second.shape, colour=second.colour))

    @property
    def moved(self) -> Scene:
        """The first object alone, at the position of the second."""
        first, second = self.objects
        # a big object must not leave the canvas where a small one was
        edge = self.scene.world.canvas - first.pixels
        return self.of(first._replace(x=min(second.x, edge), y=min(second.y, edge)))

    @property
    def swapped(self) -> Scene:
        """Both objects with their colours swapped."""
        return worlds.exchange(self.scene, 0, 1, "colour")

    def reversed(self, scene: Scene) -> Scene:
        """The objects of a scene with their positions swapped."""
        other = worlds.reverse_relation(scene, 0, 1)
        # only a third object could be in the way
        assert other is not None
        return other

    def again(self, scene: Scene) -> Scene:
        """Another rendering of a scene graph: new background, noise and shades."""
        stream, jitter = self.stream, normal_table(scene.world.colour_jitter)

        def three(draw_one: Callable[[], int]) -> tuple[int, int, int]:
            return draw_one(), draw_one(), draw_one()

        shaded = [
            obj._replace(jitter=three(lambda: jitter[stream.below(256)])) for obj in scene.objects
        ]
        background = three(lambda: stream.between(*scene.world.background))
        return Scene(scene.world, tuple(shaded), background, stream.word())


class Question(NamedTuple):
    """A condition on similarities of images ("i0", ... of `scenes`) and texts ("t0", ...).

    Every similarity of a pair in `above` is larger than every similarity of a pair in `below`; or
    (is_apart) the pair in `above` differs more than the pair in `below`, two renderings of a scene.
    """

    scenes: tuple[Scene, ...]
    texts: tuple[str, ...]
    above: tuple[tuple[str, str], ...]
    below: tuple[tuple[str, str], ...]
    is_apart: bool = False


def _apart(one: Scene, other: Scene, views: Views) -> Question:
    return Question((one, other, views.again(one)), (), (("i0", "i1"),), (("i0", "i2"),), True)


def _nearer(one: Scene, near: Scene, far: Scene) -> Question:
    return Question((one, near, far), (), (("i0", "i1"),), (("i0", "i2"),))


def _a(shape: str, colour: str = "") -> str:
    return Caption("single", (Phrase(shape, colour),)).text


def _presence(views: Views, is_scene: bool, is_all: bool) -> Question:
    """Present objects against an absent one, or against all absent ones."""
    scene = views.scene if is_scene else views.first
    shapes = [obj.shape for obj in scene.objects]
    if not is_all:
        shapes = [views.stream.choice(shapes)]
    absent = grammar.absent_shapes(scene)
    wrong = absent if is_all else [views.stream.choice(absent)]
    # texts of present objects come first: `above` is a prefix of the pairs
    pairs = [("i0", f"t{n}") for n in range(len(shapes) + len(wrong))]
    texts = tuple(_a(shape) for shape in (*shapes, *wrong))
    return Question((scene,), texts, (*pairs[: len(shapes)],), (*pairs[len(shapes) :],))


def _denied(views: Views, is_text: bool, is_all: bool) -> Question:
    """ "no circle" is farther from "a circle", or from an image of it, than another object is.

    In the paper i(x) is nearer to every t(y) than to t(not x), even if y is absent, too.
    """
    shape, scene = views.objects[0].shape, views.first
    absent = grammar.absent_shapes(scene)
    others = absent if is_all else [views.stream.choice(absent)]
    texts = (_a(shape), f"no {shape}", *map(_a, others))
    names = [f"t{n}" for n in range(2, len(texts))]
    if is_text:
        return Question((scene,), texts, tuple((n, "t1") for n in names), (("t0", "t1"),))
    return Question((scene,), texts, tuple(("i0", n) for n in names), (("i0", "t1"),))


def _relation(views: Views) -> Question:
    """Another object is nearer in the same relation than in the opposite one."""
    other = views.of(views.objects[0], views.third)
    return _nearer(views.scene, other, views.reversed(other))


def _attribute(views: Views) -> Question:
    obj = views.objects[0]
    scenes, text = (views.first, views.recoloured), _a(obj.shape, obj.colour)
    return Question(scenes, (text,), (("i0", "t0"),), (("i1", "t0"),))


CONDITIONS: dict[str, Callable[[Views], Question]] = {
    "1.1a": functools.partial(_presence, is_scene=False, is_all=False),
    "1.1a_all": functools.partial(_presence, is_scene=False, is_all=True),
    "1.1b": functools.partial(_presence, is_scene=True, is_all=False),
    "1.1b_all": functools.partial(_presence, is_scene=True, is_all=True),
    "1.2a": lambda v: _nearer(v.first, v.recoloured, v.replaced),
    "1.2b": lambda v: _nearer(v.first, v.moved, v.replaced),
    "2.1": lambda v: _apart(v.first, v.recoloured, v),
    "2.2": _attribute,
    "2.3": lambda v: _apart(v.scene, v.swapped, v),
    "3.1": lambda v: _apart(v.first, v.moved, v),
    "3.2": lambda v: _apart(v.scene, v.reversed(v.scene), v),
    "3.3": _relation,
    "4.1": functools.partial(_denied, is_text=True, is_all=False),
    "4.1_all": functools.partial(_denied, is_text=True, is_all=True),
    "4.2": functools.partial(_denied, is_text=False, is_all=False),
    "4.2_all": functools.partial(_denied, is_text=False, is_all=True),
}


def conditions(**options: Any) -> Benchmark:
    """The conditions of an ideal CLIP, in turn, each on its own scene.

    x, y, z are shapes of different colours; g1, g2 are positions or relations.

    1.1a  i(x) is nearer to t(x) than to t(y); 1.1a_all: than to every t(y)
    1.1b  i(x, y) is nearer to t(x) than to t(z); 1.1b_all: to t(x) and t(y) than to every t(z)
    1.2a  i(red x) is nearer to i(blue x) than to i(blue y)
    1.2b  i(x at g1) is nearer to i(x at g2) than to i(y at g1)
    2.1   i(red x) and i(blue x) differ
    2.2   t(red x) is nearer to i(red x) than to i(blue x)
    2.3   i(red x, blue y) and i(blue x, red y) differ
    3.1   i(x at g1) and i(x at g2) differ
    3.2   i(x g1 y) and i(y g1 x) differ
    3.3   i(x g1 y) is nearer to i(x g1 z) than to i(x g2 z)
    4.1   t(no x) is nearer to t(y) than to t(x); 4.1_all: to every t(y)
    4.2   i(x) is nearer to t(y) than to t(no x); 4.2_all: to every t(y)

    Training captions of the worlds never are a bare "no circle", but contain both words.
    """
    return _build("scenes_conditions", _ask_condition, where_of(options, count=3200))


def superposition(**options: Any) -> Benchmark:
    """Six images per case: two objects, each of them alone, a third object alone at the second's
    position, another rendering of the first image, and the two objects with swapped colours; and
    three texts, of the three objects alone: "a red circle"."""
    return _build("scenes_superposition", _ask_superposition, where_of(options))


def binding(kind: str = "attribute", **options: Any) -> Benchmark:
    """Images whose captions have the same words, for a probe and for scores: PAIRS pairs of objects
    at many placements, each in both arrangements; a probe per pair is fitted to other placements.

    kind: "attribute", "a red circle and a blue square" against "a blue circle and a red square"; or
      "relation", "a red circle left of a blue square" against "a blue square left of a red circle"
      (or with "right of").

    `meta["label"]` is 1 for swapped colours or positions; the group is the pair.
    """
    lookup.check_known("kind of binding", [kind], ("attribute", "relation"))
    where = where_of(options)
    looks = _looks(where.rules)
    learned = {
        part: _bound(
            kind,
            dataclasses.replace(where, count=2 * PAIRS * placements),
            looks,
            # apart from the scenes of all cases
            start=(1 + n) * _LEARNED_FROM,
        )
        for n, (part, placements) in enumerate(LEARNED.items())
    }
    cases = _bound(kind, where, looks)
    classes = ("as named", "exchanged")
    return Benchmark("scenes_binding", cases, f"{_version(where)}/{kind}", classes, **learned)


READERS: dict[str, tuple[Callable[..., Benchmark], str]] = {  # name -> (reader, protocol)
    "scenes_conditions": (conditions, "conditions"),
    "scenes_superposition": (superposition, "superposition"),
    "scenes_binding": (binding, "binding"),
}


def _version(where: Where) -> str:
    return f"{where.rules.id}/{where.split}/geometry-{VERSION}"


def _build(name: str, ask: Callable[[Views, int, str], Case], where: Where) -> Benchmark:
    def make(index: int, number: int) -> Iterator[Case]:
        if (views := _views(name, where, index)) is not None:
            yield ask(views, number, f"{where.split}-{index:05d}")

    return Benchmark(name, collect(name, where, make), _version(where))


def _views(name: str, where: Where, index: int) -> Views | None:
    """Views of a scene of two different, disjoint objects; None if it has others, or if a variation
    needs a held-out combination."""
    scene = sample.sample_scene(where.rules, where.split, index, 2)
    stream = Stream(f"{where.rules.id}/{where.split}/{name}/{index}")
    third = _third(scene, stream)
    return Views(scene, stream, third) if third is not None and _is_plain(scene) else None


def _is_plain(scene: Scene) -> bool:
    first, second = scene.objects
    exchanged = worlds.exchange(scene, 0, 1, "colour").objects
    is_known = all((o.shape, o.colour) not in scene.world.held_combinations for o in exchanged)
    is_copy = first.shape == second.shape or first.colour == second.colour
    return is_known and not is_copy and not worlds.overlaps(first, second)


def _third(scene: Scene, stream: Stream) -> SceneObject | None:
    colours = {obj.colour for obj in scene.objects}
    looks = [
        (shape, colour)
        for shape in grammar.absent_shapes(scene)
        for colour in scene.world.colours
        if colour not in colours and (shape, colour) not in scene.world.held_combinations
    ]
    if not looks:
        return None
    shape, colour = stream.choice(looks)
    return scene.objects[1]._replace(shape=shape, colour=colour)


def _ask_condition(views: Views, number: int, case_id: str) -> Case:
    name = list(CONDITIONS)[number % len(CONDITIONS)]
    question = CONDITIONS[name](views)
    meta = {field: getattr(question, field) for field in ("above", "below", "is_apart")}
    return _case(case_id, question.scenes, question.texts, name, meta)


def _ask_superposition(views: Views, number: int, case_id: str) -> Case:
    again = views.again(views.scene)
    third = views.of(views.third)
    scenes = (views.scene, views.first, views.second, third, again, views.swapped)
    texts = tuple(_a(obj.shape, obj.colour) for obj in (*views.objects, views.third))
    return _case(case_id, scenes, texts)


def _case(
    case_id: str,
    scenes: Sequence[Scene],
    texts: tuple[str, ...] = (),
    group: str | None = None,
    meta: dict[str, Any] | None = None,
) -> Case:
    graphs = [scene.to_json() for scene in scenes]
    images = tuple(draw.draw(scene) for scene in scenes)
    return Case(case_id, images, texts, group, {"scenes": graphs, **(meta or {})})


Looks = tuple[tuple[str, str], tuple[str, str]]  # shape and colour of two objects


def _looks(world: World) -> list[Looks]:
    """PAIRS pairs without held-out combinations, before and after a swap of colours."""
    stream, pairs = Stream(f"{world.id}/binding"), dict[Looks, None]()
    for _ in range(100 * PAIRS):
        (x, y), (a, b) = (
            [options[k] for k in stream.sample(len(options), 2)]
            for options in (world.shapes, world.colours)
        )
        if not {(x, a), (y, b), (x, b), (y, a)} & world.held_combinations:
            pairs[((x, a), (y, b))] = None
        if len(pairs) == PAIRS:
            return list(pairs)
    raise ValueError(
        f"world {world.id!r} offers only {len(pairs)} of {PAIRS} pairs of scenes_binding"
    )


def _bound(kind: str, where: Where, looks: Sequence[Looks], start: int = 0) -> tuple[Case, ...]:
    """Cases of the pairs in turn, each at a new placement, in both arrangements."""
    both = _both_relations if kind == "relation" else _both_bindings

    def make(index: int, number: int) -> Iterator[Case]:
        scene = sample.sample_scene(where.rules, where.split, index, 2)
        is_beside = scene.relation(0, 1) in ("left of", "right of")
        if worlds.overlaps(*scene.objects) or (kind == "relation" and not is_beside):
            return
        pair = looks[number // 2 % len(looks)]
        objects = [
            obj._replace(shape=shape, colour=colour)
            for obj, (shape, colour) in zip(scene.objects, pair, strict=True)
        ]
        plain = scene._replace(objects=tuple(objects))
        stream = Stream(f"{where.rules.id}/{where.split}/scenes_binding/{index}")
        group = _names(plain.objects, "list").text
        arrangements, texts = zip(*both(plain, stream.sample(2, 2)), strict=True)
        for label, arrangement in enumerate(arrangements):
            name = f"{where.split}-{index:05d}-{label}"
            captions = texts[::-1] if label else texts
            yield _case(name, (arrangement,), captions, group, {"label": label})

    return collect("scenes_binding", where, make, start)


def _both_bindings(plain: Scene, order: Sequence[int]) -> list[tuple[Scene, str]]:
    scenes = (plain, worlds.exchange(plain, 0, 1, "colour"))
    return [(s, _names([s.objects[k] for k in order], "list").text) for s in scenes]


def _both_relations(plain: Scene, order: Sequence[int]) -> list[tuple[Scene, str]]:
    """(scene, text) of both arrangements; the first has the first object on the left."""
    scenes = [plain, worlds.reverse_relation(plain, 0, 1)]
    # label 0 always has the first object on the left, whatever the sampled scene
    if plain.relation(0, 1) == "right of":
        scenes.reverse()
    link = "left of" if order[0] == 0 else "right of"
    named = [plain.objects[k] for k in order]
    texts = [_names(objects, "relation", link).text for objects in (named, named[::-1])]
    return list(zip(scenes, texts, strict=True))


def _names(objects: Sequence[SceneObject], kind: str, link: str = "") -> Caption:
    return Caption(kind, tuple(Phrase(obj.shape, obj.colour) for obj in objects), link)
