"""Reproduces the tables of the ACL 2025 paper on CLIP's vision encoder: one run per row.

  python studies/acl2025.py --miniature --out runs/acl2025
  python studies/acl2025.py --out runs/full --clip weights=ViT-L-14-336px.pt,path=prepared/llava \\
      --siglip weights=FOLDER,path=prepared/llava --eva weights=FILE,path=prepared/llava --dry-run

"Exploring How Generative MLLMs Perceive More Than CLIP with the Same Vision Encoder" asks whether
finetuning, left / right negatives, patch tokens, RoPE or several text tokens teach CLIP spatial
relations. --miniature trains all rows on the embedded scenes, from CLIP or from the relations model
(--base). Otherwise they are configs/llava/clip_ft.py, and configs/pacl.py and sparc.py with
data=llava; --clip, --siglip, --eva and --eva-e are further config arguments, with paths that are
absolute or relative to the folder of this project. EVA-CLIP is EVA01-CLIP g/14 at 224 pixels, which
has the paper's embedding width of 1,024, unless --eva names another variant; --eva-e adds
EVA02-CLIP E/14, which is not in the paper. --vectors is the file of text vectors for the row with a
stronger text encoder; without it this row is skipped. For the scenes

  vlc-jax embed_text --run runs/relations --out vectors/acl.npy \\
    --config configs/pacl.py:hard_images=0,split=test,text_encoder=vectors/acl.npy

writes this file. The result is OUT/acl2025.md: the paper's numbers and the runs' numbers, on the
benchmarks that all runs share. Rows that are DONE are skipped, so the same command resumes the
sweep. --dry-run only prints the commands. Further flags (--config....) go to all runs.
"""

import argparse
import functools
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, from any folder

from studies import study, study_columns, study_results  # noqa: E402
from vlc_jax.report import published  # noqa: E402
from vlc_jax.report.table import markdown_table, percent  # noqa: E402

# Columns of the paper: two-way What'sUp, accuracy per image and per pair in percent.
PAPER = {
    "A left/right": ("whatsup_a_two_way", "left_right"),
    "A on/under": ("whatsup_a_two_way", "on_under"),
    "B left/right": ("whatsup_b_two_way", "left_right"),
    "B front/behind": ("whatsup_b_two_way", "front_behind"),
}
# Benchmarks of the scenes in the table.
SCENES = ("scenes_whatsup", "scenes_relation_swap", "scenes_attribute_swap")
CLIP = "CLIP ViT-L/14-336"  # the paper's
SIGLIP = "family=siglip"
EVA = "variant=EVA01-g/14,size=224"
EVA_E = "variant=EVA02-E/14,size=224"
# Option of the sweep -> marker in the arguments of its rows; all other rows belong to --clip.
FAMILIES = {"siglip": SIGLIP, "eva": EVA, "eva_e": EVA_E}
OWN_CAPTION = "pooling=own_caption"
UNIFORM = "pooling=uniform,eval_pooling=uniform"
VECTORS = "text_encoder={vectors}"
UNLOCKED = "image_tower=unlocked"


class Row(NamedTuple):
    """One row of the table.

    name: name of its run.
    config: clip_ft (in configs/llava), pacl or sparc; "" for a row without training.
    model: model in `vlc_jax.report.published`; "" for rows that are not in the paper.
    """

    name: str
    label: str
    config: str = ""
    arguments: str = ""
    model: str = ""


def _finetuned(name: str, label: str, arguments: str = "", model: str = "") -> tuple[Row, ...]:
    """Rows of a frozen model, of its finetuning, and of the same with left / right negatives."""
    first = "" if name == "clip" else f"{name}_"
    negatives = ",".join(filter(None, (arguments, "negatives=leftright")))
    models = [model and f"{model} + {words}" for words in ("finetuning", "left/right negatives")]
    label_ft = f"{label} + finetuning"
    return (
        Row(name, label, model=model),
        Row(f"{first}ft", label_ft, "clip_ft", arguments, models[0]),
        Row(
            f"{first}ft_negatives",
            f"{label_ft} + left/right negatives",
            config="clip_ft",
            arguments=negatives,
            model=models[1],
        ),
    )


