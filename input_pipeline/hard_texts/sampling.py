"""Which hard negatives or positives a caption gets: those of its record, or made on the fly."""

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from input_pipeline import lookup
from input_pipeline.hard_texts.generator import Generator

GIVEN = "given"  # the kind that means: what the record holds, of any kind
MISSING = ("skip", "replace", "self")


@dataclass(frozen=True)
class Texts:
    """The hard negatives, or the hard positives, that every caption gets.

    count: texts per caption; 0: none.
    kinds: kind -> share of the texts. "given": what the record holds, of any kind. The name of a
      generator: what the record holds of that kind; where it holds none, what the generator makes
      now. A kind of share 0 only stands in for others, which missing="replace" lets it.
    missing: what becomes of a text whose kind has none (left): "skip" (masked), "replace" (another
      kind, chosen by the shares of the others, those of share 0 last) or "self" (the caption).
    generators: kind -> its generator, for every kind but "given".
    of_positives: of negatives: how many more are made of each hard positive, as DAC has them of the
      sentences of a bag. They stand behind those of the caption, in the order of the positives.
    """

    count: int = 0
    kinds: Mapping[str, float] = field(default_factory=lambda: {GIVEN: 1.0})
    missing: str = "skip"
    generators: Mapping[str, Generator] = field(default_factory=dict)
    of_positives: int = 0


def make(
    side: str,
    *,
    count: int = 0,
    kinds: Mapping[str, float] | None = None,
    missing: str = "skip",
    options: Mapping[str, Mapping[str, Any]] | None = None,
    of_positives: int = 0,
    table: Mapping[str, Callable[..., Generator]] | None = None,
) -> Texts:
    """The texts of a side, "negatives" or "positives", with the generators that its kinds name.

    options: generator -> its own options. table: name -> factory; default: all there are.
    Raises ValueError for unknown kinds and options and for values that do not fit.
    """
    kinds, options = dict(kinds or {GIVEN: 1.0}), options or {}
    made = {}
    if count or of_positives:
        for name in options:
            if name not in kinds:
                raise ValueError(f"{side}: options for {name!r}, which is not among {[*kinds]}")
        names = [kind for kind in kinds if kind != GIVEN]
        known = generators(side) if table is None and names else table or {}
        made = {name: make_generator(side, known, name, options.get(name, {})) for name in names}
    texts = Texts(count, kinds, missing, made, of_positives)
    check(side, texts)
    return texts


def generators(side: str) -> Mapping[str, Callable[..., Generator]]:
    """Name -> factory of "negatives" or "positives"; taggers are imported only where they act."""
    module = importlib.import_module(f"input_pipeline.hard_texts.{side}")
    return getattr(module, side.upper())


def make_generator(
    side: str,
    table: Mapping[str, Callable[..., Generator]],
    name: str,
    options: Mapping[str, Any],
) -> Generator:
    """A generator by its name. Raises ValueError for unknown names and options and wrong types."""
    if name in table:
        lookup.check_types(f"generator of {side}", name, table[name], options)
    return lookup.build(f"generator of {side}", table, name, **options)


def versions(sides: Mapping[str, Texts]) -> dict[str, str]:
    """Side and name -> version of every generator: what decides the texts beside the data."""
    return {
        f"{side}/{name}": generator.version
        for side, texts in sides.items()
        for name, generator in texts.generators.items()
    }


def stored_versions(source: object) -> Mapping[str, Mapping[str, str]]:
    """Side -> kind -> version of the generator that made the texts of that kind which records of
    the source hold. Empty where generators made none, or nothing is known of them.
    """
    return getattr(source, "text_versions", {})


def check_stored(
    sides: Mapping[str, Mapping[str, Generator]], stored: Mapping[str, Mapping[str, str]]
) -> None:
    """Raises ValueError if texts of a kind were stored with another version of its generator.

    sides: "negatives", "positives" -> kind -> generator. stored: as `stored_versions` gives it.
    """
    for side, table in sides.items():
        for kind, generator in table.items():
            held = stored.get(side, {}).get(kind, generator.version)
            if held != generator.version:
                raise ValueError(
                    f"{side}: texts of one kind have one version; {kind!r} was prepared with "
                    f"{held!r}, asked for is {generator.version!r}: set input.{side}.options."
                    f"{kind} to what was prepared, or prepare again with --generator-options "
                    f"'{{\"{kind}\": {{...}}}}'"
                )


