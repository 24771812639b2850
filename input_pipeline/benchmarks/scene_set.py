"""Evaluation sets of scenes: which scenes, and a reader from the function of the questions."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.scenes import draw, questions, sample
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.input_pipeline.scenes.stream import Stream
from vlc_jax.input_pipeline.scenes.world import Scene, World

# version of the questions; `World.version` covers the images
VERSION = 1
READERS: dict[str, tuple[Callable[..., Benchmark], str]] = {}  # name -> (reader, protocol)

_MOST = 100_000  # cases: more say no more, and each is drawn
_HELD = {"validation": "held_validation", "test": "held"}


class Question(NamedTuple):
    """A case without its image.   meaning: no other case of the set has it; None: any."""

    captions: tuple[str, ...]
    group: str | None = None
    meta: dict[str, Any] = {}  # noqa: RUF012  (never modified)
    meaning: Hashable = None


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


_Ask = Callable[..., Question | None]


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


@dataclasses.dataclass(frozen=True)
class SceneSet:
    """Decorator: makes the reader of the set scenes_NAME from NAME, the function of its questions:
    (scene, stream) -> question; None for a scene that allows none.

    Arguments of the function that have a default are options of the set.

    protocol: of its evaluation.   count: of cases, by default.   objects: in a scene.
    held: scenes with a held-out shape-colour pair; None: in every second case.   has_held: there is
      a set scenes_held_NAME of such scenes, too.
    kinds: of its cases, which alternate; the function has the kind as its third argument.   known:
      all that the option `kinds` may name.
    fields: world -> further fields of the benchmark.
    """

    protocol: str
    count: int = Where.count
    objects: int = 2
    held: bool | None = False
    has_held: bool = False
    kinds: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    version: int = VERSION
    fields: Callable[[World], Mapping[str, Any]] = lambda _: {}

    def __call__(self, ask: _Ask) -> Callable[..., Benchmark]:
        if self.has_held:
            held = dataclasses.replace(self, held=True)
            READERS[f"scenes_held_{ask.__name__}"] = (
                held._reader("scenes_held_", ask),
                self.protocol,
            )
        read = self._reader("scenes_", ask)
        READERS[f"scenes_{ask.__name__}"] = (read, self.protocol)
        return read

    def _reader(self, prefix: str, ask: _Ask) -> Callable[..., Benchmark]:
        name, parameters = prefix + ask.__name__, inspect.signature(ask).parameters.values()
        own = [each for each in parameters if each.default is not each.empty]

        def read(kinds: Sequence[str] = self.kinds, **options: Any) -> Benchmark:
            lookup.check_known(f"kind of {name}", kinds, self.known or self.kinds)
            given = {each.name: options.pop(each.name) for each in own if each.name in options}
            where = where_of(options, count=self.count)
            return self._read(name, functools.partial(ask, **given), where, kinds)

        first, last = inspect.signature(read).parameters.values()
        read.__signature__ = inspect.Signature([first, *own, last])  # type: ignore[attr-defined]
        read.__doc__ = ask.__doc__
        return read

    def _read(self, name: str, ask: _Ask, where: Where, kinds: Sequence[str]) -> Benchmark:
        """The first `where.count` cases for which `ask` returns a question."""
        rules, meanings = where.rules, set[Hashable]()
        with_pair, without = _HELD[where.split], where.split

        def make(index: int, number: int) -> Iterator[Case]:
            is_held = number % 2 == 0 if self.held is None else self.held
            series = with_pair if is_held else without
            scene, image = _picture(rules, series, self.objects, index)
            kind = [kinds[number % len(kinds)]] if kinds else []
            question = ask(scene, Stream(f"{rules.id}/{series}/{name}/{index}"), *kind)
            if question is None or question.meaning in meanings:
                return
            if question.meaning is not None:
                meanings.add(question.meaning)
            meta = {"scene": scene.to_json(), "question": questions.ANY, **question.meta}
            images = (image, *meta.pop("images", ()))
            yield Case(f"{series}-{index:05d}", images, question.captions, question.group, meta)

        series = {None: f"{with_pair}+{without}", True: with_pair, False: without}[self.held]
        identity = f"{rules.id}/{series}/cases-{self.version}"
        return Benchmark(name, collect(name, where, make), identity, **self.fields(rules))
