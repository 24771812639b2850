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
from typing import Any

from vlc_jax.input_pipeline.benchmarks.scene_set import READERS, Question, SceneSet, where_of
from vlc_jax.input_pipeline.benchmarks.shuffled import with_shuffles
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.scenes import contrast, draw, grammar, questions, words
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.input_pipeline.scenes.grammar import Caption, Phrase
from vlc_jax.input_pipeline.scenes.stream import Stream
from vlc_jax.input_pipeline.scenes.world import Scene, SceneObject

REPLACE_KINDS = ("size", "relation", "colour")
SWAP_KINDS = ("attribute", "relation")

_AXIS = {
    "left of": "left_right",
    "right of": "left_right",
    "above": "above_below",
    "below": "above_below",
    "in front of": "front_behind",
    "behind": "front_behind",
}


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
) -> Question | None:
    """The true caption against a wrong one; None without a wrong one."""
    if wrong is None:
        return None
    meta |= {"question": questions.shared(caption, wrong), **_short(caption, wrong)}
    return Question((caption.text, wrong.text), group, meta)


def _short(caption: Caption, wrong: Caption) -> dict[str, Any]:
    short = questions.short(caption, wrong)
    return {} if short is None else {"short": {"question": short[0], "answers": short[1]}}


@SceneSet("choice")
def objects(scene: Scene, stream: Stream) -> Question | None:
    """Choice: a list caption against the caption with one shape replaced by an absent one."""
    caption = _list(scene, stream)
    return _against(caption, contrast.replace(caption, scene, "shape", stream, "base_words"))


@SceneSet("choice")
def attributes(scene: Scene, stream: Stream) -> Question | None:
    """Choice: a list caption against the caption with one colour replaced by an absent one."""
    caption = _list(scene, stream)
    wrong = contrast.replace(caption, scene, "colour", stream, "base_words", absent=True)
    return _against(caption, wrong)


@SceneSet("choice")
def attribute_swap(scene: Scene, stream: Stream, described: bool = False) -> Question | None:
    """Choice: a list caption against the caption with swapped colours (as ARO's VG-Attribution).

    described: `meta["short"]` asks for a description; its answers are the colour and shape of the
    first object, "red circle".
    """
    caption = _list(scene, stream)
    wrong = contrast.swap(caption, scene, "colour")
    question = _against(caption, wrong)
    if question and wrong and described:
        named = [f"{each.phrases[0].colour} {each.phrases[0].shape}" for each in (caption, wrong)]
        question.meta["short"] = {"question": questions.ANY, "answers": named}
    return question


@SceneSet("choice", held=None)
def held_attribute_swap(scene: Scene, stream: Stream) -> Question | None:
    """`attribute_swap`, where one of both captions has a shape-colour pair never seen in training.

    It is the correct one in every second case, with an image of a held-out split, and the wrong one
    in the others: whoever prefers seen pairs, or unseen ones, without the image is right in half of
    the cases. No groups: within one, the preference would give the answer away.
    """
    caption = _list(scene, stream)
    wrong = contrast.swap(caption, scene, "colour", any_pair=True)
    if wrong is None:
        return None
    is_unseen = [contrast.mentions_held_out(text, scene.world) for text in (caption, wrong)]
    return _against(caption, wrong) if sum(is_unseen) == 1 else None


@SceneSet("choice", kinds=("colour", "shape"))
def confusion(scene: Scene, stream: Stream, kind: str) -> Question | None:
    """Choice: a list caption against two with less in them, in which a colour ("a red circle and a
    red square") or a shape ("a red circle and a blue circle") is repeated; the kinds alternate.

    After the confusion benchmark of Auto-Comp (2602.02043), as far as its abstract describes it. A
    model that saw such texts in training needs no image: the right caption repeats nothing.
    """
    caption = _list(scene, stream)
    wrong = [contrast.repeat(caption, scene, kind, phrase) for phrase in (0, 1)]
    if not all(wrong):
        return None
    return Question((caption.text, *(each.text for each in wrong if each)), kind)


