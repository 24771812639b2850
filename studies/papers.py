"""Reproduces every table of a paper: one run per row, the paper's numbers beside ours.

  python studies/papers.py acl2025 --miniature --out runs/papers
  python studies/papers.py hard_positives aro --dry-run
  python studies/papers.py acl2025 --out runs/full --root sets --dry-run --given \\
    clip:weights=ViT-L-14-336px.pt,path=prepared/llava llava:path=llava-1.5-7b-hf

Papers: acl2025, erroneous_agreements, hard_positives, aro, dcsm. Their rows are in
vlc_jax/configs/common/methods, their tables in vlc_jax/report/published/values.csv. --given has for
each name the arguments of the configs of its rows: weights, data, with paths that are absolute or
relative to the folder of this project; @FILE reads options from a file, one a line. --root is the
folder of the published sets (vlc-jax benchmarks --root lists them), --sets those of it that are
evaluated. A row for which nothing is given is left out. --dry-run only prints the commands, and
what the other rows need; without --given all commands, with examples of files.

--miniature trains the rows on the embedded scenes, from CLIP or from the relations model (--base).

The result is OUT/PAPER.md: each table of the paper, in a cell its number and ours, and all results
that the runs share. Runs that are DONE are skipped, so the same command resumes the sweep. A run
of several papers is made once, and evaluated on the sets of all papers of the command. Further
flags (--config....) go to all runs.
"""

import argparse
import functools
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, from any folder

from studies import paper_tables, study  # noqa: E402
from studies.paper_rows import GIVEN, PAPERS  # noqa: E402
from vlc_jax.configs.common import classification, pretrained  # noqa: E402
from vlc_jax.configs.common.methods import METHODS  # noqa: E402
from vlc_jax.configs.common.methods.record import Row  # noqa: E402
from vlc_jax.configs.eval import all as suite  # noqa: E402
from vlc_jax.input_pipeline.commands import command_line  # noqa: E402

PROTOCOLS = ("choice", "pairs", "triplet", "retrieval")  # of scores of images and texts
ROWS = tuple(row for method in METHODS.values() for row in method.rows if row.given)
KNOWN = (*suite.SETS, "coco_shuffled", "flickr30k_shuffled")
CLASSIFIED = (*classification.SETS, *classification.GROUPS)  # of configs/eval/zero_shot.py
# Arguments of configs/eval/all.py among those of a training.
OF_WEIGHTS = ("weights", "tokenizer", "family", "variant", "size")
ANSWERING = ("eval/llava", "llava/stage2")  # configs of models that answer
CLASSIFYING = {"zeroshot": "sets", "mean": "sets", "linear_probe": "probe"}  # protocol -> argument
BASES = (  # of --miniature
    study.Run("clip", "scenes/clip:pooling=mean"),
    study.Run("hard_images", "scenes/hard_images:pooling=mean", "clip"),
    study.Run("relations", "negclip:hard_images,pooling=mean", "hard_images"),
    study.Run("siglip", "scenes/siglip"),
)
Chosen = dict[str, dict[str, None]]  # argument of a config, such as sets -> names


class Todo(NamedTuple):
    """Runs to make, and row -> why it has none."""

    runs: list[study.Run]
    missing: dict[str, str]


def rows_of(papers: Sequence[str]) -> list[Row]:
    """Rows of the papers: the models of their tables, ours, and the runs that these start from."""
    models = {value.model for name in papers for value in paper_tables.values_of(name)}
    chosen = [row for row in ROWS if row.model in models or {*row.papers} & {*papers}]
    bases = {row.base for row in chosen}
    return [row for row in ROWS if row in chosen or row.run in bases]


