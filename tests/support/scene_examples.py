"""Worlds and scenes for the tests of the embedded world."""

from vlc_jax.input_pipeline.record import Record
from vlc_jax.input_pipeline.scenes import grammar
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.input_pipeline.scenes.world import Scene, SceneObject, World

MINI = worlds.named("scenes-mini")
WORLDS = {
    "mini": MINI,
    "64": worlds.named("scenes-64"),
    "depth": worlds.named("scenes-mini", depth=0.7),
    "copies": worlds.named("scenes-mini", repeat=0.4, counts=(0.1, 0.3, 0.3, 0.3)),
}


def two_objects(colour: str = "red") -> Scene:
    """A big circle of a colour left of a small blue square."""
    circle = SceneObject("circle", colour, "big", "plain", 2, 10, 15, (0, 0, 0))
    square = SceneObject("square", "blue", "small", "plain", 22, 12, 10, (0, 0, 0))
    return Scene(MINI, (circle, square), (200, 200, 200), 0)


def scene_of(record: Record, world: World = MINI, key: str = "scene") -> Scene:
    """The scene of a record or a case."""
    return worlds.from_json(record.meta[key], world)


def is_true(text: str, scene: Scene) -> bool:
    return grammar.is_true(grammar.parse(text, scene.world), scene)
