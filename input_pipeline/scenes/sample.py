"""Sampling of scenes: scene i of a split is a pure function of (world, split, i)."""

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.scenes import shapes
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.input_pipeline.scenes.stream import Stream, normal_table
from vlc_jax.input_pipeline.scenes.world import Scene, World

SPLITS = ("train", "validation", "test", "held", "held_validation")
"""Each scene of `held` and `held_validation` shows a shape-colour pair that no other split has."""

# share of either object's area that the other hides if it is in front
_HIDDEN = (0.12, 0.45)


def sample_scene(world: World, split: str, index: int, objects: int | None = None) -> Scene:
    """Scene `index` of a split, a pure function of the arguments, the same on every machine.

    objects: number of objects, default: drawn from `world.counts`. Scenes of a fixed number are a
    separate series of the split.
    """
    lookup.check_known("split", [split], SPLITS)
    series = "" if objects is None else f"/{objects}"
    is_held_out = split.startswith("held")
    if is_held_out and not world.held_combinations:
        raise ValueError(f"world {world.id!r} holds nothing out, so it has no split {split!r}")
    # The order of all draws decides every scene: another order is another World.version.
    stream = Stream(f"{world.id}/{split}{series}/{index}")
    count = 1 + stream.weighted(world.counts) if objects is None else objects
    looks = _sample_looks(world, stream, count, is_held_out)
    boxes = _sample_boxes(world, stream, looks)
    jitter = normal_table(world.colour_jitter)
    textures = world.textures
    things = tuple(
        worlds.SceneObject(
            shape,
            colour,
            size,
            stream.choice(textures) if len(textures) > 1 else textures[0],
            x,
            y,
            world.pixels[size],
            (jitter[stream.below(256)], jitter[stream.below(256)], jitter[stream.below(256)]),
        )
        for (shape, colour), (size, x, y) in zip(looks, boxes, strict=True)
    )
    low, high = world.background
    background = (stream.between(low, high), stream.between(low, high), stream.between(low, high))
    return Scene(world, things, background, stream.word())


def _sample_looks(
    world: World, stream: Stream, count: int, is_held_out: bool
) -> list[tuple[str, str]]:
    """Shapes and colours, different except for copies.

    is_held_out: True if at least one pair must be a held-out one, False if none may be.
    """
    while True:
        looks = [
            (world.shapes[s], world.colours[c])
            for s, c in zip(
                stream.sample(len(world.shapes), count),
                stream.sample(len(world.colours), count),
                strict=True,
            )
        ]
        # by rejection: uniform among the looks that the split allows
        if is_held_out == any(look in world.held_combinations for look in looks):
            break
    if world.repeat:
        for i in range(1, count):
            if stream.chance(world.repeat):
                looks[i] = looks[i - 1]
    return looks


Box = tuple[str, int, int]  # size word, upper left corner


def _sample_boxes(world: World, stream: Stream, looks: list[tuple[str, str]]) -> list[Box]:
    if len(looks) == 2:
        if world.depth and stream.chance(world.depth):
            return _stack_two(world, stream, looks)
        return _place_two(world, stream)
    return _place_freely(world, stream, len(looks))


def _sample_size(stream: Stream) -> str:
    return "small" if stream.below(2) == 0 else "big"


def _place_two(world: World, stream: Stream) -> list[Box]:
    """Direction, distance and offset uniform; then the pair anywhere on the canvas.

    Centres of a small and a big object may be half a pixel off: the distance is then half a pixel
    longer, never shorter.
    """
    sizes = _sample_size(stream), _sample_size(stream)
    first, second = world.pixels[sizes[0]], world.pixels[sizes[1]]
    direction = stream.below(4)
    distance = stream.between(*world.distance)
    across = stream.between(-world.offset, world.offset) + (first - second) // 2
    # the first object is left of or above the second one
    if direction % 2 == 0:
        along = distance - (second - first) // 2
    else:
        along = (first - second) // 2 - distance
    right, down = (along, across) if direction < 2 else (across, along)
    x = stream.between(max(0, -right), world.canvas - max(first, right + second))
    y = stream.between(max(0, -down), world.canvas - max(first, down + second))
    return [(sizes[0], x, y), (sizes[1], x + right, y + down)]


def _place_freely(world: World, stream: Stream, count: int) -> list[Box]:
    """Uniform positions, drawn again from the start while boxes overlap.

    After twenty failures the sizes are drawn again too, so crowded scenes have more small objects.
    """
    canvas = world.canvas
    while True:
        sizes = [_sample_size(stream) for _ in range(count)]
        for _ in range(20):
            corners: list[tuple[int, int, int, int]] = []  # left, top, right, bottom
            for size in sizes:
                side = world.pixels[size]
                x, y = stream.between(0, canvas - side), stream.between(0, canvas - side)
                if any(
                    x < right and left < x + side and y < bottom and top < y + side
                    for left, top, right, bottom in corners
                ):
                    break
                corners.append((x, y, x + side, y + side))
            else:
                return [(size, box[0], box[1]) for size, box in zip(sizes, corners, strict=True)]


def _stack_two(world: World, stream: Stream, looks: list[tuple[str, str]]) -> list[Box]:
    """The second object in front of the first; both would be visible in either order."""
    while True:
        sizes = _sample_size(stream), _sample_size(stream)
        rear, front = (
            shapes.mask(shape, world.pixels[size])
            for (shape, _), size in zip(looks, sizes, strict=True)
        )
        x, y = (stream.between(0, world.canvas - len(rear)) for _ in range(2))
        right = stream.between(1 - len(front), len(rear) - 1)
        down = stream.between(1 - len(front), len(rear) - 1)
        if not (0 <= x + right <= world.canvas - len(front)):
            continue
        if not (0 <= y + down <= world.canvas - len(front)):
            continue
        part_rear = rear[max(0, down) : down + len(front), max(0, right) : right + len(front)]
        part_front = front[max(0, -down) :, max(0, -right) :][
            : part_rear.shape[0], : part_rear.shape[1]
        ]
        shared = int((part_rear * part_front).sum()) / shapes.OPAQUE
        if all(_HIDDEN[0] <= shared / int(mask.sum()) <= _HIDDEN[1] for mask in (rear, front)):
            return [(sizes[0], x, y), (sizes[1], x + right, y + down)]