def evaluated(row: Row, papers: Sequence[str]) -> tuple[Chosen, Chosen]:
    """Sets that a row is evaluated on, and the protocols of a model that answers; sets whose images
    it classifies, in a run of its own: zero-shot, and by linear probes."""
    own: Chosen = {"sets": {}, "protocols": {}, "geometry": {}}
    classes: Chosen = {"sets": {}, "probe": {}}
    answers = row.config.startswith(ANSWERING)
    # but retrieval under shuffles by BLIP and X-VLM: millions of pairs through their BERT
    has_bert = any(f"family={family}" in row.config for family in pretrained.OF_WEIGHTS)
    is_frozen = row.config.startswith("eval/all") and not has_bert
    for name in papers:
        values = [value for value in paper_tables.values_of(name) if value.model == row.model]
        found = {}  # value -> how its model is asked
        for value in values:
            how = paper_tables.asked(value).removesuffix("_t1")
            if value.benchmark in KNOWN and (how if answers else value.protocol in PROTOCOLS):
                found[value] = how
            elif value.benchmark in CLASSIFIED and value.protocol in CLASSIFYING:
                classes[CLASSIFYING[value.protocol]][value.benchmark] = None
        sets = PAPERS[name].sets if name in row.papers or (is_frozen and found) else ""
        names = [*(value.benchmark for value in found), *filter(None, sets.split("+"))]
        own["sets"] |= dict.fromkeys(names)
        own["protocols"] |= dict.fromkeys(filter(None, found.values()))
        own["geometry"] |= {v.benchmark: None for v in found if v.metric == "image_cosine"}
    return own, classes


def at_full_size(
    rows: Sequence[Row],
    papers: Sequence[str],
    given: Mapping[str, str],
    root: str,
    allowed: Sequence[str] = (),
) -> Todo:
    """Runs of the rows on real data.

    given: name in GIVEN -> arguments. allowed: sets to evaluate; (): all.
    """
    todo = Todo([], {})
    for row in rows:
        own, classes = evaluated(row, papers)
        for chosen in (own, classes) if allowed else ():
            for kind in {*chosen} - {"protocols"}:
                chosen[kind] = {name: None for name in chosen[kind] if name in allowed}
        is_trained = not row.config.startswith("eval/")
        if row.base in todo.missing:
            todo.missing[row.run] = f"starts from {row.base}"
        elif row.given not in given:
            todo.missing[row.run] = f"--given {row.given}:{GIVEN[row.given]}"
        elif allowed and not own["sets"] and not is_trained:
            todo.missing[row.run] = "--sets has none of its sets"
        else:
            todo.runs.append(_full_run(row, given[row.given], root, own))
            if any(classes.values()):
                base, config = (row.run, "") if is_trained else ("", row.config.partition(":")[2])
                name = paper_tables.ZERO_SHOT.format(row.run)
                other = row._replace(run=name, config=f"eval/zero_shot:{config}", base=base)
                todo.runs.append(_full_run(other, given[row.given], root, classes))
    return todo


def _full_run(row: Row, given: str, root: str, chosen: Chosen) -> study.Run:
    name, _, own = row.config.partition(":")
    flags = list(row.flags)
    pairs = (word.partition("=")[::2] for word in given.split(",") if word)
    values = {key: value for key, value in pairs if key not in row.without}
    for key, value in values.items():
        flags = [flag.replace(f"{{{key}}}", value) for flag in flags]
    if name in ("eval/all", "eval/zero_shot"):  # a base has its own
        values = {key: values[key] for key in OF_WEIGHTS if key in values and not row.base}
    # of the row unless they are given
    kept = [word for word in own.split(",") if word.partition("=")[0] not in values]
    words = [*kept, *(f"{key}={value}" for key, value in values.items())]
    if name != "llava/stage1":  # which is not evaluated
        words.append(f"root={root}")
        words += [
            f"{key}={'+'.join(names)}"
            for key, names in chosen.items()
            if names and f"{key}=" not in own
        ]
    tool = "evaluate" if name.startswith("eval/") else "train"
    config = f"{name}:{','.join(filter(None, words))}"
    return study.Run(row.run, config, row.base, tool=tool, split="", flags=tuple(flags))


def miniature(rows: Sequence[Row], base: str) -> list[study.Run]:
    """Runs of the rows on the scenes, base models first."""
    runs = [
        study.Run(f"{row.run}-of-{first}", row.scenes, first)
        for row in rows
        for first in ["siglip" if "family=siglip" in row.scenes else base]
        if row.scenes
    ]
    needed = {"clip", base, *(run.base for run in runs)}
    needed |= {"hard_images"} if base == "relations" else set()
    return [*(run for run in BASES if run.name in needed), *runs]


