"""Samples a caption's hard negatives or positives: from its record, or generated on the fly."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vlc_jax.input_pipeline import batch, lookup
from vlc_jax.input_pipeline.hard_texts.generator import Generator, SceneGraph
from vlc_jax.input_pipeline.record import Caption, DataError

FROM_RECORD = "from_record"  # in place of a generator: the record's texts, of any kind
IN_ORDER = "from_record_in_order"  # the same, the first ones in their order
OTHER_CAPTIONS = "other_captions"  # alike: the record's captions besides this one, as positives
OF_RECORD = (FROM_RECORD, IN_ORDER, OTHER_CAPTIONS)
UNKNOWN_KIND = "given"  # the kind, in prepared data, of texts that came with the records
FALLBACKS = ("skip", "replace", "self", "one_each")
# calls per text of a generator whose calls give one: they may repeat a text
_TRIES = 4


@dataclass(frozen=True)
class HardTexts:
    """Settings of one side: the hard negatives, or the hard positives, of every caption.

    count: texts per caption; 0: none.
    shares: name -> share of the texts. "from_record": texts of the record, of any kind, drawn;
      "from_record:KIND": of that kind alone; "from_record_in_order": the first ones, in the
      record's order; "other_captions" (positives only): captions of the record besides this one. A
      generator's name: the record's texts of that
      kind; if it has none, the generator makes them now. A generator with share 0 is a fallback
      only, for fallback="replace".
    fallback: if a generator has no (further) text: "skip" (masked), "replace" (another generator,
      drawn by the remaining shares, share 0 last) or "self" (the caption). "one_each": text k is
      of the k-th name by the alphabet, masked if it has none.
    generators: name -> generator, for every name that reads no texts of the record.
    of_positives: (negatives only) further negatives per hard positive, as DAC makes them from the
      sentences of a bag. They follow the caption's negatives, in the order of the positives. With
      "from_record" among the shares, the record's negatives are those of its positives, one each in
      the same order, and the caption has none of them (CS-CLIP).
    """

    count: int = 0
    shares: Mapping[str, float] = field(default_factory=lambda: {FROM_RECORD: 1.0})
    fallback: str = "skip"
    generators: Mapping[str, Generator] = field(default_factory=dict)
    of_positives: int = 0


def make_hard_texts(
    side: str,
    *,
    count: int = 0,
    generators: Mapping[str, float] | None = None,
    fallback: str = "skip",
    options: Mapping[str, Mapping[str, Any]] | None = None,
    of_positives: int = 0,
    table: Mapping[str, Callable[..., Generator]] | None = None,
) -> HardTexts:
    """Builds HardTexts and its generators for a side, "negatives" or "positives".

    generators: name -> share. options: generator -> its options. table: name -> factory; default:
    `generator_table(side)`. Raises ValueError for unknown generators and options and for invalid
    values.
    """
    shares, options = dict(generators or {FROM_RECORD: 1.0}), options or {}
    if UNKNOWN_KIND in shares:
        raise ValueError(f"{side}: the generator {UNKNOWN_KIND!r} is called {FROM_RECORD!r}")
    built = {}
    if count or of_positives:
        for name in options:
            if name not in shares:
                raise ValueError(
                    f"{side}: options for {name!r}, which is not among {[*shares]}: set "
                    f"input.{side}.options, too"
                )
        names = [name for name in shares if not is_of_record(name)]
        known = generator_table(side) if table is None and names else table or {}
        built = {name: make_generator(side, known, name, options.get(name, {})) for name in names}
    texts = HardTexts(count, shares, fallback, built, of_positives)
    check(side, texts)
    return texts


def is_of_record(name: str) -> bool:
    """True for names that read texts of the record, instead of making them."""
    return name in OF_RECORD or name.startswith(f"{FROM_RECORD}:")


def generator_table(side: str) -> Mapping[str, Callable[..., Generator]]:
    """Name -> factory of "negatives" or "positives"."""
    # Imported here: the tables import `taggers`, which is also a command (python -m), and its
    # package must not import it before it runs.
    from vlc_jax.input_pipeline.hard_texts import negatives, positives

    return {"negatives": negatives.NEGATIVES, "positives": positives.POSITIVES}[side]


def make_generator(
    side: str, table: Mapping[str, Callable[..., Generator]], name: str, options: Mapping[str, Any]
) -> Generator:
    """Builds a generator. Raises ValueError for unknown names and options and wrong types.

    name: NAME:KIND is the generator NAME with the option `kind` (from_table)."""
    name, _, kind = name.partition(":")
    options = {**options, "kind": kind} if kind else options
    if name in table:
        lookup.check_types(f"generator of {side}", name, table[name], options)
    return lookup.build(f"generator of {side}", table, name, **options)


def find_generator(name: str, options: Mapping[str, Any]) -> tuple[str, Generator]:
    """(side, generator) by the generator's name. Raises ValueError for an unknown name."""
    tables = {side: generator_table(side) for side in ("negatives", "positives")}
    for side, table in tables.items():
        if name.partition(":")[0] in table:
            return side, make_generator(side, table, name, options)
    known = ", ".join(name for table in tables.values() for name in table)
    raise ValueError(f"unknown kind {name!r}; known: {known}")