ROWS = (
    *_finetuned("clip", "CLIP", model=CLIP),
    *_finetuned("siglip", "SigLIP", SIGLIP, "SigLIP ViT-L/16-384"),
    *_finetuned("eva", "EVA-CLIP", EVA, "EVA-CLIP"),
    Row("pacl", "CLIP + patch tokens (PACL)", "pacl", OWN_CAPTION, f"{CLIP} + PACL"),
    Row(
        "pacl_feature_1d",
        "PACL + RoPE",
        config="pacl",
        arguments=f"{OWN_CAPTION},rope=feature_1d",
        model=f"{CLIP} + PACL + RoPE",
    ),
    Row(
        "sparc_feature_1d",
        "SPARC + RoPE: multiple text tokens",
        config="sparc",
        arguments="text_tokens=all,rope=feature_1d",
        model=f"{CLIP} + SPARC + RoPE",
    ),
    Row(
        "pacl_vectors",
        "PACL + RoPE + stronger text encoder",
        config="pacl",
        arguments=f"{OWN_CAPTION},rope=feature_1d,{VECTORS}",
        model=f"{CLIP} + PACL + RoPE + stronger text encoder",
    ),
    # Not in the paper: our controls and variants.
    *_finetuned("eva_e", "EVA02-CLIP E/14", EVA_E)[1:],
    Row("pacl_uniform", "PACL, patches weighed alike", "pacl", UNIFORM),
    Row("pacl_pairwise", "PACL, pooled for every text", "pacl", "pooling=pairwise"),
    Row(
        "pacl_feature_2d", "PACL + RoPE by row and column", "pacl", f"{OWN_CAPTION},rope=feature_2d"
    ),
    Row("pacl_unlocked", "PACL, image tower trained", "pacl", f"{OWN_CAPTION},{UNLOCKED}"),
    Row(
        "pacl_qk_1d", "PACL + RoPE inside the tower", "pacl", f"{OWN_CAPTION},{UNLOCKED},rope=qk_1d"
    ),
    Row(
        "pacl_qk_2d",
        "PACL + RoPE inside the tower, 2-D",
        "pacl",
        f"{OWN_CAPTION},{UNLOCKED},rope=qk_2d",
    ),
    Row(
        "pacl_negatives",
        "PACL + left/right negatives",
        "pacl",
        f"{OWN_CAPTION},negatives=leftright",
    ),
    Row("sparc", "SPARC", "sparc", "text_tokens=real"),
)


def family(row: Row) -> str:
    """Model family of the row's first weights: a key of FAMILIES, or clip."""
    return next((name for name, mark in FAMILIES.items() if mark in row.arguments), "clip")


def miniature(rows: Sequence[Row], base: str, vectors: str = "") -> list[study.Run]:
    """Runs of CLIP's rows on the scenes, base models first; heads train without hard images.

    vectors: file of text vectors; "" skips the row that needs it.
    """
    bases = [study.Run("clip", "scenes/clip:pooling=mean")]
    if base == "relations":
        bases.append(study.Run("hard_images", "scenes/hard_images:pooling=mean", "clip"))
        config = "negclip:hard_images,pooling=mean"
        bases.append(study.Run("relations", config, "hard_images"))
    runs = []
    for row in rows:
        needs_vectors = VECTORS in row.arguments and not vectors
        if not row.config or family(row) != "clip" or needs_vectors:
            continue
        if row.config == "clip_ft":
            config = f"leftright:pooling=mean,{row.arguments or 'negatives=none'}"
        else:
            config = f"{row.config}:hard_images=0,{row.arguments.format(vectors=vectors)}"
        runs.append(study.Run(f"{row.name}-of-{base}", config, base))
    return [*bases, *runs]


def at_full_size(rows: Sequence[Row], options: Mapping[str, str]) -> list[study.Run]:
    """Runs of the rows on real data.

    options: config arguments of "clip" and of FAMILIES, and the file of "vectors"; an empty option
    skips its rows.
    """
    runs = []
    for row in rows:
        arguments = options[family(row)]
        if VECTORS in row.arguments:
            is_complete = arguments and options["vectors"]
            arguments = f"{arguments},noun_phrases=0" if is_complete else ""
        if row.config and arguments:
            row_arguments = row.arguments.format(vectors=options["vectors"])
            joined = ",".join(filter(None, (row_arguments, arguments)))
            is_control = row.config == "clip_ft"
            config = "llava/clip_ft:" if is_control else f"{row.config}:data=llava,"
            runs.append(study.Run(row.name, config + joined))
    return runs


def of_seeds(todo: Sequence[study.Run], seeds: int) -> list[study.Run]:
    """Every run with every seed, bases first."""
    return [
        run._replace(name=f"{run.name}-{seed}", base=run.base and f"{run.base}-{seed}", seed=seed)
        for run in todo
        for seed in range(seeds)
    ]


def paper(model: str) -> list[str]:
    """The paper's numbers of a model, such as "49.0 1.9", per column of PAPER; "–" without one."""
    printed = {
        (value.benchmark, value.subset, value.metric): f"{value.value:.1f}"
        for value in published.values()
        if (value.source, value.model) == ("acl2025", model)
    }
    return [
        f"{printed[*column, 'accuracy']} {printed[*column, 'pair_accuracy']}"
        if (*column, "pair_accuracy") in printed
        else "–"
        for column in PAPER.values()
    ]