def check(side: str, texts: Texts) -> None:
    """Raises ValueError for values that do not fit."""
    _check_count(f"{side}: count", texts.count)
    _check_count(f"{side}: of_positives", texts.of_positives)
    if texts.of_positives and side != "negatives":
        raise ValueError(f"{side}: of_positives is for negatives; got {texts.of_positives}")
    if texts.missing not in MISSING:
        raise ValueError(f"{side}: missing is one of {MISSING}; got {texts.missing!r}")
    if texts.missing == "self" and side != "positives":
        raise ValueError(f"{side}: missing='self' is for positives: a caption is right, not wrong")
    _check_shares(side, texts)
    if texts.count and texts.missing == "replace" and len(texts.kinds) < 2:
        raise ValueError(f"{side}: missing='replace' needs a second kind; got {[*texts.kinds]}")
    lacking = [kind for kind in texts.kinds if kind != GIVEN and kind not in texts.generators]
    if texts.count and lacking:
        raise ValueError(f"{side}: no generator was made for the kind {lacking[0]!r}")
    if texts.of_positives and not texts.generators:
        raise ValueError(
            f"{side}: of_positives={texts.of_positives} makes negatives of positives at each "
            f"reading, which needs a generator; got the kinds {[*texts.kinds]}, name one among them"
        )


def _check_count(what: str, count: object) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 1024:
        raise ValueError(f"{what} is an integer, at least 0 and below 1024; got {count!r}")


def _check_shares(side: str, texts: Texts) -> None:
    shares = texts.kinds
    for kind, share in shares.items():
        if not isinstance(share, int | float) or isinstance(share, bool):
            raise ValueError(f"{side}: the share of a kind is a number; got {share!r} of {kind!r}")
    if not all(each >= 0 for each in shares.values()) or not 0 < sum(shares.values()) < math.inf:
        raise ValueError(
            f"{side}: kinds need shares of at least 0, one of them above; got {dict(shares)}"
        )
    idle = [kind for kind, share in shares.items() if share == 0]
    if idle and texts.missing != "replace":
        raise ValueError(
            f"{side}: a kind of share 0 only stands in for others, with missing='replace'; got "
            f"{idle[0]!r} of share 0 and missing={texts.missing!r}: leave the kind out, or say so"
        )


def slots(negatives: Texts, positives: Texts) -> int:
    """How many hard negatives a row of the batch has room for."""
    return negatives.count + negatives.of_positives * positives.count


def draw(
    texts: Texts,
    caption: str,
    given: Sequence[str],
    given_kinds: Sequence[str],
    rng: np.random.Generator,
    scene: Mapping[str, Any] | None,
) -> list[str]:
    """At most `texts.count` texts, different but for repetitions of the caption itself ("self").

    given, given_kinds: what the record holds for this caption; kinds are empty if not known. What
      equals the caption is left out.
    scene: as generators take it. Raises DataError where a generator does.
    """
    pools: dict[str, list[str]] = {}  # what is left of a kind, the next one last
    drawn: list[str] = []

    def take(kind: str) -> str | None:
        if kind not in pools:
            pools[kind] = _pool(texts, kind, caption, given, given_kinds, rng, scene)
        while pools[kind]:
            if (text := pools[kind].pop()) not in drawn:
                return text
        return None

    for _ in range(texts.count):
        order = _order(texts.kinds, rng)
        asked = order if texts.missing == "replace" else order[:1]
        text = next((text for kind in asked if (text := take(kind)) is not None), None)
        if text is None and texts.missing == "self":
            text = caption
        if text is not None:
            drawn.append(text)
    return drawn


def _order(kinds: Mapping[str, float], rng: np.random.Generator) -> list[str]:
    """Kinds by chance, the first one as often as its share says; those of share 0 last."""
    shared = [kind for kind, share in kinds.items() if share > 0]
    if len(shared) > 1:
        shares = np.array([kinds[kind] for kind in shared], np.float64)
        chosen = rng.choice(len(shared), len(shared), replace=False, p=shares / shares.sum())
        shared = [shared[index] for index in chosen]
    return shared + [kind for kind, share in kinds.items() if share == 0]


def _pool(
    texts: Texts,
    kind: str,
    caption: str,
    given: Sequence[str],
    given_kinds: Sequence[str],
    rng: np.random.Generator,
    scene: Mapping[str, Any] | None,
) -> list[str]:
    if kind == GIVEN:
        held = list(given)
    else:
        pairs = zip(given, given_kinds, strict=True) if given_kinds else ()
        held = [text for text, of_kind in pairs if of_kind == kind]
    held = list(dict.fromkeys(text for text in held if text.strip() not in ("", caption.strip())))
    if held:
        return [held[index] for index in rng.permutation(len(held))]
    if kind == GIVEN:
        return []
    return [*texts.generators[kind](caption, rng, texts.count, scene)][::-1]
