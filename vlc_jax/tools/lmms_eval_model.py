"""A generative model for `lmms_eval`, which finds it by the entry point `lmms_eval.models`:

  python -m lmms_eval --model vlc_jax --model_args model=runs/llava --tasks mmvp --batch_size 16

Needs an environment with `lmms_eval` (0.7.3; `pip install lmms_eval`) beside ours. model=PATH, and
tokenizer=, family=, variant=, image_size=, activation= for weights, as in vlc_jax.load. torch and
JAX share a GPU: set XLA_PYTHON_CLIENT_PREALLOCATE=false if a task uses torch there.

An answer is greedy: of the sampling options of a task only a temperature of 0 is accepted, and
`max_new_tokens` and `until` are used. One image per question; videos are refused. Tasks of the
output type multiple_choice end with an error in lmms_eval 0.7.3, which turns the losses of any
model into text (lmms_eval.api.instance.unwrap_generation_output).
"""

from collections.abc import Callable, Sequence
from typing import Any

from lmms_eval.api.model import lmms
from lmms_eval.models.registry_v2 import ModelManifest
from PIL import Image

from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline.record import Conversation

NAME = "vlc_jax"
MAX_NEW_TOKENS = 1024  # of a task that sets none, as in lmms_eval's own LLaVA
STEP = 32
IMAGE = "<image>"  # in questions of some tasks: the model's own template has its place
# Options that have no effect on a greedy answer of one beam, at these values.
GREEDY = {"temperature": (0, None), "do_sample": (False, None), "num_beams": (1, None)}
WITHOUT_EFFECT = ("top_p", "top_k", "image_aspect_ratio", "image_sizes", "use_cache")


def manifest() -> ModelManifest:
    """The payload of the entry point."""
    return ModelManifest(NAME, simple_class_path=f"{__name__}.LmmsEvalModel")


class LmmsEvalModel(lmms):
    """Answers and losses of `vlc_jax.load(model)` for lmms_eval.

    model: a path, or a loaded model.   batch_size: questions answered at a time.
    device, max_batch_size: lmms_eval passes them; JAX chooses its devices.
    options: of vlc_jax.load.

    Raises UsageError for a model that writes no text.
    """

    is_simple = True

    def __init__(
        self,
        model: Any,
        batch_size: int | str = 1,
        device: str | None = None,
        max_batch_size: int | None = None,
        **options: Any,
    ):
        del device, max_batch_size
        super().__init__()
        # here: lmms_eval reads the entry point whatever its model is
        from vlc_jax.encode import load

        try:
            size = int(batch_size)
        except ValueError:
            raise UsageError(f"batch_size is a number; got {batch_size!r}") from None
        if isinstance(model, str):
            model = load.load(model, batch_size=size, **options)
        self.model, self.batch_size = model, size
        # refuses a model that writes nothing, before lmms_eval downloads a task
        self.model.answers([], [])

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """The answer to each request: (question, options, function of images, document ...)."""
        answers = [""] * len(requests)
        arguments = [request.args for request in requests]
        limits = [_max_tokens(each[1]) for each in arguments]
        for limit in dict.fromkeys(limits):
            chosen = [n for n, each in enumerate(limits) if each == limit]
            for start in range(0, len(chosen), self.batch_size):
                part = chosen[start : start + self.batch_size]
                images = [self._image(*arguments[n][2:6]) for n in part]
                questions = [_question(arguments[n][0]) for n in part]
                texts = self.model.answers(images, questions, max_tokens=limit)
                for n, text in zip(part, texts, strict=True):
                    answers[n] = _until(text, arguments[n][1].get("until"))
                    self.cache_hook.add_partial("generate_until", arguments[n][:2], answers[n])
        return answers

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """(loss, whether it is the greedy answer) of each request: (question, answer, ...).

        The loss is the mean of -log p over the answer's tokens and its end: lmms_eval takes the
        answer with the lowest one, in spite of the method's name.

        Raises UsageError for a model whose scores are not those of answers.
        """
        if self.model.config["model"]["head"].get("scores") != "answer":
            raise UsageError(
                "this task compares the probabilities of answers, and this model scores whole "
                "texts: take a captioner with config.model.head.scores='answer', such as LLaVA"
            )
        results = []
        for question, answer, *image_place in (request.args for request in requests):
            image = self._image(*image_place[:4])
            if callable(answer):
                answer = answer(self._document(*image_place[1:4]))
            question, answer = _question(question), str(answer).strip()
            score = self.model.score([image], [Conversation.scored(question, answer)])
            # tokens: an answer has no more than bytes; in steps, each of which compiles a program
            limit = -(-(len(answer.encode()) + 1) // STEP) * STEP
            (greedy,) = self.model.answers([image], [question], max_tokens=limit)
            results.append((-float(score[0, 0]), greedy == answer))
        return results

    def generate_until_multi_round(self, requests: Sequence[Any]) -> list[str]:
        """Refused: an answer does not read the ones before it."""
        raise UsageError("vlc_jax answers single questions; this task has several rounds")

    def _document(self, number: int, task: str, split: str) -> Any:
        return self.task_dict[task][split][number]

    def _image(
        self, images_of: Callable[[Any], Any], number: int, task: str, split: str
    ) -> Image.Image:
        images = images_of(self._document(number, task, split)) or []
        if len(images) != 1 or not isinstance(images[0], Image.Image):
            kinds = ", ".join(type(image).__name__ for image in images) or "none"
            raise UsageError(
                f"vlc_jax reads one image per question; document {number} of {task} has {kinds}"
            )
        return images[0]


def _max_tokens(options: dict[str, Any]) -> int:
    """max_new_tokens. Raises UsageError for options that would change a greedy answer."""
    for name, value in options.items():
        if name in ("max_new_tokens", "until", *WITHOUT_EFFECT):
            continue
        if name not in GREEDY or value not in GREEDY[name]:
            raise UsageError(
                f"vlc_jax answers greedily; this task sets {name}={value!r}: overwrite it with "
                "--gen_kwargs temperature=0,do_sample=False,num_beams=1"
            )
    return int(options.get("max_new_tokens", MAX_NEW_TOKENS))


def _question(text: str) -> str:
    return text.replace(IMAGE, "").strip()


def _until(text: str, ends: str | Sequence[str] | None) -> str:
    """The text before the first of `ends`."""
    for end in [ends] if isinstance(ends, str) else ends or ():
        text = text.partition(end)[0] if end else text
    return text