@SceneSet(
    "triplet",
    kinds=("entity", "relation"),
    fields=lambda _: {"summary": ("original_accuracy", "ordered_accuracy")},
)
def half_truths(scene: Scene, stream: Stream, kind: str) -> Question | None:
    """Triplets: "a red circle" against the half-truth "a red circle and a blue square", where the
    image has a blue star; in `meta["positive"]` the full truth, "a red circle and a blue star".

    The kinds alternate: the wrong detail is an object (one of its words is replaced by an absent
    one) or the relation to the other object. After `benchmarks.half_truths` (Kargi et al. 2026). A
    reader of the texts alone is always right, since the shorter caption is: a model that scores
    longer captions higher is below chance.

    original_accuracy, the headline: s(short) > s(half-truth).   ordered_accuracy: s(full truth) >
      s(short) > s(half-truth).
    """
    whole = (_relation if kind == "relation" else _list)(scene, stream)
    word = stream.choice(("shape", "colour")) if kind == "entity" else kind
    phrase = 1 if kind == "entity" else None
    wrong = contrast.replace(whole, scene, word, stream, "base_words", phrase, absent=True)
    if wrong is None:
        return None
    short = Caption("single", whole.phrases[:1])
    return Question((short.text, wrong.text), kind, {"positive": whole.text})


@SceneSet("choice", has_held=True)
def relation_swap(scene: Scene, stream: Stream) -> Question | None:
    """Choice: a relation caption against the caption with swapped objects (as VG-Relation)."""
    caption = _relation(scene, stream)
    return _against(caption, contrast.reverse(caption, scene), _AXIS[caption.link])


@SceneSet("triplet", kinds=REPLACE_KINDS)
def replace(scene: Scene, stream: Stream, kind: str, synonyms: str = "a") -> Question | None:
    """Triplets: one word replaced by a base word of another meaning; in `meta["positive"]` the same
    word is replaced by its synonym from set `synonyms` ("a", "b" or "ab").

    The kinds alternate: the size of one object of a list (the other object has no size word), its
    colour (by one absent from the image), or the relation (by any other).
    """
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


@SceneSet("triplet", kinds=("attribute",), known=SWAP_KINDS)
def swap(scene: Scene, stream: Stream, kind: str) -> Question | None:
    """Triplets: "attribute" is `attribute_swap` with the conjunct swap ("a blue square and a red
    circle") in `meta["positive"]`; "relation" is `relation_swap` with the converse ("a blue square
    right of a red circle").
    """
    if kind == "relation":
        caption = _relation(scene, stream)
        wrong = contrast.reverse(caption, scene)
    else:
        caption = _list(scene, stream)
        wrong = contrast.swap(caption, scene, "colour")
    return _against(caption, wrong, kind, positive=contrast.reorder(caption).text)


@SceneSet("choice", version=2, kinds=("nouns_and_adjectives",), known=contrast.SHUFFLES)
def order(scene: Scene, stream: Stream, kind: str) -> Question | None:
    """Choice: a relation caption against a shuffle of its words; several kinds alternate.

    kinds: of `contrast.shuffle`, the four of ARO. The default keeps the grammar. The others give
    themselves away: a reader of the texts alone is right in 99.6 to 100 % of their cases.
    """
    caption = _relation(scene, stream)
    text = contrast.shuffle(caption, scene, kind, stream)
    return None if text is None else Question((caption.text, text), kind)


@SceneSet("pairs")
def whatsup(scene: Scene, stream: Stream) -> Question | None:
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
    return Question((caption.text, opposite.text), _AXIS[caption.link], meta)


