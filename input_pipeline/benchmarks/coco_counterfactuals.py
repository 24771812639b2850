"""COCO-Counterfactuals: COCO captions with one noun replaced, and images generated from both.

Le et al., "COCO-Counterfactuals: Automatically constructed counterfactual examples for image-text
pairs" (NeurIPS 2023); read like github.com/linzhiqiu/t2v_metrics, which appends ".jpg" to names.
"""

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case


@published.reader
def coco_counterfactuals(files: published.Files) -> Benchmark:
    """17,410 cases: "A woman is cutting into a cake ...", "A baker is cutting into a cake ...".

    group_score, the headline, text_score and image_score. All images are generated. Confidence
    intervals treat the cases of one COCO caption as one cluster.
    """
    images, captions = ("image_0", "image_1"), ("caption_0", "caption_1")
    others = {"id": fields.anything} | dict.fromkeys(images, fields.image_name)
    rows = files.json_lines(files.file, *captions, **others)
    cases = (
        Case(
            published.case_id(number, row["id"]),
            tuple(files.image(f"{row[name]}.jpg") for name in images),
            tuple(row[name] for name in captions),
            # ids are COCO's with a variant's number: variants of a caption are not independent
            meta={"record": str(row["id"]).partition("_")[0]},
        )
        for number, row in enumerate(rows)
    )
    return files.benchmark(cases, summary=published.PAIR_SCORES)
