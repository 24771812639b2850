"""Records whose images are features that `python -m vlc_jax.tools.cache_features` stored."""

from typing import Any

from input_pipeline.sources.shards import ShardsSource


class FeaturesSource(ShardsSource):
    """The records of such a folder, in the order of the source they were made from.

    `facts` say which weights made them of which pixels and tokens. Raises what ShardsSource raises,
    and ValueError for a folder of pictures.
    """

    holds_features = True

    @property
    def facts(self) -> dict[str, Any]:
        """What the features depend on."""
        return self.manifest["request"]["features"]
