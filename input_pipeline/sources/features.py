"""Records whose images are features that `python -m vlc_jax.tools.cache_features` stored."""

import bisect
from pathlib import Path
from typing import Any

from input_pipeline.sources.shards import ShardsSource

HARD_IMAGE = "is_hard_image"  # in `meta`, of what is found by its id only


class FeaturesSource(ShardsSource):
    """The records of such a folder, in the order of the source they were made from.

    Behind them lie hard images that are no records of that source: `find` has them. `facts` say
    which weights made the features of which pixels and tokens. Raises what ShardsSource raises.
    """

    holds_features = True
    written_by = "python -m vlc_jax.tools.cache_features"

    def __init__(self, split: str = "all", *, path: str | Path) -> None:
        super().__init__(split, path=path)
        stored = range(len(self._entries))
        self._count = bisect.bisect_left(stored, True, key=lambda i: HARD_IMAGE in self[i].meta)

    @property
    def facts(self) -> dict[str, Any]:
        """What the features depend on."""
        return self.manifest["request"]["features"]

    def __len__(self) -> int:
        return self._count
