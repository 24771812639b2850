"""Records with precomputed features, which `vlc-jax cache_features` stored."""

import bisect
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.sources.shards import ShardsSource

HARD_IMAGE = "is_hard_image"  # in `meta` of records that only `find` returns


class FeaturesSource(ShardsSource):
    """Records of a folder of features, in the order of the source they were made from.

    Hard images from outside that source lie after them, and only `find` returns these. `facts`
    describes the weights, pixels and tokens behind the features. Raises as ShardsSource does.
    """

    holds_features = True
    written_by = "vlc-jax cache_features"

    def __init__(self, split: str = "all", *, path: str | Path) -> None:
        super().__init__(split, path=path)
        stored = range(len(self._entries))
        # Hard images come last, so bisection finds the first one.
        self._count = bisect.bisect_left(stored, True, key=lambda i: HARD_IMAGE in self[i].meta)

    @property
    def facts(self) -> dict[str, Any]:
        """Metadata of everything that the features depend on."""
        return self.manifest["request"]["features"]

    def __len__(self) -> int:
        return self._count
