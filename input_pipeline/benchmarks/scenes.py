"""Benchmarks of the embedded world: compositionality benchmarks in miniature.

Every set is a pure function of its arguments and disjoint from the training stream: its scenes come
from the splits `validation` (for development), `test`, and the two held-out ones. All sets with two
objects use the same scenes, so each image can be embedded once.

Unless a docstring differs, a caption names both objects with colour and shape, in random order and
base words, without a prefix: "a red circle and a blue square" (list), or with their relation,
"a red circle left of a blue square". A wrong caption never mentions a held-out shape-colour pair,
unless the image contains one: an unseen pair would give the answer away. In
scenes_held_attribute_swap one caption of each case does, the wrong one in every second.

`meta["question"]` is a question answered by all options of a case, for models that need one
(scenes/questions.py). `meta["short"]`, if present, is a question with the short answer of each
caption, for generative models.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.benchmarks.shuffled import with_shuffles
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.scenes import contrast, draw, grammar, questions, sample, words
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.input_pipeline.scenes.grammar import Caption, Phrase
from vlc_jax.input_pipeline.scenes.stream import Stream
from vlc_jax.input_pipeline.scenes.world import Scene, SceneObject, World

# version of the questions; `World.version` covers the images
VERSION = 1
REPLACE_KINDS = ("size", "relation", "colour")
SWAP_KINDS = ("attribute", "relation")

_MOST = 100_000  # cases: more say no more, and each is drawn
_HELD = {"validation": "held_validation", "test": "held"}
_AXIS = {
    "left of": "left_right",
    "right of": "left_right",
    "above": "above_below",
    "below": "above_below",
    "in front of": "front_behind",
    "behind": "front_behind",
}


class _Question(NamedTuple):
    """A case without its image."""

    captions: tuple[str, ...]
    group: str | None = None
    meta: dict[str, Any] = {}  # noqa: RUF012  (never modified)


@dataclasses.dataclass(frozen=True)
class Where:
    """Keyword arguments of all readers of this file: scenes and number of cases."""

    split: str = "validation"  # for development; or "test"
    count: int = 2000  # cases
    world: str = "scenes-mini"  # a name of `scenes.world.WORLDS`
    world_options: Mapping[str, Any] | None = None  # fields of `scenes.world.World` to change

    def __post_init__(self) -> None:
        lookup.check_known("split of an evaluation set", [self.split], _HELD)
        lookup.check_count("count", self.count, _MOST)

    @functools.cached_property
    def rules(self) -> World:
        """The world of the scenes."""
        return worlds.named(self.world, **(self.world_options or {}))


def where_of(options: Mapping[str, Any], **defaults: Any) -> Where:
    """`Where` from options and defaults. Raises ValueError for an unknown option."""
    fields = [field.name for field in dataclasses.fields(Where)]
    lookup.check_known("option of a scenes benchmark", options, fields)
    return Where(**{**defaults, **options})


_Ask = Callable[[Scene, Stream, int], _Question | None]


@functools.lru_cache(maxsize=4096)  # 20 MB at 40 x 40 pixels: the scenes of two sets of 2,000
def _picture(world: World, split: str, objects: int, index: int) -> tuple[Scene, np.ndarray]:
    """A scene and its pixels, read-only since several sets share them."""
    scene = sample.sample_scene(world, split, index, objects)
    image = draw.draw(scene)
    image.flags.writeable = False
    return scene, image


def collect(
    name: str, where: Where, make: Callable[[int, int], Iterable[Case]], start: int = 0
) -> tuple[Case, ...]:
    """The first `where.count` cases of make(index of a scene, number of cases before it).

    start: index of the first scene.
    """
    cases: list[Case] = []
    # Enough scenes if 1 in 20 allows a case, and an end if none does.
    for index in range(start, start + 20 * where.count + 1000):
        cases += make(index, len(cases))
        if len(cases) >= where.count:
            return tuple(cases[: where.count])
    raise ValueError(
        f"world {where.rules.id!r} offers only {len(cases)} of {where.count} cases of {name}"
    )


def _build(
    name: str,
    ask: _Ask,
    where: Where,
    *,
    objects: int = 2,
    held: bool | None = False,
    version: int = VERSION,
    classes: tuple[str, ...] = (),
    templates: tuple[str, ...] = (),
) -> Benchmark:
    """The first `where.count` cases for which `ask(scene, stream, number)` returns a question.

    held: scenes with a held-out shape-colour pair; None: in every second case.
    """
    rules = where.rules
    with_pair, without = _HELD[where.split], where.split

    def make(index: int, number: int) -> Iterator[Case]:
        is_held = number % 2 == 0 if held is None else held
        series = with_pair if is_held else without
        scene, image = _picture(rules, series, objects, index)
        question = ask(scene, Stream(f"{rules.id}/{series}/{name}/{index}"), number)
        if question is not None:
            meta = {"scene": scene.to_json(), "question": questions.ANY, **question.meta}
            images = (image, *meta.pop("images", ()))
            yield Case(f"{series}-{index:05d}", images, question.captions, question.group, meta)

    all_series = f"{with_pair}+{without}" if held is None else with_pair if held else without
    identity = f"{rules.id}/{all_series}/cases-{version}"
    return Benchmark(name, collect(name, where, make), identity, classes, templates)


def _reader(ask: _Ask) -> Callable[..., Benchmark]:
    """Decorator: the reader of the set scenes_NAME from NAME, the function of its questions."""

    def read(held: bool = False, **options: Any) -> Benchmark:
        name = f"scenes_held_{ask.__name__}" if held else f"scenes_{ask.__name__}"
        # few sets have a held-out version
        lookup.check_known("set of the scenes", [name], READERS)
        return _build(name, ask, where_of(options), held=held)

    read.__doc__ = ask.__doc__
    return read


def _phrase(obj: SceneObject, with_size: bool = False) -> Phrase:
    return Phrase(obj.shape, obj.colour, obj.size if with_size else "")


def _list(scene: Scene, stream: Stream) -> Caption:
    """ "a red circle and a blue square" """
    i, j = stream.sample(2, 2)
    return Caption("list", (_phrase(scene.objects[i]), _phrase(scene.objects[j])))


def _relation(scene: Scene, stream: Stream, with_size: bool = False) -> Caption:
    """ "a red circle left of a blue square"; two-object scenes have one unambiguous relation."""
    i, j = stream.sample(2, 2)
    phrases = tuple(_phrase(scene.objects[k], with_size) for k in (i, j))
    return Caption("relation", phrases, scene.relation(i, j))


def _against(
    caption: Caption, wrong: Caption | None, group: str | None = None, **meta: Any
) -> _Question | None:
    """The true caption against a wrong one; None without a wrong one."""
    if wrong is None:
        return None
    meta |= {"question": questions.shared(caption, wrong), **_short(caption, wrong)}
    return _Question((caption.text, wrong.text), group, meta)


def _short(caption: Caption, wrong: Caption) -> dict[str, Any]:
    short = questions.short(caption, wrong)
    return {} if short is None else {"short": {"question": short[0], "answers": short[1]}}


@_reader
def objects(scene: Scene, stream: Stream, _: int) -> _Question | None:
    """Choice: a list caption against the caption with one shape replaced by an absent one."""
    caption = _list(scene, stream)
    return _against(caption, contrast.replace(caption, scene, "shape", stream, "base_words"))


@_reader
def attributes(scene: Scene, stream: Stream, _: int) -> _Question | None:
    """Choice: a list caption against the caption with one colour replaced by an absent one."""
    caption = _list(scene, stream)
    wrong = contrast.replace(caption, scene, "colour", stream, "base_words", absent=True)
    return _against(caption, wrong)


@_reader
def attribute_swap(scene: Scene, stream: Stream, _: int) -> _Question | None:
    """Choice: a list caption against the caption with swapped colours (as ARO's VG-Attribution)."""
    caption = _list(scene, stream)
    return _against(caption, contrast.swap(caption, scene, "colour"))


def held_attribute_swap(**options: Any) -> Benchmark:
    """`attribute_swap`, where one of both captions has a shape-colour pair never seen in training.

    It is the correct one in every second case, with an image of a held-out split, and the wrong one
    in the others: whoever prefers seen pairs, or unseen ones, without the image is right in half of
    the cases. No groups: within one, the preference would give the answer away.
    """
    return _build("scenes_held_attribute_swap", _ask_unseen, where_of(options), held=None)


def _ask_unseen(scene: Scene, stream: Stream, _: int) -> _Question | None:
    caption = _list(scene, stream)
    wrong = contrast.swap(caption, scene, "colour", any_pair=True)
    if wrong is None:
        return None
    is_unseen = [contrast.mentions_held_out(text, scene.world) for text in (caption, wrong)]
    return _against(caption, wrong) if sum(is_unseen) == 1 else None


@_reader
def confusion(scene: Scene, stream: Stream, number: int) -> _Question | None:
    """Choice: a list caption against two with less in them, in which a colour ("a red circle and a
    red square") or a shape ("a red circle and a blue circle") is repeated; the kinds alternate.

    After the confusion benchmark of Auto-Comp (2602.02043), as far as its abstract describes it. A
    model that saw such texts in training needs no image: the right caption repeats nothing.
    """
    kind = ("colour", "shape")[number % 2]
    caption = _list(scene, stream)
    wrong = [contrast.repeat(caption, scene, kind, phrase) for phrase in (0, 1)]
    if not all(wrong):
        return None
    return _Question((caption.text, *(each.text for each in wrong if each)), kind)


def half_truths(**options: Any) -> Benchmark:
    """Triplets: "a red circle" against the half-truth "a red circle and a blue square", where the
    image has a blue star; in `meta["positive"]` the full truth, "a red circle and a blue star".

    The kinds alternate: the wrong detail is an object (one of its words is replaced by an absent
    one) or the relation to the other object. After `benchmarks.half_truths` (Kargi et al. 2026). A
    reader of the texts alone is always right, since the shorter caption is: a model that scores
    longer captions higher is below chance.

    original_accuracy, the headline: s(short) > s(half-truth).   ordered_accuracy: s(full truth) >
      s(short) > s(half-truth).
    """
    made = _build("scenes_half_truths", _ask_half_truths, where_of(options))
    return dataclasses.replace(made, summary=("original_accuracy", "ordered_accuracy"))


def _ask_half_truths(scene: Scene, stream: Stream, number: int) -> _Question | None:
    kind = ("entity", "relation")[number % 2]
    whole = (_relation if kind == "relation" else _list)(scene, stream)
    word = stream.choice(("shape", "colour")) if kind == "entity" else kind
    phrase = 1 if kind == "entity" else None
    wrong = contrast.replace(whole, scene, word, stream, "base_words", phrase, absent=True)
    if wrong is None:
        return None
    short = Caption("single", whole.phrases[:1])
    return _Question((short.text, wrong.text), kind, {"positive": whole.text})


@_reader
def relation_swap(scene: Scene, stream: Stream, _: int) -> _Question | None:
    """Choice: a relation caption against the caption with swapped objects (as VG-Relation)."""
    caption = _relation(scene, stream)
    return _against(caption, contrast.reverse(caption, scene), _AXIS[caption.link])


def _ask_replace(
    kinds: Sequence[str], synonyms: str, scene: Scene, stream: Stream, number: int
) -> _Question | None:
    kind = kinds[number % len(kinds)]
    caption, phrase = (_relation if kind == "relation" else _list)(scene, stream), None
    if kind != "relation":
        phrase = stream.below(2)
    if kind == "size":
        phrases = list(caption.phrases)
        obj = next(other for other in scene.objects if grammar.matches(phrases[phrase], other))
        phrases[phrase] = phrases[phrase]._replace(size=obj.size)
        caption = caption._replace(phrases=tuple(phrases))
    wrong = contrast.replace(
        caption, scene, kind, stream, "base_words", phrase, absent=kind == "colour"
    )
    positive = contrast.synonym(caption, kind, stream, synonyms, phrase)
    return _against(caption, wrong, kind, positive=positive.text)


def _ask_swap(kinds: Sequence[str], scene: Scene, stream: Stream, number: int) -> _Question | None:
    kind = kinds[number % len(kinds)]
    if kind == "relation":
        caption = _relation(scene, stream)
        wrong = contrast.reverse(caption, scene)
    else:
        caption = _list(scene, stream)
        wrong = contrast.swap(caption, scene, "colour")
    return _against(caption, wrong, kind, positive=contrast.reorder(caption).text)


def order(kinds: Sequence[str] = ("nouns_and_adjectives",), **options: Any) -> Benchmark:
    """Choice: a relation caption against a shuffle of its words; several kinds alternate.

    kinds: of `contrast.shuffle`, the four of ARO. The default keeps the grammar. The others give
    themselves away: a reader of the texts alone is right in 99.6 to 100 % of their cases.
    """
    lookup.check_known("kind of shuffle", kinds, contrast.SHUFFLES)
    ask = functools.partial(_ask_order, tuple(kinds))
    return _build("scenes_order", ask, where_of(options), version=2)


def _ask_order(kinds: Sequence[str], scene: Scene, stream: Stream, number: int) -> _Question | None:
    kind = kinds[number % len(kinds)]
    caption = _relation(scene, stream)
    text = contrast.shuffle(caption, scene, kind, stream)
    return None if text is None else _Question((caption.text, text), kind)


@_reader
def whatsup(scene: Scene, stream: Stream, _: int) -> _Question | None:
    """Pairs of images that differ only in the swapped positions of two objects, with a caption
    each: "a red circle left of a blue square", "... right of ..." (as What'sUp).
    """
    caption = _relation(scene, stream)
    other = worlds.reverse_relation(scene, 0, 1)
    opposite = caption._replace(link=worlds.OPPOSITE[caption.link])
    # both hold if the objects are copies
    if other is None or grammar.is_true(opposite, scene):
        return None
    meta = {"images": (draw.draw(other),), "other_scene": other.to_json()}
    meta["question"] = questions.shared(caption, opposite)
    return _Question((caption.text, opposite.text), _AXIS[caption.link], meta)


@_reader
def negation(scene: Scene, stream: Stream, _: int) -> _Question:
    """ "a red circle and no star" against "a red circle and no square" for an image with a square.

    A model that ignores "no" prefers the wrong caption: the expected failure is below chance.
    """
    i, j = stream.sample(2, 2)
    first = _phrase(scene.objects[i])
    absent = Phrase(stream.choice(grammar.absent_shapes(scene)))
    present = Phrase(scene.objects[j].shape)
    right, wrong = (Caption("negation", (first, other)) for other in (absent, present))
    return _Question((right.text, wrong.text), None, _short(right, wrong))


@_reader
def negation_colour(scene: Scene, stream: Stream, _: int) -> _Question | None:
    """ "a red circle and no star" against "a blue circle and no star", both without the star.

    The captions differ in what they affirm: what a correction of negations must not lose.
    """
    absent = Phrase(stream.choice(grammar.absent_shapes(scene)))
    caption = Caption("negation", (_phrase(stream.choice(scene.objects)), absent))
    wrong = contrast.replace(caption, scene, "colour", stream, "base_words", absent=True)
    return _against(caption, wrong)


def _ask_retrieval(
    meanings: set[frozenset], scene: Scene, stream: Stream, _: int
) -> _Question | None:
    caption = _relation(scene, stream, with_size=True)
    meaning = frozenset({caption[:3], contrast.reorder(caption)[:3]})
    # two true captions for one query would make the answer ambiguous
    if meaning in meanings:
        return None
    meanings.add(meaning)
    return _Question((caption.text,))


def _label(attribute: str, scene: Scene, stream: Stream, _: int) -> _Question:
    options = words.base_words(scene.world, attribute)
    return _Question((), None, {"label": options.index(getattr(scene.objects[0], attribute))})


def zero_shot_objects(**options: Any) -> Benchmark:
    """Zero-shot classification of one-object images by shape."""
    where, ask = where_of(options), functools.partial(_label, "shape")
    texts = tuple(f"{prefix} a {{}}".strip() for prefix in words.PREFIXES)
    names = where.rules.shapes
    return _build("scenes_zero_shot_objects", ask, where, objects=1, classes=names, templates=texts)


def zero_shot_colours(**options: Any) -> Benchmark:
    """Zero-shot classification of one-object images by colour; a template per shape."""
    where, ask = where_of(options), functools.partial(_label, "colour")
    texts = tuple(f"a {{}} {shape}" for shape in where.rules.shapes)
    names = where.rules.colours
    return _build("scenes_zero_shot_colours", ask, where, objects=1, classes=names, templates=texts)


def retrieval(held: bool = False, **options: Any) -> Benchmark:
    """Retrieval: two-object images with one full caption each, "a big red circle left of a small
    blue square"; no two captions have the same meaning.
    """
    name = "scenes_held_retrieval" if held else "scenes_retrieval"
    ask = functools.partial(_ask_retrieval, set())
    return _build(name, ask, where_of(options, count=1000), held=held)


def negated_retrieval(**options: Any) -> Benchmark:
    """`retrieval` whose captions also deny an absent shape, "... and no star" (as NegBench's)."""
    where = where_of(options, count=1000)
    plain, cases = retrieval(**dataclasses.asdict(where)), []
    for case in plain.cases:
        absent = grammar.absent_shapes(worlds.from_json(case.meta["scene"], where.rules))
        text = f"{case.captions[0]} and no {Stream(f'{case.id}/negated').choice(absent)}"
        cases.append(dataclasses.replace(case, captions=(text,)))
    return Benchmark("scenes_negated_retrieval", cases, f"{plain.version}/negated")


def replace(kinds: Sequence[str] = REPLACE_KINDS, synonyms: str = "a", **options: Any) -> Benchmark:
    """Triplets: one word replaced by a base word of another meaning; in `meta["positive"]` the same
    word is replaced by its synonym from set `synonyms` ("a", "b" or "ab").

    The kinds alternate: the size of one object of a list (the other object has no size word), its
    colour (by one absent from the image), or the relation (by any other).
    """
    lookup.check_known("kind of replacement", kinds, REPLACE_KINDS)
    ask = functools.partial(_ask_replace, tuple(kinds), synonyms)
    return _build("scenes_replace", ask, where_of(options))


def swap(kinds: Sequence[str] = ("attribute",), **options: Any) -> Benchmark:
    """Triplets: "attribute" is `attribute_swap` with the conjunct swap ("a blue square and a red
    circle") in `meta["positive"]`; "relation" is `relation_swap` with the converse ("a blue square
    right of a red circle").
    """
    lookup.check_known("kind of swap", kinds, SWAP_KINDS)
    ask = functools.partial(_ask_swap, tuple(kinds))
    return _build("scenes_swap", ask, where_of(options))


def replace_unseen(kinds: Sequence[str] = REPLACE_KINDS, **options: Any) -> Benchmark:
    """`replace` with synonyms of set B, for models trained with synonyms of set A."""
    return dataclasses.replace(replace(kinds, "b", **options), name="scenes_replace_unseen")


def swap_relation(**options: Any) -> Benchmark:
    """`swap` of relations only."""
    return dataclasses.replace(swap(("relation",), **options), name="scenes_swap_relation")


def spatial(**options: Any) -> Benchmark:
    """The images of `whatsup` as two-way cases of What'sUp, two per pair, with the question "is the
    blue square left of or right of the red circle". Answers and caption scores are evaluated per
    image (accuracy) and per pair (pair_accuracy).
    """
    where = where_of(options)
    pairs = whatsup(**dataclasses.asdict(where) | {"count": -(-where.count // 2)})
    cases = []
    for pair in pairs.cases:
        captions = [grammar.parse(text, where.rules) for text in pair.captions]
        # from the question's first object
        if questions.answer(captions[0]) != captions[0].link:
            captions = [contrast.reorder(caption) for caption in captions]
        texts = tuple(caption.text for caption in captions)
        for side, image in enumerate(pair.images):
            labels = {"subset": pair.group, "pair": pair.id}
            scene = pair.meta[("scene", "other_scene")[side]]
            meta = {"scene": scene, "question": pair.meta["question"]}
            case = Case(f"{pair.id}-{side}", (image,), (texts, texts[::-1])[side], labels, meta)
            cases.append(case)
    return Benchmark(
        "scenes_spatial",
        cases[: where.count],
        pairs.version,
        together=("pair",),
        summary=("accuracy", "pair_accuracy"),
    )


READERS: dict[str, tuple[Callable[..., Benchmark], str]] = {  # name -> (reader, protocol)
    "scenes_retrieval": (with_shuffles(retrieval), "retrieval"),
    "scenes_objects": (objects, "choice"),
    "scenes_attributes": (attributes, "choice"),
    "scenes_zero_shot_objects": (zero_shot_objects, "zeroshot"),
    "scenes_zero_shot_colours": (zero_shot_colours, "zeroshot"),
    "scenes_attribute_swap": (attribute_swap, "choice"),
    "scenes_confusion": (confusion, "choice"),
    "scenes_half_truths": (half_truths, "triplet"),
    "scenes_relation_swap": (relation_swap, "choice"),
    "scenes_replace": (replace, "triplet"),
    "scenes_replace_unseen": (replace_unseen, "triplet"),
    "scenes_swap": (swap, "triplet"),
    "scenes_swap_relation": (swap_relation, "triplet"),
    "scenes_order": (order, "choice"),
    "scenes_whatsup": (whatsup, "pairs"),
    "scenes_spatial": (spatial, "choice"),
    "scenes_negation": (negation, "choice"),
    "scenes_negation_colour": (negation_colour, "choice"),
    "scenes_negated_retrieval": (negated_retrieval, "retrieval"),
    "scenes_held_retrieval": (functools.partial(retrieval, held=True), "retrieval"),
    "scenes_held_attribute_swap": (held_attribute_swap, "choice"),
    "scenes_held_relation_swap": (functools.partial(relation_swap, held=True), "choice"),
}