def text_of(caption: Caption) -> str:
    """The caption, for a generator. Raises DataError for a conversation."""
    if not isinstance(caption, str):
        raise DataError(
            f"hard texts and noun phrases are made of captions; got the conversation "
            f"{str(caption)[:80]!r}: take a source with captions, or set their counts to 0"
        )
    return caption


def one_text(
    generator: Generator, caption: Caption, key: str, seed: int = 0, scene: Any = None
) -> str | None:
    """One text of a caption, for previews; None if there is none. Drawn by `seed` and `key`."""
    rng = stream(key, seed)
    return next(iter(generator(text_of(caption), rng, 1, scene)), None)


def stream(key: str, seed: int = 0) -> np.random.Generator:
    """The random generator of a key."""
    words = np.array([seed, batch.hash_id(key)], np.uint64)
    return np.random.Generator(np.random.Philox(key=words))


def several_texts(
    generator: Generator,
    caption: Caption,
    rng: np.random.Generator,
    count: int,
    scene: SceneGraph | None = None,
) -> list[str]:
    """At most `count` different texts of a caption, each with draws of its own."""
    text = text_of(caption)
    if not getattr(generator, "one_by_one", False):
        return [*generator(text, rng, count, scene)][:count]
    made: dict[str, None] = {}
    for _ in range(_TRIES * count):
        made |= dict.fromkeys(generator(text, rng, 1, scene))
        if len(made) >= count:
            break
    return [*made][:count]


def versions(sides: Mapping[str, HardTexts]) -> dict[str, str]:
    """ "side/name" -> version of every generator; data and versions determine the texts."""
    return {
        f"{side}/{name}": generator.version
        for side, texts in sides.items()
        for name, generator in texts.generators.items()
    }


def stored_versions(source: object) -> Mapping[str, Mapping[str, str]]:
    """Side -> generator -> the version that made the texts stored in the records.

    Empty if no generator made them, or the source does not record it.
    """
    return getattr(source, "text_versions", {})


def check_stored(
    sides: Mapping[str, Mapping[str, Generator]], stored: Mapping[str, Mapping[str, str]]
) -> None:
    """Raises ValueError if texts of a kind were stored with another version of its generator.

    sides: "negatives", "positives" -> kind -> generator. stored: result of `stored_versions`.
    """
    for side, table in sides.items():
        for kind, generator in table.items():
            version = stored.get(side, {}).get(kind, generator.version)
            if version != generator.version:
                raise ValueError(
                    f"{side}: texts of one kind have one version; {kind!r} was prepared with "
                    f"{version!r}, asked for is {generator.version!r}: set input.{side}.options."
                    f"{kind} to what was prepared, or prepare again with --generator-options "
                    f"'{{\"{kind}\": {{...}}}}'"
                )


def check(side: str, texts: HardTexts) -> None:
    """Raises ValueError for invalid settings."""
    _check_count(f"{side}: count", texts.count)
    _check_count(f"{side}: of_positives", texts.of_positives)
    if texts.of_positives and side != "negatives":
        raise ValueError(f"{side}: of_positives is for negatives; got {texts.of_positives}")
    if texts.fallback not in FALLBACKS:
        raise ValueError(f"{side}: fallback is one of {FALLBACKS}; got {texts.fallback!r}")
    if texts.fallback == "self" and side != "positives":
        raise ValueError(f"{side}: fallback='self' is for positives: a caption is right, not wrong")
    if OTHER_CAPTIONS in texts.shares and side != "positives":
        raise ValueError(f"{side}: {OTHER_CAPTIONS!r} is for positives: they are right, not wrong")
    _check_shares(side, texts)
    is_one_each = texts.count and texts.fallback == "one_each"
    if is_one_each and (texts.count != len(texts.shares) or texts.of_positives):
        raise ValueError(
            f"{side}: fallback='one_each' needs a count of {len(texts.shares)}, the number of "
            f"generators, and no of_positives; got {texts.count} and {texts.of_positives}"
        )
    if texts.count and texts.fallback == "replace" and len(texts.shares) < 2:
        raise ValueError(
            f"{side}: fallback='replace' needs a second generator; got {[*texts.shares]}"
        )
    made = [name for name in texts.shares if not is_of_record(name)]
    lacking = [name for name in made if name not in texts.generators]
    if texts.count and lacking:
        raise ValueError(f"{side}: no generator was made for {lacking[0]!r}")
    if texts.of_positives and not texts.generators:
        raise ValueError(
            f"{side}: of_positives={texts.of_positives} makes negatives of positives at each "
            f"reading, which needs a generator; got {[*texts.shares]}, name one among them"
        )