def seeded(todo: Sequence[study.Run], seeds: int) -> list[study.Run]:
    """Every run with every seed, bases first."""
    return [
        run._replace(name=f"{run.name}-{seed}", base=run.base and f"{run.base}-{seed}", seed=seed)
        for run in todo
        for seed in range(seeds)
    ]


def write(
    out: Path, papers: Sequence[str], rows: Sequence[Row], runs: Sequence[study.Run], seeds: int
) -> Path:
    """Writes OUT/PAPER.md of every paper; returns the last path."""
    names = {run.name.partition("-of-")[0]: run.name for run in runs}
    for name in papers:
        page = out / f"{name}.md"
        paper_rows = [row for row in rows_of([name]) if row in rows]
        page.write_text(paper_tables.page(name, paper_rows, names, out, seeds))
    return page


def commands(todo: Todo, seeds: int, out: Path, more: Sequence[str]) -> Iterator[str]:
    """Lines of --dry-run: the command of every run, then what is missing."""
    for run in todo.runs:
        for seed_run in seeded([run], seeds):
            yield shlex.join(study.command(seed_run, out, more))
    for name, reason in todo.missing.items():
        yield f"# {name}: {reason}"


def parse(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """Options of the sweep, and further flags for all runs."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        fromfile_prefix_chars="@",
        allow_abbrev=False,
    )
    parser.add_argument("papers", nargs="+", choices=tuple(PAPERS), metavar="PAPER")
    parser.add_argument("--out", type=Path, default=Path("runs/papers"), help="folder of all runs")
    parser.add_argument("--miniature", action="store_true", help="on the embedded scenes")
    parser.add_argument("--base", choices=("clip", "relations"), default="clip")
    parser.add_argument("--given", nargs="+", default=[], metavar="NAME:ARGUMENTS")
    parser.add_argument("--root", default="", help="folder of the published sets")
    parser.add_argument("--sets", default="", help="sets to evaluate, joined by +; default: all")
    parser.add_argument("--rows", help="names of runs, separated by commas; default: all")
    for flag, text in (("--seeds", "seeds per row"), ("--jobs", "rows at a time")):
        parser.add_argument(flag, type=command_line.positive, default=1, help=f"{text}; default: 1")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, start none")
    # argparse takes a flag with a space in its value for a word of --given
    words = [*(sys.argv[1:] if arguments is None else arguments)]
    more = [word for word in words if word.startswith("--config.")]
    args, unknown = parser.parse_known_args([word for word in words if word not in more])
    rows = [row.run for row in rows_of(args.papers)]
    args.rows = args.rows.split(",") if args.rows else rows
    args.sets = args.sets.split("+") if args.sets else []
    args.given = dict(word.partition(":")[::2] for word in args.given)
    wrong = [*unknown, *({*args.rows} - {*rows}), *({*args.given} - {*GIVEN})]
    wrong += {*args.sets} - {*KNOWN, *CLASSIFIED}
    if wrong:
        parser.error(
            f"--rows are some of {', '.join(rows)}; --given has NAME:ARGUMENTS, NAME one of "
            f"{', '.join(GIVEN)}; --sets are those of configs/eval/all.py and zero_shot.py; "
            f"further flags begin with --config.; got {wrong}"
        )
    if args.miniature and (args.given or args.root or args.sets):
        parser.error("--miniature is of the scenes: leave out --given, --root and --sets")
    if not args.miniature and not args.dry_run and not (args.given and args.root):
        parser.error("use --miniature, or --given and --root; --dry-run prints what rows need")
    return args, more


def main(arguments: Sequence[str] | None = None) -> int:
    args, more = parse(arguments)
    rows, out = rows_of(args.papers), args.out.absolute()
    bases = {row.base for row in rows if row.run in args.rows}
    rows = [row for row in rows if row.run in args.rows or row.run in bases]
    if args.miniature:
        todo = Todo(miniature(rows, args.base), {})
    else:
        given = args.given or GIVEN
        todo = at_full_size(rows, args.papers, given, args.root or "sets", args.sets)
    if args.dry_run:
        for line in commands(todo, args.seeds, out, more):
            print(line, flush=True)
        return 0
    runs = seeded(todo.runs, args.seeds)
    page = functools.partial(write, out, args.papers, rows, todo.runs, args.seeds)
    return study.complete(runs, out, args.jobs, more, page)


if __name__ == "__main__":
    sys.exit(main())
