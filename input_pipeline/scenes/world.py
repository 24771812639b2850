"""Worlds and their scenes: the parameters of pictures, and the exact description of one picture.

A scene contains everything that a caption can mention, so the truth of a caption is computed, not
judged. `sample.py` samples scenes, `draw.py` renders them, `grammar.py` describes them.
"""

import dataclasses
import functools
import hashlib
from typing import Any, NamedTuple

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.scenes import shapes

RGB: dict[str, tuple[int, int, int]] = {
    "red": (220, 40, 40),
    "green": (40, 160, 60),
    "blue": (40, 80, 220),
    "yellow": (235, 215, 40),
    "purple": (130, 45, 170),
    "orange": (240, 130, 30),
    "pink": (245, 130, 185),
    "brown": (125, 75, 40),
    "black": (25, 25, 25),
    "cyan": (40, 200, 215),
    "grey": (125, 125, 130),
    "olive": (125, 130, 30),
}

DIRECTIONS = ("left of", "right of", "above", "below")
DEPTHS = ("in front of", "behind")
PLACES = ("on the left", "on the right", "at the top", "at the bottom")
OPPOSITE = {
    "left of": "right of",
    "right of": "left of",
    "above": "below",
    "below": "above",
    "in front of": "behind",
    "behind": "in front of",
}


@dataclasses.dataclass(frozen=True)
class World:
    """Parameters of a world; lengths in pixels, colours in grey levels of 0..255.

    No two objects of a scene share shape or colour, unless `repeat` makes copies; boxes never
    overlap, unless `depth` puts one object in front of the other. Changing any field changes the
    `id`, and with it all scenes.
    """

    name: str
    # counts changes of the sampling or drawing code
    version: int = 1
    canvas: int = 40  # width and height of a picture
    shapes: tuple[str, ...] = (
        "circle", "square", "triangle", "diamond", "cross",
        "star", "ring", "heart", "moon", "arrow",
    )  # fmt: skip
    colours: tuple[str, ...] = (
        "red", "green", "blue", "yellow", "purple",
        "orange", "pink", "brown", "black", "cyan",
    )  # fmt: skip
    textures: tuple[str, ...] = ("plain",)
    small: int = 10  # side of a small object's box
    big: int = 15
    counts: tuple[float, ...] = (0.15, 0.60, 0.25)  # probability of 1, 2, ... objects
    background: tuple[int, int] = (175, 235)  # range of each channel
    # sigma of the background's grey noise
    pixel_noise: float = 8.0
    colour_jitter: float = 10.0  # sigma, per object and channel
    # range between the two centres along the main axis
    distance: tuple[int, int] = (15, 22)
    offset: int = 5  # largest distance across it
    # a relation holds if one axis exceeds the other by at least this much
    margin: int = 8
    # share of two-object scenes in which one object is in front of the other
    depth: float = 0.0
    # probability that an object copies the one before it, for counting
    repeat: float = 0.0
    # held out: (3 shape + 7 colour) % 10 == 0, by index
    held_factors: tuple[int, int] = (3, 7)
    held_modulus: int = 10

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # lists come from configs and command lines
            value = getattr(self, field.name)
            if isinstance(value, list):
                object.__setattr__(self, field.name, tuple(value))
        lookup.check_known("shape", self.shapes, shapes.OUTLINES)
        lookup.check_known("colour", self.colours, RGB)
        lookup.check_known("texture", self.textures, shapes.TEXTURES)
        # sums of such numbers may miss 1 in the last digits
        if abs(sum(self.counts) - 1) > 1e-9 or min(self.counts) < 0:
            raise ValueError(f"counts are probabilities and sum to 1; got {self.counts}")
        if len(self.counts) > 6:
            raise ValueError(f"a scene has at most 6 objects; got {len(self.counts)} counts")
        kinds = min(len(self.shapes), len(self.colours))
        if len(self.counts) >= kinds:
            raise ValueError(
                f"a scene has at most {len(self.counts)} objects of different shape and colour, "
                f"and one more must stay absent; got only {kinds} shapes or colours"
            )
        if self.distance[0] < self.big or self.distance[0] - self.offset < self.margin + 1:
            raise ValueError(
                f"distance must be at least big={self.big} (boxes do not overlap) and at least "
                f"offset + margin + 1 = {self.offset + self.margin + 1} (the relation is clear); "
                f"got {self.distance}"
            )
        if self.distance[1] + self.big + 1 > self.canvas:
            raise ValueError(
                f"two big objects {self.distance[1]} apart need {self.distance[1] + self.big + 1} "
                f"pixels; the canvas has {self.canvas}: enlarge it or lower distance"
            )

    @functools.cached_property
    def id(self) -> str:
        """Name and version, and a hash of all fields unless WORLDS has the same under this name."""
        name = f"{self.name}-v{self.version}"
        # the hash for changed worlds only: published names stay readable
        if WORLDS.get(self.name) == self:
            return name
        rules = repr(dataclasses.astuple(self)).encode()
        return f"{name}+{hashlib.blake2b(rules, digest_size=4).hexdigest()}"

    @functools.cached_property
    def pixels(self) -> dict[str, int]:
        """Size word -> side of the box."""
        return {"small": self.small, "big": self.big}

    @functools.cached_property
    def held_combinations(self) -> frozenset[tuple[str, str]]:
        """The (shape, colour) pairs that only the held splits show."""
        a, b = self.held_factors
        return frozenset(
            (shape, colour)
            for i, shape in enumerate(self.shapes)
            for j, colour in enumerate(self.colours)
            if self.held_modulus and (a * i + b * j) % self.held_modulus == 0
        )


