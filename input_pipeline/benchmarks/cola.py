"""COLA, multi-object matching: two images and two captions with the same attributes and objects.

Ray et al., "COLA: A benchmark for compositional text-to-image retrieval" (NeurIPS 2023); read like
github.com/arijitray1993/COLA. Images are Visual Genome's; the file lists their URLs.
"""

from pathlib import PurePosixPath
from typing import Any

from vlc_jax.input_pipeline.benchmarks import published
from vlc_jax.input_pipeline.case import Benchmark, Case

_FILE = "COLA_multiobjects_matching_benchmark.json"
ORIGIN = published.Origin(
    protocol="pairs",
    folder="cola",
    files=(_FILE,),
    images="vg",
    source="github.com/arijitray1993/COLA (data/) and visualgenome.org (VG_100K, VG_100K_2)",
    licence="MIT",
    cases=210,
    overlap="Visual Genome, half of whose images are from COCO",
)


@published.reader(ORIGIN)
def cola(files: published.Files) -> Benchmark:
    """210 cases: "brown giraffe behind tall white giraffe", "standing tall long giraffe ...".

    image_score, the headline, is the paper's metric: both captions rank their image first. Also
    text_score and group_score.
    """
    rows = files.lists(_FILE, "image_0", "caption_0", "image_1", "caption_1")
    cases = (_case(files, number, row) for number, row in enumerate(rows))
    summary = ("image_score", "text_score", "group_score")
    return files.benchmark(cases, summary=summary)


def _case(files: published.Files, number: int, row: dict[str, Any]) -> Case:
    # URLs of another folder structure: only the file names are used
    names = [PurePosixPath(str(row[field])).name for field in ("image_0", "image_1")]
    pictures = tuple(files.genome_image(name) for name in names)
    return Case(published.case_id(number, *names), pictures, (row["caption_0"], row["caption_1"]))
