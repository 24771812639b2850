"""NaturalBench-Retrieval: two images and two captions that models confuse.

Li et al., "NaturalBench: Evaluating vision-language models on natural adversarial samples" (NeurIPS
2024); read like naturalbench_retrieval.py of github.com/Baiqi-Li/NaturalBench: metadata.json and a
folder images; comparisons are strict. Unverified: the file was not available.
"""

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case


@published.reader
def naturalbench_retrieval(files: published.Files) -> Benchmark:
    """Pairs of images and captions; text_score, the headline, image_score and group_score."""
    others = {"index": fields.anything} | dict.fromkeys(("image_0", "image_1"), fields.image_name)
    cases = (
        Case(
            published.case_id(number, row["index"]),
            (files.image(row["image_0"]), files.image(row["image_1"])),
            (row["caption_0"], row["caption_1"]),
        )
        for number, row in enumerate(
            files.objects("metadata.json", "caption_0", "caption_1", **others)
        )
    )
    summary = ("text_score", "image_score", "group_score")
    return files.benchmark(cases, summary=summary)
