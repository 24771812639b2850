"""The questions of benchmarks, for embedders that read one behind the image (VLM2Vec)."""

import dataclasses

from input_pipeline.benchmarks.case import Benchmark, Case
from input_pipeline.record import AskedImage, DataError
from vlc_jax.generative import prompts


def ask(benchmark: Benchmark) -> Benchmark:
    """The benchmark with the question of each case at its images.

    The question is the case's own (`meta["question"]`), of What'sUp, COCO-spatial and GQA-spatial
    that of the ACL 2025 paper's embedder (prompts.question_of_case, style "vlm2vec"). Images of one
    case have the same, as there. Raises DataError for a case without any.
    """
    cases = tuple(_asked(case) for case in benchmark.cases)
    return dataclasses.replace(benchmark, cases=cases, version=f"{benchmark.version}/asked")


def _asked(case: Case) -> Case:
    question = case.meta.get("question")
    if question is None:
        if not isinstance(case.group, dict) or case.group.get("subset") not in prompts.PAIRS:
            raise DataError(
                f"case {case.id} comes without a question, which config.input.question asks for; "
                "leave the benchmark out, or set a config.input.question without {}"
            )
        question = prompts.question_of_case(case, "vlm2vec")
    images = tuple(AskedImage(image, question) for image in case.images)
    return dataclasses.replace(case, images=images)
