"""Answers of a miniature LLaVA about images that its frozen CLIP finds alike; its descriptions.

  python -m studies.answers --run runs/llava --tower runs/clip --out runs/answers

OUT/evals/pairs: the share of the pairs of scenes_whatsup (test split) whose images have a cosine
above .95 in the tower, and the median cosine. pairs_alike, pairs_other: of the pairs above and
below it, the share with both images right, by the scores of the captions ("tower") and by the
answers to the question about the relation ("writer"). descriptions_DECODING: of the answers to
"what is there", the share that names both objects and their colours ("objects"), and the share
whose relation is right, too ("true"), with the mean number of words.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import vlc_jax
from studies import photographs
from vlc_jax.encode.inference import Model
from vlc_jax.evaluators import image_pairs, keywords, stats
from vlc_jax.input_pipeline.benchmarks import scene_cases
from vlc_jax.input_pipeline.case import Case
from vlc_jax.input_pipeline.scenes import grammar, questions
from vlc_jax.input_pipeline.scenes import world as worlds

WORLD = worlds.named("scenes-mini")
DECODINGS = {
    "greedy": {},
    **{f"m3id_t{first}": {"kind": "m3id", "first_step": first} for first in (0, 1)},
}
Metrics = dict[str, stats.Estimate]


def of_pairs(tower: Model, writer: Model, cases: list[Case]) -> Iterator[tuple[str, Metrics]]:
    """Metrics of pairs by the cosine of their images."""
    images = [image for case in cases for image in case.images]
    vectors = tower.embed_images(images).reshape(len(cases), 2, -1)
    texts = tower.embed_texts([text for case in cases for text in case.captions])
    scores = np.einsum("pie,pce->pic", vectors, texts.reshape(vectors.shape))
    options = [
        [questions.answer(grammar.parse(text, WORLD)) for text in case.captions] for case in cases
    ]
    asked = [case.meta["question"] for case in cases for _ in case.images]
    written = np.array(writer.answers(images, asked)).reshape(-1, 2)
    named = [
        [keywords.parse(answer, right) for answer in both]
        for both, right in zip(written, options, strict=True)
    ]
    right = {
        "tower": (scores[:, 0, 0] > scores[:, 0, 1]) & (scores[:, 1, 1] > scores[:, 1, 0]),
        "writer": np.array([both == answers for both, answers in zip(named, options, strict=True)]),
    }
    cosines = np.einsum("pe,pe->p", vectors[:, 0], vectors[:, 1])
    alike = cosines > image_pairs.AGREEMENT
    median = stats.bootstrapped(cosines, "median")
    yield "pairs", {"alike": stats.proportion(alike, None), "cosine": median}
    for name, chosen in (("alike", alike), ("other", ~alike)):
        if chosen.any():
            metrics = {who: stats.proportion(each[chosen], 1 / 4) for who, each in right.items()}
            yield f"pairs_{name}", metrics


def of_descriptions(writer: Model, cases: list[Case]) -> Iterator[tuple[str, Metrics]]:
    """Metrics of descriptions by decoding."""
    images = [image for case in cases for image in case.images]
    scenes = [
        worlds.from_json(case.meta[key], WORLD)
        for case in cases
        for key in ("scene", "other_scene")
    ]
    for name, decoding in DECODINGS.items():
        written = writer.answers(images, [questions.ANY] * len(images), **decoding)
        right = [judged(text, scene) for text, scene in zip(written, scenes, strict=True)]
        objects, whole = np.array(right).T
        words = stats.bootstrapped(np.array([len(text.split()) for text in written]), "mean")
        shares = {"objects": stats.proportion(objects, None), "true": stats.proportion(whole, None)}
        yield f"descriptions_{name}", shares | {"words": words}


def judged(text: str, scene: worlds.Scene) -> tuple[bool, bool]:
    """Whether a description names both objects of a scene, and whether it is true as a whole."""
    caption = grammar.parse(text, WORLD)
    if caption is None or caption.kind != "relation":
        return False, False
    named = grammar.Caption("list", caption.phrases)
    return grammar.is_true(named, scene), grammar.is_true(caption, scene)


def write(run: Path, tower: Path, out: Path, count: int) -> None:
    """Writes all metrics below OUT/evals."""
    cases = [*scene_cases.whatsup(split="test", count=count).cases]
    writer = vlc_jax.load(run)
    metrics = dict(of_pairs(vlc_jax.load(tower), writer, cases))
    metrics |= of_descriptions(writer, cases[: count // 2])
    for name, each in metrics.items():
        photographs.keep(out, name, {key: value._asdict() for key, value in each.items()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("run", "tower", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--count", type=int, default=2000, help="pairs of images")
    write(**vars(parser.parse_args()))
