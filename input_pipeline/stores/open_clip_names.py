"""Published names of open_clip whose architecture is one of vlc_jax.models.variants.

open_clip_names.csv is of its src/open_clip/pretrained.py: the repository of each pair of model and
tag, whose weights are open_clip_model.safetensors or open_clip_pytorch_model.bin beside
open_clip_config.json. The hub lists the sha256 of these files, and a copy with another one is
refused.
"""

import csv
from pathlib import Path
from typing import NamedTuple

from vlc_jax import errors

_TABLE = Path(__file__).with_name("open_clip_names.csv")
# Has OpenAI's tokenizer, which many repositories of CLIP weights lack.
_CLIP_TOKENIZER = "openai/clip-vit-base-patch32"
# Repositories of other tokenizers, by a part of the model's name.
_TOKENIZERS = {
    "SigLIP": None,
    "CLIPA": "google-bert/bert-base-uncased",
    "worldwide": "facebook/xlm-v-base",
    "xlm-roberta": "FacebookAI/xlm-roberta-base",
    "roberta": "FacebookAI/roberta-base",
}


class Row(NamedTuple):
    """A published name.

    variant: of vlc_jax.models.variants.   activation: that the weights were trained with; None if
    open_clip's list names none: that of the repository's config is taken.   tokenizer: repository
    of it if `repository` has none; None: it has one.
    """

    model: str
    tag: str
    repository: str
    variant: str
    activation: str | None
    tokenizer: str | None


def _rows() -> dict[tuple[str, str], Row]:
    rows = {}
    with _TABLE.open(encoding="utf-8") as file:
        for entry in csv.DictReader(file):
            model, activation = entry["model"], entry["activation"] or None
            repositories = [name for part, name in _TOKENIZERS.items() if part in model]
            tokenizer = repositories[0] if repositories else _CLIP_TOKENIZER
            # open_clip has each name with QuickGELU under a second name, too
            second = (f"{model}-quickgelu",) if activation == "quick_gelu" else ()
            for name in (model, *second):
                row = entry | {"model": name, "activation": activation, "tokenizer": tokenizer}
                rows[name, row["tag"]] = Row(**row)
    return rows


ROWS = _rows()


def tags_of(model: str) -> list[str]:
    """The tags of a model; none if it is not there."""
    return [tag for name, tag in ROWS if name == model]


def find(model: str, tag: str) -> Row:
    """The row of a name; tags in any case, with "-" for "_", as open_clip takes them.

    Raises ValueError for a name that is not there, with the nearest ones.
    """
    tag = tag.lower().replace("-", "_")
    if row := ROWS.get((model, tag)):
        return row
    if tags := tags_of(model):
        raise ValueError(
            f"open_clip://{model} has no weights {tag!r}{errors.nearest(tag, tags)}; it has "
            f"{', '.join(tags)}"
        )
    models = list(dict.fromkeys(name for name, _ in ROWS))
    raise ValueError(
        f"open_clip://{model}/{tag} is no published name of a model that is here"
        f"{errors.nearest(model, models)}; there are {', '.join(models)}"
    )
