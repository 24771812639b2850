"""Part n: captions by density, completeness and saliency, and what hard negatives add.

After Gurung et al. 2025 (arXiv:2507.07985), who vary these properties of synthetic captions. Here
they are the options `colour`, `completeness` and `saliency` of the scenes' captions
(input_pipeline/scenes/grammar.py); captions have no sizes, places or relations.
"""

from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from studies import study_results
from studies.study_results import Results, Value

DENSITIES = (0.1, 0.4, 1.0)  # share of the named objects whose colour is named
COMPLETENESS = (0.5, 0.75, 1.0)  # mean share of the objects that a caption names
SALIENCIES = (0.0, 0.5, 1.0)  # share of incomplete captions that must name the biggest object
# 489 s of clip-0, 1,000 steps of 256 and all evaluations on a CPU, are 171 s of as many examples
STEPS, BATCH = 700, 128
EVALS = {"scenes_attribute_swap": 2000, "scenes_attributes": 2000}
SWAP = ("scenes_attribute_swap", "accuracy")


class Cell(NamedTuple):
    """A kind of captions; `at` makes it."""

    density: float
    completeness: float
    saliency: float

    @property
    def name(self) -> str:
        """Name of its run: binding_DENSITY_COMPLETENESS[_SALIENCY], in percent."""
        values = self if self.completeness < 1 else self[:2]
        return "_".join(["binding", *[f"{100 * value:.0f}" for value in values]])

    @property
    def captions(self) -> str:
        """Flag with all caption options, in place of those of a config."""
        options = {"colour": self.density} | dict.fromkeys(("size", "place", "relation"), 0.0)
        options |= {"completeness": self.completeness, "saliency": self.saliency}
        return f"--config.input.scenes.caption_options={options}"


def at(density: float, completeness: float, saliency: float) -> Cell:
    """The cell of three values; complete captions leave nothing to choose, so have no saliency."""
    return Cell(density, completeness, saliency if completeness < 1 else 0.0)


CELLS = tuple(
    dict.fromkeys(
        at(density, completeness, saliency)
        for density in DENSITIES
        for completeness in COMPLETENESS
        for saliency in SALIENCIES
    )
)
# of which CLIP-FT and HN go on: the biggest object first, where there is a choice
FINETUNED = tuple(cell for cell in CELLS if cell == at(*cell[:2], 1.0))


def figure(results: Results) -> Figure:
    """Swapped attributes by density and completeness, a map for each saliency and one of what HN
    gains over CLIP-FT."""
    painted = Figure(figsize=(13, 3.4), layout="constrained")
    *maps, gain_axes = painted.subplots(1, len(SALIENCIES) + 1, sharey=True)
    for axes, saliency in zip(maps, SALIENCIES, strict=True):
        values = [
            [results.value(at(x, y, saliency).name, *SWAP) for x in DENSITIES] for y in COMPLETENESS
        ]
        image = _map(axes, values, "viridis", (50, 100))
        axes.set_title(f"biggest first: {100 * saliency:.0f} %", loc="left", fontsize=10)
    maps[0].set_ylabel("objects named, %")
    painted.colorbar(image, ax=maps, label="swapped attributes, %; chance 50")
    gains = [
        [results.difference(f"{name}_hn", f"{name}_clip_ft", *SWAP) for name in row]
        for row in ([at(x, y, 1.0).name for x in DENSITIES] for y in COMPLETENESS)
    ]
    image = _map(gain_axes, gains, "coolwarm", (-10, 10), "+")
    gain_axes.set_title("HN − CLIP-FT, biggest first: 100 %", loc="left", fontsize=10)
    painted.colorbar(image, ax=gain_axes, label="points")
    return painted


def _map(
    axes: Axes, values: list[list[Value]], colours: str, limits: tuple[int, int], sign: str = ""
) -> AxesImage:
    """A cell with mean and interval for each density (columns) and completeness (rows)."""
    means = [[100 * value.mean for value in row] for row in values]
    low, high = limits
    image = axes.imshow(means, vmin=low, vmax=high, origin="lower", cmap=colours)
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            text = f"{100 * value.mean:{sign}.0f}\n±{100 * value.half:.0f}"
            text = study_results.shown(text, value.half).replace(" (", "\n(")
            ink = "white" if colours == "viridis" and value.mean <= 0.8 else "black"
            axes.text(j, i, text, ha="center", va="center", color=ink, fontsize=9)
    axes.set_xticks(range(len(DENSITIES)), [f"{100 * each:.0f}" for each in DENSITIES])
    axes.set_yticks(range(len(COMPLETENESS)), [f"{100 * each:.0f}" for each in COMPLETENESS])
    axes.set_xlabel("colours named, %")
    return image
