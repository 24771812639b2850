"""Runs in an environment with mteb: tasks of its own, on pictures of the scenes, by our encoder.

  python tests/parity/mteb_tasks.py PACKAGES OUT

PACKAGES: of the environment of the tests, which has JAX. OUT/theirs.json gets what mteb finds of a
model, ours.json what our protocols find of it, constant.json what mteb finds of one that embeds
everything alike, OUT/<task>_predictions.json the similarities that mteb has compared, errors.json
what is refused, written.json the folder of results that `vlc-jax mteb` writes.
"""

import dataclasses
import json
import site
import sys
from pathlib import Path

import numpy as np

TIES = ("strict", "first_index")


class Constant:
    """Embeds everything alike."""

    config, fingerprint, scores_are_cosines = {"model": {"name": "constant"}}, "constant", True

    def embed_texts(self, texts):
        return np.tile(np.float32([1, 0, 0, 0]), (len(texts), 1))

    embed_images = embed_texts


def random_model():
    """Random towers of one block each."""
    from vlc_jax.configs.scenes import clip
    from vlc_jax.encode.inference import Model
    from vlc_jax.setup import resolve

    config = clip.get_config()
    with config.unlocked():
        config.model.image["depth"] = config.model.text["depth"] = 1
        config.pretrain, config.frozen = None, ()
    setup = resolve(config, "weights")
    return Model(setup, {"params": setup.parameters.init(), "batch_stats": {}}, batch_size=8)


def benchmarks():
    """mteb's name of a task -> a set of ours in its form: a picture and two captions; a picture and
    its negative, of which random towers make more than of two pictures, and two captions."""
    from vlc_jax.input_pipeline.benchmarks import READERS
    from vlc_jax.input_pipeline.case import Average, Case

    swap = READERS["scenes_relation_swap"](count=24)
    # of different sizes, so that the mean over relations is not the mean over cases
    groups = [{"relation": "few" if n < 5 else "many"} for n in range(24)]
    cases = [dataclasses.replace(c, group=g) for c, g in zip(swap.cases, groups, strict=True)]
    pairs = [
        Case(case.id, (case.images[0], 255 - case.images[0]), (case.captions[0], other.captions[0]))
        for case, other in zip(cases, cases[1:] + cases[:1], strict=True)
    ]
    averages = {"macro": Average(("relation",))}
    return {
        "AROVisualRelation": dataclasses.replace(swap, cases=cases, averages=averages),
        "Winoground": dataclasses.replace(swap, cases=pairs),
    }


def task_of(name, benchmark):
    """A task of mteb on the cases of a benchmark."""
    import datasets
    import mteb
    from PIL import Image

    task, rows = mteb.get_task(name), []
    for case in benchmark.cases:
        images = [Image.fromarray(image) for image in case.images]
        row = dict(zip(task.images_column_names, images, strict=True))
        rows.append(row | dict(zip(task.texts_column_names, case.captions, strict=True)))
    task.dataset = datasets.DatasetDict({"test": datasets.Dataset.from_list(rows)})
    task.data_loaded = True
    return task


def theirs(model, name, benchmark, out=None):
    """mteb's scores of one of its tasks on the cases of a benchmark."""
    import mteb

    from vlc_jax.tools import mteb_encoder

    mteb_encoder.ITEMS = 10  # so that the 24 pictures and 48 captions come in several parts
    task = task_of(name, benchmark)
    encoder = mteb_encoder.MtebEncoder(model, "vlc_jax/a_model")
    result = mteb.evaluate(encoder, task, cache=None, prediction_folder=out)
    return result.task_results[0].scores["test"][0]


def ours(model, benchmark):
    """Tie policy -> the metrics of our protocol, and scores of each case as "scores"."""
    from vlc_jax.evaluators import choice, pairs

    protocol = choice if len(benchmark.cases[0].images) == 1 else pairs
    results = {tie: protocol.evaluate(benchmark, model._scorer(8), tie=tie) for tie in TIES}
    found = {tie: {k: e.value for k, e in r.metrics.items()} for tie, r in results.items()}
    return found | {"scores": [row["scores"] for row in results["strict"].per_example]}


def written(model, benchmark, out):
    """Paths below `out` that the command writes, read back by mteb, and its error for a task."""
    import mteb

    from vlc_jax.errors import UsageError
    from vlc_jax.tools import mteb_results

    (file,) = mteb_results.write(model, "me/clip", [task_of("Winoground", benchmark)], out)
    loaded = mteb.ResultCache(out).load_results(tasks=["Winoground"])
    try:
        mteb_results.find(["Winogrund"])
    except UsageError as refused:
        unknown = str(refused)
    return {
        "file": str(file.relative_to(out)),
        "content": json.loads(file.read_text())["scores"]["test"][0],
        "models": [result.model_name for result in loaded.model_results],
        "revision": model.fingerprint,
        "unknown": unknown,
    }


def error(model, name):
    from vlc_jax.errors import UsageError
    from vlc_jax.tools.mteb_encoder import MtebEncoder

    try:
        return str(MtebEncoder(model, name))
    except UsageError as refused:
        return str(refused)


def main(packages: str, out: Path) -> None:
    # behind the packages that are here, whose versions torch and mteb need
    site.addsitedir(packages)
    import jax

    jax.config.update("jax_platforms", "cpu")
    model, sets = random_model(), benchmarks()
    constant, of_tokens = Constant(), Constant()
    of_tokens.scores_are_cosines = False
    found = {
        "theirs": {name: theirs(model, name, each, out) for name, each in sets.items()},
        "ours": {name: ours(model, each) for name, each in sets.items()},
        "constant": {name: theirs(constant, name, each) for name, each in sets.items()},
        "written": written(model, sets["Winoground"], out / "results_of_mteb"),
        "errors": [error(of_tokens, "me/clip"), error(constant, "clip")],
    }
    for name, content in found.items():
        (out / f"{name}.json").write_text(json.dumps(content))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
