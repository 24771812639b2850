"""Questions of benchmarks for embedders that read one after the image (VLM2Vec)."""

import dataclasses

from vlc_jax.evaluators import prompts
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError, ImageQuestion


def ask(benchmark: Benchmark) -> Benchmark:
    """The benchmark with each case's question attached to its images.

    The question is `meta["question"]`; for What'sUp, COCO-spatial and GQA-spatial it is from the
    ACL 2025 paper's embedder (prompts.question_of_case, style "vlm2vec"). Two objects on top of one
    another have none, unless the caption says "to the top of", as GQA's: such cases are left out
    and counted in a note. All images of a case get the same question, as in the paper. Raises
    DataError for any other case without a question.
    """
    cases = [_with_question(case) for case in benchmark.cases if _has_question(case)]
    notes, left_out = benchmark.notes, len(benchmark.cases) - len(cases)
    if left_out:
        notes += (f"{left_out} cases of two objects on top of one another are not asked about",)
    # results with and without questions must not be filed together
    version = f"{benchmark.version}/asked"
    return dataclasses.replace(benchmark, cases=tuple(cases), version=version, notes=notes)


def _has_question(case: Case) -> bool:
    if "question" in case.meta or not _is_spatial(case):
        return True
    return prompts.has_question(case)


def _is_spatial(case: Case) -> bool:
    return isinstance(case.group, dict) and case.group.get("subset") in prompts.PAIRS


def _with_question(case: Case) -> Case:
    question = case.meta.get("question")
    if question is None:
        if not _is_spatial(case):
            raise DataError(
                f"case {case.id} comes without a question, which config.input.question asks for; "
                "leave the benchmark out, or set a config.input.question without {}"
            )
        question = prompts.question_of_case(case, "vlm2vec")
    images = tuple(ImageQuestion(image, question) for image in case.images)
    return dataclasses.replace(case, images=images)