def table(rows: Sequence[Row], names: Mapping[str, str], results: study_results.Results) -> str:
    """Markdown table: the paper's numbers, and the finished runs on their shared benchmarks.

    names: name of a row -> name of its run.
    """
    done = {row: run for row, run in names.items() if results.has(run)}
    columns = shared_columns(results, [*done.values()])
    header = ["", *[f"paper: {title}" for title in PAPER], *[column.title for column in columns]]
    body = [["chance", *paper("chance"), *[percent(column.chance) for column in columns]]]
    for row in rows:
        cells = ["–"] * len(columns)
        if row.name in done:
            values = [results.value(done[row.name], c.benchmark, c.metric) for c in columns]
            cells = [f"{percent(value.mean)} ±{percent(value.half)}" for value in values]
        body.append([row.label, *paper(row.model), *cells])
    return markdown_table(header, body, len(header))


def shared_columns(
    results: study_results.Results, runs: Sequence[str]
) -> list[study_columns.Column]:
    """Columns of the summary metrics that all the runs have.

    Raises ValueError for a damaged result.
    """
    # None: no run yet, while {} shares nothing
    shared: dict[tuple[str, str], float] | None = None
    for run in runs:
        chance = {}
        # a run without results leaves no shared column
        for folder in sorted((results.out / f"{run}-0" / "evals").glob("*")):
            if folder.name.startswith("scenes_") and folder.name not in SCENES:
                continue
            result = study_results.newest_result(folder)
            for metric in result.get("summary", ()) if result else ():
                chance[folder.name, metric] = result["metrics"][metric]["chance"]
        shared = chance if shared is None else {k: chance[k] for k in shared if k in chance}
    return [
        study_columns.Column(f"{benchmark} {metric}", benchmark, metric, chance)
        for (benchmark, metric), chance in (shared or {}).items()
    ]


def write(out: Path, rows: Sequence[Row], names: Mapping[str, str], seeds: int) -> Path:
    """Writes OUT/acl2025.md from the finished runs; returns its path."""
    page = out / "acl2025.md"
    intro = (
        "What'sUp: individual and pair accuracy (of the paper: 206 images of A and 204 images of B "
        "in each column); ± half of a 95 % interval, over seeds, of one seed over cases. –: not in "
        "the paper, or not run.\n\n"
    )
    page.write_text(intro + table(rows, names, study_results.Results(out, seeds)) + "\n")
    return page


def parse(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """Options of the sweep, and further flags for all runs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/acl2025"), help="folder of all runs")
    parser.add_argument("--miniature", action="store_true", help="on the embedded scenes")
    parser.add_argument("--base", choices=("clip", "relations"), default="clip")
    parser.add_argument("--clip", default="", help="arguments of the configs of CLIP's rows")
    parser.add_argument("--siglip", default="", help="arguments of the configs of SigLIP's rows")
    parser.add_argument("--eva", default="", help="arguments of the configs of EVA-CLIP's rows")
    parser.add_argument(
        "--eva-e", default="", help="arguments of the configs of EVA02-CLIP E/14's rows"
    )
    parser.add_argument(
        "--vectors", default="", help="file of text vectors, for the row that reads them"
    )
    parser.add_argument("--rows", help="names of rows, separated by commas; default: all")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds per row; default: 1")
    parser.add_argument("--jobs", type=int, default=1, help="rows at a time; default: 1")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, start none")
    args, more = parser.parse_known_args(arguments)
    known = [row.name for row in ROWS]
    args.rows = args.rows.split(",") if args.rows else known
    args.vectors = args.vectors and str(Path(args.vectors).absolute())
    unknown = [flag for flag in more if not flag.startswith("--config.")]
    unknown += [name for name in args.rows if name not in known]
    if unknown or args.seeds < 1 or args.jobs < 1:
        parser.error(
            f"--rows are some of {', '.join(known)}, --seeds and --jobs at least 1, further flags "
            f"begin with --config.; got {unknown or (args.seeds, args.jobs)}"
        )
    if args.miniature == any(getattr(args, name) for name in ("clip", *FAMILIES)):
        parser.error(
            "use --miniature, or --clip, --siglip, --eva, --eva-e: arguments of the configs"
        )
    return args, more


def main(arguments: Sequence[str] | None = None) -> int:
    args, more = parse(arguments)
    rows, out = [row for row in ROWS if row.name in args.rows], args.out.absolute()
    names = {row.name: row.name for row in rows}
    if args.miniature:
        runs = miniature(rows, args.base, args.vectors)
        names = {row.name: f"{row.name}-of-{args.base}" for row in rows} | {"clip": args.base}
    else:
        options = {name: getattr(args, name) for name in ("clip", *FAMILIES, "vectors")}
        runs = at_full_size(rows, options)
    todo = of_seeds(runs, args.seeds)
    if args.dry_run:
        for run in todo:
            print(shlex.join(study.command(run, out, more)))
        return 0
    page = functools.partial(write, out, rows, names, args.seeds)
    return study.complete(todo, out, args.jobs, more, page)


if __name__ == "__main__":
    sys.exit(main())