@SceneSet("choice")
def negation(scene: Scene, stream: Stream) -> Question:
    """ "a red circle and no star" against "a red circle and no square" for an image with a square.

    A model that ignores "no" prefers the wrong caption: the expected failure is below chance.
    """
    i, j = stream.sample(2, 2)
    first = _phrase(scene.objects[i])
    absent = Phrase(stream.choice(grammar.absent_shapes(scene)))
    present = Phrase(scene.objects[j].shape)
    right, wrong = (Caption("negation", (first, other)) for other in (absent, present))
    return Question((right.text, wrong.text), None, _short(right, wrong))


@SceneSet("choice")
def negation_colour(scene: Scene, stream: Stream) -> Question | None:
    """ "a red circle and no star" against "a blue circle and no star", both without the star.

    The captions differ in what they affirm: what a correction of negations must not lose.
    """
    absent = Phrase(stream.choice(grammar.absent_shapes(scene)))
    caption = Caption("negation", (_phrase(stream.choice(scene.objects)), absent))
    wrong = contrast.replace(caption, scene, "colour", stream, "base_words", absent=True)
    return _against(caption, wrong)


@SceneSet("retrieval", count=1000, has_held=True)
def retrieval(scene: Scene, stream: Stream) -> Question:
    """Retrieval: two-object images with one full caption each, "a big red circle left of a small
    blue square"; no two captions have the same meaning.
    """
    caption = _relation(scene, stream, with_size=True)
    # two true captions for one query would make the answer ambiguous
    meaning = frozenset({caption[:3], contrast.reorder(caption)[:3]})
    return Question((caption.text,), meaning=meaning)


READERS["scenes_retrieval"] = (with_shuffles(retrieval), "retrieval")


def _label(scene: Scene, attribute: str) -> Question:
    options = words.base_words(scene.world, attribute)
    return Question((), None, {"label": options.index(getattr(scene.objects[0], attribute))})


@SceneSet(
    "zeroshot",
    objects=1,
    fields=lambda world: {
        "classes": world.shapes,
        "templates": tuple(f"{prefix} a {{}}".strip() for prefix in words.PREFIXES),
    },
)
def zero_shot_objects(scene: Scene, stream: Stream) -> Question:
    """Zero-shot classification of one-object images by shape."""
    del stream
    return _label(scene, "shape")


@SceneSet(
    "zeroshot",
    objects=1,
    fields=lambda world: {
        "classes": world.colours,
        "templates": tuple(f"a {{}} {shape}" for shape in world.shapes),
    },
)
def zero_shot_colours(scene: Scene, stream: Stream) -> Question:
    """Zero-shot classification of one-object images by colour; a template per shape."""
    del stream
    return _label(scene, "colour")


def negated_retrieval(**options: Any) -> Benchmark:
    """`retrieval` whose captions also deny an absent shape, "... and no star" (as NegBench's)."""
    where = where_of(options, count=1000)
    plain, cases = retrieval(**dataclasses.asdict(where)), []
    for case in plain.cases:
        absent = grammar.absent_shapes(worlds.from_json(case.meta["scene"], where.rules))
        text = f"{case.captions[0]} and no {Stream(f'{case.id}/negated').choice(absent)}"
        cases.append(dataclasses.replace(case, captions=(text,)))
    return Benchmark("scenes_negated_retrieval", cases, f"{plain.version}/negated")


def replace_unseen(**options: Any) -> Benchmark:
    """`replace` with synonyms of set B, for models trained with synonyms of set A."""
    return dataclasses.replace(replace(synonyms="b", **options), name="scenes_replace_unseen")


def swap_relation(**options: Any) -> Benchmark:
    """`swap` of relations only."""
    return dataclasses.replace(swap(kinds=("relation",), **options), name="scenes_swap_relation")


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


READERS |= {
    "scenes_negated_retrieval": (negated_retrieval, "retrieval"),
    "scenes_replace_unseen": (replace_unseen, "triplet"),
    "scenes_swap_relation": (swap_relation, "triplet"),
    "scenes_spatial": (spatial, "choice"),
}