class SceneObject(NamedTuple):
    """One object: base words, the upper left corner and side of its box, its own shade."""

    shape: str
    colour: str
    size: str
    texture: str
    x: int
    y: int
    pixels: int
    jitter: tuple[int, int, int]  # added to the colour's RGB


class Scene(NamedTuple):
    """Exact description of a picture; later objects are drawn over earlier ones."""

    world: World
    objects: tuple[SceneObject, ...]
    background: tuple[int, int, int]
    noise: int  # names the background noise

    def relation(self, i: int, j: int) -> str | None:
        """The relation r such that "object i r object j" is true; None if none is clearly true."""
        a, b = self.objects[i], self.objects[j]
        if overlaps(a, b):
            return "in front of" if i > j else "behind"
        right = 2 * (a.x - b.x) + a.pixels - b.pixels  # doubled centre distance
        down = 2 * (a.y - b.y) + a.pixels - b.pixels
        lead = abs(right) - abs(down)
        if lead >= 2 * self.world.margin:
            return "left of" if right < 0 else "right of"
        if -lead >= 2 * self.world.margin:
            return "above" if down < 0 else "below"
        return None

    def place(self, i: int) -> str | None:
        """Place of object i on the canvas, in words, or None if it is not clearly on one side.

        Distances from the middle are half as long as distances between objects, so one axis must
        exceed the other by half the margin of `relation`.
        """
        a = self.objects[i]
        right = 2 * a.x + a.pixels - self.world.canvas
        down = 2 * a.y + a.pixels - self.world.canvas
        lead = abs(right) - abs(down)
        if lead >= self.world.margin:
            return "on the left" if right < 0 else "on the right"
        if -lead >= self.world.margin:
            return "at the top" if down < 0 else "at the bottom"
        return None

    def to_json(self) -> dict[str, Any]:
        """The scene graph as plain JSON; `from_json` reads it back."""
        return {
            "world": self.world.id,
            "objects": [obj._asdict() for obj in self.objects],
            "background": self.background,
            "noise": self.noise,
        }