def _check_count(what: str, count: object) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 1024:
        raise ValueError(f"{what} is an integer, at least 0 and below 1024; got {count!r}")


def _check_shares(side: str, texts: HardTexts) -> None:
    shares = texts.shares
    for name, share in shares.items():
        if not isinstance(share, int | float) or isinstance(share, bool):
            raise ValueError(
                f"{side}: the share of a generator is a number; got {share!r} of {name!r}"
            )
    if not all(share >= 0 for share in shares.values()) or not 0 < sum(shares.values()) < math.inf:
        raise ValueError(
            f"{side}: generators need shares of at least 0, one of them above; got {dict(shares)}"
        )
    idle = [name for name, share in shares.items() if share == 0]
    if idle and texts.fallback != "replace":
        raise ValueError(
            f"{side}: a generator of share 0 only stands in for others, with fallback='replace'; "
            f"got {idle[0]!r} of share 0 and fallback={texts.fallback!r}: leave the generator out, "
            "or set fallback='replace'"
        )


def slots(negatives: HardTexts, positives: HardTexts) -> int:
    """Number of hard negatives per row of the batch: the width of `negative_text`."""
    return negatives.count + negatives.of_positives * positives.count


def draw(
    texts: HardTexts,
    caption: Caption,
    stored: Sequence[str],
    stored_kinds: Sequence[str],
    rng: np.random.Generator,
    scene: SceneGraph | None,
    others: Sequence[Caption] = (),
) -> list[str]:
    """At most `texts.count` distinct texts; only the caption itself ("self") may repeat. With
    "one_each" exactly so many, "" in the place of a missing one.

    stored, stored_kinds: the record's texts for this caption, and the kind of each (the name of its
      generator, or another); no kinds if unknown. Texts equal to the caption are skipped.
    scene: scene graph for generators (`Generator`).   others: the record's other captions.
    Raises a generator's DataError.
    """
    pools: dict[str, list[str]] = {}  # generator -> its unused texts, the next one last
    drawn: list[str] = []

    def take(name: str) -> str | None:
        if name not in pools:
            record_texts = others if name == OTHER_CAPTIONS else stored
            pools[name] = _pool(texts, name, caption, record_texts, stored_kinds, rng, scene)
        while pools[name]:
            if (text := pools[name].pop()) not in drawn:
                return text
        return None

    is_one_each = texts.fallback == "one_each"
    for index in range(texts.count):
        order = sorted(texts.shares)[index:] if is_one_each else _order(texts.shares, rng)
        names = order if texts.fallback == "replace" else order[:1]
        text = next((text for name in names if (text := take(name)) is not None), None)
        if text is None and texts.fallback == "self":
            text = caption
        if text is not None or is_one_each:
            drawn.append(text or "")
    return drawn


def _order(shares: Mapping[str, float], rng: np.random.Generator) -> list[str]:
    """Names drawn without replacement with probabilities `shares`, then names of share 0."""
    names = [name for name, share in shares.items() if share > 0]
    if len(names) > 1:
        weights = np.array([shares[name] for name in names], np.float64)
        order = rng.choice(len(names), len(names), replace=False, p=weights / weights.sum())
        names = [names[index] for index in order]
    return names + [name for name, share in shares.items() if share == 0]


def _pool(
    texts: HardTexts,
    name: str,
    caption: Caption,
    stored: Sequence[str],
    stored_kinds: Sequence[str],
    rng: np.random.Generator,
    scene: SceneGraph | None,
) -> list[str]:
    """The texts of one generator for the caption, in random order, the next one last."""
    if name in OF_RECORD:
        pool = list(map(str, stored))
    else:
        pairs = zip(stored, stored_kinds, strict=True) if stored_kinds else ()
        wanted = name.removeprefix(f"{FROM_RECORD}:")
        pool = [text for text, kind in pairs if kind == wanted]
    useless = ("", str(caption).strip())
    pool = list(dict.fromkeys(text for text in pool if text.strip() not in useless))
    if name == IN_ORDER:
        return pool[::-1]
    if pool:
        return [pool[index] for index in rng.permutation(len(pool))]
    if is_of_record(name):
        return []
    # reversed: a generator returns its best text first, and `take` pops from the end
    return [*texts.generators[name](text_of(caption), rng, texts.count, scene)][::-1]
