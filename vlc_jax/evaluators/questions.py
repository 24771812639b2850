"""The questions of benchmarks, for embedders that read one behind the image (VLM2Vec)."""

import dataclasses

from vlc_jax.evaluators import prompts
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import AskedImage, DataError


def ask(benchmark: Benchmark) -> Benchmark:
    """The benchmark with the question of each case at its images.

    The question is the case's own (`meta["question"]`), of What'sUp, COCO-spatial and GQA-spatial
    that of the ACL 2025 paper's embedder (prompts.question_of_case, style "vlm2vec"); those cases
    that it has none for, GQA's of two objects on top of one another, are left out, and counted in a
    note. Images of one case have the same, as there. Raises DataError for a case without any.
    """
    cases = [_asked(case) for case in benchmark.cases if _is_asked(case)]
    notes, left_out = benchmark.notes, len(benchmark.cases) - len(cases)
    if left_out:
        notes += (f"{left_out} cases of two objects on top of one another are not asked about",)
    version = f"{benchmark.version}/asked"
    return dataclasses.replace(benchmark, cases=tuple(cases), version=version, notes=notes)


def _is_asked(case: Case) -> bool:
    if "question" in case.meta or not _is_spatial(case):
        return True
    return prompts.has_question(case)


def _is_spatial(case: Case) -> bool:
    return isinstance(case.group, dict) and case.group.get("subset") in prompts.PAIRS


def _asked(case: Case) -> Case:
    question = case.meta.get("question")
    if question is None:
        if not _is_spatial(case):
            raise DataError(
                f"case {case.id} comes without a question, which config.input.question asks for; "
                "leave the benchmark out, or set a config.input.question without {}"
            )
        question = prompts.question_of_case(case, "vlm2vec")
    images = tuple(AskedImage(image, question) for image in case.images)
    return dataclasses.replace(case, images=images)