def from_json(graph: dict[str, Any], world: World) -> Scene:
    """Inverse of `Scene.to_json`. Raises ValueError for a graph of another world."""
    if graph["world"] != world.id:
        raise ValueError(f"the scene graph is of world {graph['world']!r}, not of {world.id!r}")
    objects = tuple(
        SceneObject(**{**obj, "jitter": tuple(obj["jitter"])}) for obj in graph["objects"]
    )
    return Scene(world, objects, tuple(graph["background"]), graph["noise"])


WORLDS: dict[str, World] = {
    "scenes-mini": World("scenes-mini"),
    # Overlapping colours: the best guess from an object's shade is right among ten colours in 83 %
    # of cases, against one of the two nearest colours in 93 % and against any other in 98 % (sigma
    # 10: 100 %). Noise per pixel would not do: it averages out over an object.
    "scenes-hues": World("scenes-hues", colour_jitter=40.0),
    # The rules of scenes-mini; captions use synonyms so often (grammar.STYLES) that a model knows
    # them before any finetuning, as a CLIP of photographs does.
    "scenes-synonyms": World("scenes-synonyms"),
    "scenes-64": World(
        "scenes-64",
        canvas=64,
        shapes=(*World.shapes, "house", "hourglass", "bolt", "frame"),
        colours=(*World.colours, "grey", "olive"),
        textures=("plain", "striped", "dotted"),
        small=14,
        big=24,
        counts=(0.15, 0.45, 0.25, 0.15),
        distance=(24, 35),
        offset=8,
        margin=12,
    ),
}


def named(name: str, **changes: Any) -> World:
    """A world of the table, with fields of `World` changed. Raises ValueError for unknown names."""
    lookup.check_known("world", [name], WORLDS)
    lookup.check_known("field of a world", changes, [f.name for f in dataclasses.fields(World)])
    return dataclasses.replace(WORLDS[name], **changes)


def overlaps(a: SceneObject, b: SceneObject) -> bool:
    """True if the boxes share a pixel."""
    return (
        a.x < b.x + b.pixels
        and b.x < a.x + a.pixels
        and a.y < b.y + b.pixels
        and b.y < a.y + a.pixels
    )


def exchange(scene: Scene, i: int, j: int, attribute: str) -> Scene:
    """The scene with the colour, texture or shape of objects i and j exchanged, nothing else."""
    lookup.check_known("attribute to exchange", [attribute], ("colour", "texture", "shape"))
    objects = list(scene.objects)
    a, b = objects[i], objects[j]
    objects[i] = a._replace(**{attribute: getattr(b, attribute)})
    objects[j] = b._replace(**{attribute: getattr(a, attribute)})
    return scene._replace(objects=tuple(objects))


def reverse_relation(scene: Scene, i: int, j: int) -> Scene | None:
    """The scene with the positions of objects i and j exchanged, which reverses their relation.

    Both boxes are turned by 180 degrees about the middle of the pair, the shapes stay upright: an
    exact exchange if the sizes are equal, and inside the canvas and free of overlap in any case.
    An overlapping pair exchanges its drawing order. None if a third object is in the way.
    """
    objects = list(scene.objects)
    a, b = objects[i], objects[j]
    if overlaps(a, b):
        objects[i], objects[j] = b, a
        return scene._replace(objects=tuple(objects))
    middle_x = min(a.x, b.x) + max(a.x + a.pixels, b.x + b.pixels)
    middle_y = min(a.y, b.y) + max(a.y + a.pixels, b.y + b.pixels)
    for k, obj in ((i, a), (j, b)):
        objects[k] = obj._replace(x=middle_x - obj.x - obj.pixels, y=middle_y - obj.y - obj.pixels)
    others = [obj for k, obj in enumerate(objects) if k not in (i, j)]
    if any(overlaps(obj, other) for obj in (objects[i], objects[j]) for other in others):
        return None
    return scene._replace(objects=tuple(objects))
