"""A trained model as an encoder for `mteb`, whose evaluator then runs its tasks (MIEB).

    encoder = MtebEncoder(vlc_jax.load("runs/clip"), "me/clip")
    mteb.evaluate(encoder, mteb.get_tasks(tasks=["AROVisualRelation", "SugarCrepe", "Winoground"]))

Needs an environment with `mteb` (2.26; `pip install mteb`) beside ours. Its `text_acc` of ARO is
the mean over cases and counts a tie as correct, since the true caption comes first: our `accuracy`
with tie="first_index". Our main metric is the mean over relations with ties as errors
(`benchmarks.aro`). mteb's scores of two equal captions may differ in the last digit, which then
decides instead of the tie.
"""

import itertools
from typing import Any

import numpy as np
from jaxtyping import Float
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta, ScoringFunction

from vlc_jax.encode.inference import Model
from vlc_jax.errors import UsageError

# Items embedded at a time: mteb reads images one by one, the model takes whole batches.
ITEMS = 256


class MtebEncoder(AbsEncoder):
    """Embeddings of unit length for mteb, which compares them by cosine.

    name: "organisation/name", the name of mteb's results; the revision is the fingerprint of the
      model.

    Raises UsageError for a model whose score is not the cosine of its embeddings (PACL, DCSM,
    SPARC): mteb would then evaluate something else.
    """

    def __init__(self, model: Model, name: str):
        if not model.scores_are_cosines:
            head = model.config["model"]["name"]
            raise UsageError(
                f"mteb compares embeddings by cosine, and a {head!r} model scores tokens; evaluate "
                "it with --mode eval"
            )
        if name.count("/") != 1:
            raise UsageError(f"mteb needs a model name organisation/name; got {name!r}")
        self.model = model
        facts = {
            "name": name,
            "revision": model.fingerprint,
            "embed_dim": model.embed_texts([]).shape[1],
            "modalities": ["image", "text"],
            "similarity_fn_name": ScoringFunction.COSINE,
        }
        self.mteb_model_meta = ModelMeta.create_empty(facts)

    def encode(self, inputs: Any, **options: Any) -> Float[np.ndarray, "items embed"]:
        """Embeddings of the items of an mteb DataLoader, whose batches have lists "text", "image",
        or both. Items with both get the sum of the two embeddings, as in mteb's own CLIP encoder.

        options: task, split and prompt, ignored here.
        """
        del options
        features = inputs.dataset.features
        embed = {"text": self._texts, "image": self.model.embed_images}
        kinds = [kind for kind in embed if kind in features]
        if not kinds:
            raise UsageError(f"items need a text or an image; mteb's items have {list(features)}")
        # a generator: a task's decoded images together may exceed the memory
        items = (
            dict(zip(kinds, values, strict=True))
            for batch in inputs
            for values in zip(*(batch[kind] for kind in kinds), strict=True)
        )
        rows = []
        while part := list(itertools.islice(items, ITEMS)):
            rows.append(sum(embed[kind]([item[kind] for item in part]) for kind in kinds))
        return np.concatenate(rows)

    def _texts(self, texts: list[str]) -> np.ndarray:
        # unique texts only: rounding can differ between rows, and equal captions must tie
        row = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        return self.model.embed_texts(list(row))[[row[text] for text in texts]]
