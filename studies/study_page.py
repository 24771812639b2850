"""Page of a study: tables and figures of means over seeds with 95 % intervals."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import jinja2
import matplotlib
import numpy as np
from matplotlib.figure import Figure

from studies.study_results import VALUES, Results
from vlc_jax import published

LABELS = {  # run -> its name in tables
    "clip": "CLIP",
    "clip_ft": "CLIP-FT",
    "clip_ft_400": "CLIP-FT, 400 steps",
    "clip_ft_1200": "CLIP-FT, 1,200 steps",
    "negclip": "NegCLIP, 400 steps",
    "hard_images": "relation pairs alone, 800 steps",
    "relations": "relation pairs, then NegCLIP + hard images, 400 steps",
    "hn": "HN",
    "hp_hn": "HP+HN",
    "hp_hn_w0": "HP+HN, weight 0 (HP only)",
    "hp_hn_w0.25": "HP+HN, weight .25",
    "hp_hn_w0.5": "HP+HN, weight .5",
    "hp_hn_w0.75": "HP+HN, weight .75",
    "hp_hn_swap_only": "HP+HN, swap only",
    "hp_hn_replace_only": "HP+HN, replace only",
    "clip_mean": "cosine of the towers",
    "relations_mean": "cosine of the towers",
    "dcsm": "DCSM",
    "dcsm_grid": "DCSM, grid",
    "dcsm_no_rows": "DCSM without vectors of functional words",
    "dcsm_varied": "DCSM, varied captions",
    "pacl": "PACL",
    "pacl_feature_1d": "PACL + RoPE",
    "pacl_feature_2d": "PACL + RoPE by row and column",
    "pacl_unlocked": "PACL, image tower trained",
    "pacl_qk_1d": "PACL + RoPE inside the tower, trained",
    "pacl_qk_2d": "PACL + RoPE inside the tower by row and column, trained",
    "pacl_plain": "PACL, plain captions",
    "sparc": "SPARC",
    "sparc_plain": "SPARC, plain captions",
    "labclip": "LABCLIP",
    "labclip_plain": "LABCLIP, plain captions",
    "siglip": "SigLIP",
    "crepe_swap": "CREPE-swap",
    "crepe_replace": "CREPE-replace",
    "crepe_negate": "CREPE-negate",
    "svlc": "SVLC",
    "svlc_pos": "SVLC+Pos",
    "dac": "DAC",
    "fsc_clip": "FSC-CLIP's loss",
    "leftright_none": "CLIP, captions with places",
    "leftright": "the same with left/right negatives",
    "leftright_siglip_none": "SigLIP, captions with places",
    "leftright_siglip": "the same with left/right negatives",
    "clip_geometry": "CLIP",
    "relations_geometry": "relation pairs, then NegCLIP + hard images",
    "text_vectors": "cosine with vectors of texts",
    "clip_frozen": "cosine of the towers",
    "captioner": "decoder on patch tokens, captions of relations",
    "captioner_pooled": "the same on the embedding alone",
    "captioner_any": "decoder on patch tokens, any captions",
}
TRIPLET = ("original_accuracy", "augmented_accuracy", "brittleness")
HEADS_SHOWN = (
    *("dcsm", "dcsm_grid", "dcsm_no_rows", "dcsm_varied", "sparc", "text_vectors"),
    *("pacl", "pacl_feature_1d", "pacl_feature_2d", "pacl_unlocked", "pacl_qk_1d", "pacl_qk_2d"),
)
DECODERS_SHOWN = ["captioner", "captioner_any", "captioner_pooled"]
CAPTIONS_SHOWN = ("labclip", "labclip_plain", "pacl", "pacl_plain", "sparc", "sparc_plain")
SWEEP = ("hp_hn_w0", "hp_hn_w0.25", "hp_hn_w0.5", "hp_hn_w0.75", "hp_hn")
COLOURS = ("#0a68b4", "#a35200", "#5d6873")


NO_CHANCE = float("nan")


class Column(NamedTuple):
    """Column of a table: title, benchmark and metric, chance as a fraction or NO_CHANCE."""

    title: str
    benchmark: str
    metric: str
    chance: float


BAG_OF_WORDS = (
    Column("R@1 image→text", "scenes_retrieval", "image_to_text_r1", 0.001),
    Column("R@1 text→image", "scenes_retrieval", "text_to_image_r1", 0.001),
    Column("object", "scenes_objects", "accuracy", 0.5),
    Column("colour", "scenes_attributes", "accuracy", 0.5),
    Column("attribute swap", "scenes_attribute_swap", "accuracy", 0.5),
    Column("relation swap", "scenes_relation_swap", "accuracy", 0.5),
    Column("What'sUp pair", "scenes_whatsup", "pair_accuracy", 0.25),
    Column("held-out R@1", "scenes_held_retrieval", "image_to_text_r1", 0.001),
    Column("held-out attribute swap", "scenes_held_attribute_swap", "accuracy", 0.5),
    Column("held-out relation swap", "scenes_held_relation_swap", "accuracy", 0.5),
)


HEADS = (
    Column("attribute swap", "scenes_attribute_swap", "accuracy", 0.5),
    Column("relation swap", "scenes_relation_swap", "accuracy", 0.5),
    Column("negation", "scenes_negation", "accuracy", 0.5),
    Column("What'sUp individual", "scenes_whatsup", "individual_accuracy", 0.5),
    Column("What'sUp pair", "scenes_whatsup", "pair_accuracy", 0.25),
    Column("held-out attribute swap", "scenes_held_attribute_swap", "accuracy", 0.5),
    Column("held-out relation swap", "scenes_held_relation_swap", "accuracy", 0.5),
    Column("R@1 image→text", "scenes_retrieval", "image_to_text_r1", 0.001),
)


DECODERS = (*HEADS[:-1], Column("object", "scenes_objects", "accuracy", 0.5))  # of part h
PROBES = (  # of part g
    Column("colours: probe", "scenes_binding", "probe_accuracy", 0.5),
    Column("colours: score", "scenes_binding", "score_accuracy", 0.5),
    Column("left/right: probe", "scenes_binding_relation", "probe_accuracy", 0.5),
    Column("left/right: score", "scenes_binding_relation", "score_accuracy", 0.5),
)
SUPERPOSITION = (
    Column("nearer to its own sum", "scenes_superposition", "superposition", 0.5),
    Column("left of it", "scenes_superposition", "sum_residual", NO_CHANCE),
    Column("left by another picture", "scenes_superposition", "rendering_residual", NO_CHANCE),
    Column("exchanged colours above noise", "scenes_superposition", "binding_visible", 0.05),
    Column("conditions met", "scenes_conditions", "satisfied", 0.283),
)
SHUFFLED = tuple(
    Column(title, f"scenes_retrieval{shuffle}", "image_to_text_r1", 0.001)
    for title, shuffle in (
        ("nouns and adjectives", "_shuffle_nouns_and_adjectives"),
        ("all other words", "_shuffle_all_but_nouns_and_adjectives"),
        ("within trigrams", "_shuffle_within_trigrams"),
        ("trigrams", "_shuffle_trigrams"),
        ("all words", "_shuffle_words"),
        ("rows", "_rows_4"),
        ("columns", "_cols_4"),
        ("patches", "_patches_9"),
    )
)

OTHERS = (  # rows of part f
    *("clip", "siglip", "clip_ft", "crepe_swap", "crepe_replace", "crepe_negate", "svlc"),
    *("svlc_pos", "dac", "fsc_clip", "leftright_none", "leftright", "leftright_siglip_none"),
    "leftright_siglip",
)
OTHER_COLUMNS = (*BAG_OF_WORDS[:7], HEADS[2])  # retrieval, attributes, swaps, pairs, negation


def triplet_columns(benchmark: str, group: str = "", suffix: str = "") -> tuple[Column, ...]:
    """Columns original, augmented, brittleness of a triplet benchmark, or of one of its groups.

    suffix: appended to the titles.
    """
    path = f"/{group}" if group else ""
    titles = ("Orig", "Aug", "Brit")
    return tuple(
        Column(f"{title} {suffix}".strip(), benchmark, f"{metric}{path}", chance)
        # Chance: the negative is the lower of two texts; the lowest, or the middle, of three.
        for title, metric, chance in zip(titles, TRIPLET, (1 / 2, 1 / 3, 1 / 3), strict=True)
    )


ORIGINAL, AUGMENTED, BRITTLENESS = TRIPLET
REPLACE, SWAP = "scenes_replace", "scenes_swap"
FINDINGS = (  # sentence, run, run it is compared with, benchmark, metric, the paper's (tables 1, 3)
    ("HN against CLIP: Original of REPLACE rises", "hn", "clip", REPLACE, ORIGINAL, 12.3),
    ("HN against CLIP: Brittleness of REPLACE", "hn", "clip", REPLACE, BRITTLENESS, -2.2),
    ("HN against CLIP: Brittleness of SWAP rises", "hn", "clip", SWAP, BRITTLENESS, 3.4),
    ("HP+HN against HN: Brittleness of REPLACE falls", "hp_hn", "hn", REPLACE, BRITTLENESS, -4.1),
    ("HP+HN against HN: Brittleness of SWAP falls", "hp_hn", "hn", SWAP, BRITTLENESS, -2.2),
    ("HP+HN against HN: Augmented of REPLACE rises", "hp_hn", "hn", REPLACE, AUGMENTED, 2.3),
    (
        *("swap only against HP+HN: Augmented of REPLACE falls", "hp_hn_swap_only", "hp_hn"),
        *(REPLACE, AUGMENTED, -6.4),
    ),
    (
        *("replace only against HP+HN: Augmented of SWAP falls", "hp_hn_replace_only", "hp_hn"),
        *(SWAP, AUGMENTED, -5.5),
    ),
    ("weight 1 against 0: Original of REPLACE rises", "hp_hn", "hp_hn_w0", REPLACE, ORIGINAL, 10.5),
    (
        "weight 1 against 0: Augmented of REPLACE rises",
        "hp_hn",
        "hp_hn_w0",
        REPLACE,
        AUGMENTED,
        8.2,
    ),
)


def label(run: str) -> str:
    """Name of a run in tables."""
    name = run.removesuffix("_synonyms").removesuffix("_hues").removesuffix("_relations")
    return LABELS.get(name, name)


def table(results: Results, runs: Sequence[str], columns: Sequence[Column]) -> str:
    """Markdown table in percent, mean ± half interval; runs that are not done are left out."""
    lines = [
        " | ".join(["", "model", *[column.title for column in columns], ""]).strip(),
        "|" + "---|" * (len(columns) + 1),
        " | ".join(["", "chance", *[_percent(column.chance) for column in columns], ""]).strip(),
    ]
    for run in runs:
        if results.has(run):
            values = [results.value(run, column.benchmark, column.metric) for column in columns]
            cells = [f"{_percent(value.mean)} ±{_percent(value.half)}" for value in values]
            lines.append(" | ".join(["", label(run), *cells, ""]).strip())
    return "\n".join(lines)


def scores(results: Results, runs: Sequence[str], benchmark: str) -> str:
    """Markdown table of the mean cosine similarity of caption, negative and positive."""
    metrics = ("mean_score_correct", "mean_score_negative", "mean_score_positive")
    lines = ["| model | caption | negative | positive |", "|---|---|---|---|"]
    for run in filter(results.has, runs):
        values = [results.value(run, benchmark, metric) for metric in metrics]
        cells = " | ".join(f"{value.mean:.3f} ±{value.half:.3f}" for value in values)
        lines.append(f"| {label(run)} | {cells} |")
    return "\n".join(lines)


def findings(results: Results) -> str:
    """Markdown table of what the paper found and of the same differences in both worlds."""
    lines = [
        "| of Kamath et al. 2024, section 5 | paper | captions hardly ever say synonyms | often |",
        "|---|---|---|---|",
    ]
    for said, run, other, benchmark, metric, paper in FINDINGS:
        cells = []
        for world in ("", "_synonyms"):
            names = run + world, other + world
            if all(map(results.has, names)):
                value = results.difference(*names, benchmark, metric)
                cells.append(f"{100 * value.mean:+.1f} ±{_percent(value.half)}")
            else:
                cells.append("not run")
        lines.append(f"| {said} | {paper:+.1f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def replace_of_paper(model: str, accuracy: str) -> str:
    """Original or augmented accuracy on REPLACE of a model of Kamath et al. 2024, in percent."""
    (value,) = {
        value.value
        for value in published.of_model(model)
        if (value.source, value.full_metric) == ("hard_positives", f"{accuracy}_accuracy_macro")
    }
    return f"{value:.1f}"


def _percent(fraction: float) -> str:
    return "–" if np.isnan(fraction) else f"{100 * fraction:.1f}"


def write(out: Path, docs: Path, seeds: int, parts: str) -> Path:
    """Writes DOCS/results.md and its figures from the runs below `out` that are done and from those
    of DOCS/results.json, which keeps the values of every run, so that a study is made in pieces.

    Only the sections of `parts` are written; an existing page keeps the others.
    """
    results = Results(out, seeds, docs / VALUES)
    folder = docs / "images"
    folder.mkdir(parents=True, exist_ok=True)
    results.keep(docs / VALUES)
    for part, name, paint in FIGURES:
        if part not in parts:
            continue
        with matplotlib.rc_context({"axes.spines.right": False, "axes.spines.top": False}):
            figure = paint(results)
            if figure is not None:
                figure.savefig(folder / f"study_{name}.png", dpi=130)
    source = Path(__file__).with_name("results.md.jinja").read_text()
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, autoescape=False)
    text = environment.from_string(source).render(
        table=lambda runs, columns: table(results, runs, columns),
        scores=lambda runs, benchmark: scores(results, runs, benchmark),
        bag_of_words=BAG_OF_WORDS,
        heads=HEADS,
        heads_of=lambda suffix: [f"{name}{suffix}" for name in HEADS_SHOWN],
        captions_of=lambda suffix: [f"{name}{suffix}" for name in CAPTIONS_SHOWN],
        triplet=triplet_columns,
        findings=lambda: findings(results),
        paper=replace_of_paper,
        others=OTHERS,
        other_columns=OTHER_COLUMNS,
        probes=PROBES,
        decoders=DECODERS_SHOWN,
        decoder_columns=DECODERS,
        superposition=SUPERPOSITION,
        shuffled=SHUFFLED,
        sweep=SWEEP,
        seeds=seeds,
        has=results.has,
    )
    page = docs / "results.md"
    sections = _sections(page.read_text()) if page.exists() else {}
    for part, section in _sections(text).items():
        if part in parts or not part:
            sections[part] = section
    page.write_text(
        "".join(sections[part].rstrip() + "\n\n" for part in sorted(sections)).rstrip() + "\n"
    )
    return page


def _sections(page: str) -> dict[str, str]:
    """Sections of a page by part of the study; "" is the text before the first."""
    first, *others = re.split(r"^(?=<!-- part \w -->$)", page, flags=re.MULTILINE)
    return {"": first, **{section[len("<!-- part ")]: section for section in others}}


def _bag_of_words(results: Results) -> Figure | None:
    shown = ("clip", "clip_ft_400", "clip_ft_1200", "negclip", "relations")
    runs = [run for run in shown if results.has(run)]
    columns = [
        column for column in BAG_OF_WORDS if column.title in ("attribute swap", "relation swap")
    ]
    return _bars(results, runs, columns, 0.5) if runs else None


def _collapse(results: Results) -> Figure | None:
    runs = [run for run in ("clip_ft", "hn", "hp_hn") if results.has(run)]
    if not runs:
        return None
    columns = [
        column._replace(title=f"{column.title}, {kind} synonyms")
        for kind, benchmark in (("seen", "scenes_replace"), ("unseen", "scenes_replace_unseen"))
        for column in triplet_columns(benchmark, "size")
    ]
    return _bars(results, runs, columns, None)


def _bars(
    results: Results, runs: Sequence[str], columns: Sequence[Column], chance: float | None
) -> Figure:
    figure = Figure(figsize=(max(7.0, 1.6 + 1.4 * len(columns)), 3.8), layout="constrained")
    axes = figure.add_subplot()
    width = 0.8 / len(runs)
    for i, run in enumerate(runs):
        values = [results.value(run, column.benchmark, column.metric) for column in columns]
        positions = np.arange(len(columns)) + (i - (len(runs) - 1) / 2) * width
        axes.bar(
            *(positions, [100 * value.mean for value in values], 0.92 * width),
            yerr=[100 * value.half for value in values],
            label=label(run),
            color=matplotlib.colormaps["viridis"](0.1 + 0.75 * i / max(1, len(runs) - 1)),
            error_kw={"linewidth": 1},
        )
    for i, column in enumerate(columns):
        axes.plot([i - 0.45, i + 0.45], [100 * column.chance] * 2, "--", color="#5d6873", lw=1)
    axes.set_xticks(
        np.arange(len(columns)), [column.title.replace(", ", "\n") for column in columns]
    )
    axes.set_ylabel("percent; dashed: chance")
    axes.set_ylim(0, 105)
    figure.legend(frameon=False, fontsize=8, ncols=2, loc="outside lower center")
    return figure


def _sweep(results: Results) -> Figure | None:
    if not all(results.has(run) for run in SWEEP):
        return None
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    weights = (0, 0.25, 0.5, 0.75, 1)
    for axes, (kind, benchmark) in zip(
        figure.subplots(1, 2, sharey=True),
        (("seen in HP training", "scenes_replace"), ("not seen", "scenes_replace_unseen")),
        strict=True,
    ):
        for colour, column in zip(COLOURS, triplet_columns(benchmark, "size"), strict=True):
            values = [results.value(run, column.benchmark, column.metric) for run in SWEEP]
            axes.errorbar(
                *(weights, [100 * value.mean for value in values]),
                yerr=[100 * value.half for value in values],
                label=column.title,
                color=colour,
                marker="o",
                capsize=3,
            )
        axes.set_title(f"size synonyms {kind}", loc="left", fontsize=10)
        axes.set_xlabel("weight of the hard negatives")
        axes.set_xticks(weights)
        axes.set_ylim(0, 100)
    figure.axes[0].set_ylabel("percent")
    figure.axes[0].legend(frameon=False)
    return figure


FIGURES: Sequence[tuple[str, str, Callable[[Results], Figure | None]]] = (  # part, name
    ("a", "bag_of_words", _bag_of_words),
    ("b", "collapse", _collapse),
    ("b", "sweep", _sweep),
)
