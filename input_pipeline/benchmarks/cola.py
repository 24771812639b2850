"""COLA, multi-object matching: two images and two captions with the same attributes and objects.

Ray et al., "COLA: A benchmark for compositional text-to-image retrieval" (NeurIPS 2023); read like
github.com/arijitray1993/COLA. Images are Visual Genome's; the file lists their URLs.
"""

from pathlib import PurePosixPath
from typing import Any

from vlc_jax.input_pipeline.benchmarks import published
from vlc_jax.input_pipeline.case import Benchmark, Case


@published.reader
def cola(files: published.Files) -> Benchmark:
    """210 cases: "brown giraffe behind tall white giraffe", "standing tall long giraffe ...".

    image_score, the headline, is the paper's metric: both captions rank their image first. Also
    text_score and group_score.
    """
    rows = files.lists(files.file, "image_0", "caption_0", "image_1", "caption_1")
    cases = (_case(files, number, row) for number, row in enumerate(rows))
    summary = ("image_score", "text_score", "group_score")
    return files.benchmark(cases, summary=summary)


def _case(files: published.Files, number: int, row: dict[str, Any]) -> Case:
    # URLs of another folder structure: only the file names are used
    names = [PurePosixPath(str(row[field])).name for field in ("image_0", "image_1")]
    pictures = tuple(files.genome_image(name) for name in names)
    return Case(published.case_id(number, *names), pictures, (row["caption_0"], row["caption_1"]))
