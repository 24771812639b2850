"""A decoder-only language model: Llama, Vicuna, Phi-3, Gemma 1 and 3, Qwen3, MPT, and encoders.

One module for all sizes (lm_variants.VARIANTS). Pre-norm blocks with RMSNorm (Zhang and Sennrich
2019), RoPE in the half-split layout, grouped-query attention (Ainslie et al. 2023,
arXiv:2305.13245) and a gated MLP (Shazeer 2020, arXiv:2002.05202); no biases. MPT has layer norms,
ALiBi (Press et al. 2022, arXiv:2108.12409) and a plain MLP, and under Flamingo looks at images
(models.flamingo). The parameters of all blocks are stacked, layers on axis 0.

One mask over key slots, `valid`, serves left and right padding, prefilling, single steps and
bidirectional encoders. A slot is an index of the padded text, or of the cache. The position of a
token is the number of valid slots before it.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from vlc_jax import errors, types
from vlc_jax.models import flamingo, layers, lm_variants, rope

ACTIVATIONS = {"silu": jax.nn.silu, "gelu_tanh": layers.tanh_gelu, "gelu": layers.exact_gelu}


class View(NamedTuple):
    """Attention mask of a call, and the rotation of its queries and keys, or for ALiBi the number
    of tokens from each key to each query."""

    mask: Bool[Array, "batch length slots"]
    rotation: rope.Rotation | None
    distance: Int[Array, "batch length slots"] | None = None


class Cache(NamedTuple):
    """Key-value cache: rotated keys and values of all slots of all layers."""

    k: Float[Array, "layers batch slots groups head"]
    v: Float[Array, "layers batch slots groups head"]


def positions_of(valid: Bool[Array, "batch slots"]) -> Int[Array, "batch slots"]:
    """The number of valid slots before each slot; 0 for padding on the left."""
    return jnp.maximum(jnp.cumsum(valid.astype(jnp.int32), axis=1) - 1, 0)


def attention_mask(
    valid: Bool[Array, "batch slots"],
    start: Int[Array, ""] | int,
    length: int,
    *,
    is_causal: bool = True,
    window: int | None = None,
    prefix: Bool[Array, "batch slots"] | None = None,
) -> Bool[Array, "batch length slots"]:
    """Attention mask of queries in slots start .. start + length - 1; True on the slots they see.

    A query sees valid slots; in a causal model only earlier ones and itself, and later ones in the
    same contiguous run of `prefix`. window: only the last `window` tokens, itself included.
    """
    slots = valid.shape[1]
    mask = jnp.broadcast_to(valid[:, None], (len(valid), length, slots))
    if is_causal:
        queries = start + jnp.arange(length)
        is_seen = (jnp.arange(slots)[None] <= queries[:, None])[None]
        if prefix is not None:
            begins = prefix & ~jnp.pad(prefix, ((0, 0), (1, 0)))[:, :-1]
            runs = jnp.where(prefix, jnp.cumsum(begins, axis=1), 0)
            query_runs = jax.lax.dynamic_slice_in_dim(runs, start, length, axis=1)
            is_seen = is_seen | ((query_runs[:, :, None] == runs[:, None]) & prefix[:, None])
        mask = mask & is_seen
    if window is not None:
        positions = positions_of(valid)
        queries = jax.lax.dynamic_slice_in_dim(positions, start, length, axis=1)
        mask = mask & (queries[:, :, None] - positions[:, None] < window)
    return mask


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + epsilon) in float32, times a learned scale.

    unit_offset: times 1 + scale, in float32 too, and the scale starts at zero (Gemma).
    is_centred: x - mean(x) for x, a layer norm without bias (MPT).
    """

    epsilon: float
    unit_offset: bool = False
    dtype: Any = jnp.float32
    param_dtype: Any = jnp.float32
    is_centred: bool = False

    @nn.compact
    def __call__(self, x: Float[Array, "*axes embed"]) -> Float[Array, "*axes embed"]:
        init = nn.initializers.zeros if self.unit_offset else nn.initializers.ones
        scale = self.param("scale", init, (x.shape[-1],), self.param_dtype)
        scale = scale.reshape((1,) * (x.ndim - 1) + scale.shape)
        x = x.astype(jnp.float32)
        if self.is_centred:
            x = x - jnp.mean(x, axis=-1, keepdims=True)
        x = x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + self.epsilon)
        # Llama rounds before it scales, Gemma after: in bfloat16 the results differ
        if self.unit_offset:
            return (x * (1 + scale.astype(jnp.float32))).astype(self.dtype)
        return x.astype(self.dtype) * scale.astype(self.dtype)


class Picture(NamedTuple):
    """Arrays of a text with an image, for the decoder of Qwen3-VL.

    positions: time, row and column of each token.
    deep: added to the features after each of the first blocks (DeepStack; Meng et al. 2024,
      arXiv:2406.04334), zeros where nothing is added; None: no such features.
    """

    positions: Int[Array, "batch length 3"]
    deep: Float[Array, "batch levels length embed"] | None = None


class _Sizes(nn.Module, kw_only=True):
    """Fields of the decoder that its blocks read, too; documented in Decoder."""

    width: int
    depth: int
    heads: int
    mlp_width: int
    kv_heads: int | None = None
    head_width: int | None = None
    epsilon: float = 1e-5
    global_every: int | None = None
    qk_norm: bool = False
    post_norms: bool = False
    scale_width: int | None = None
    activation: str = "silu"
    unit_offset: bool = False
    is_centred: bool = False
    is_gated: bool = True
    alibi: float | None = None
    cross_every: int | None = None
    dtype: Any = jnp.float32
    param_dtype: Any = jnp.float32

    @property
    def groups(self) -> int:
        """Heads of keys and values."""
        return self.kv_heads or self.heads

    @property
    def head(self) -> int:
        """Width of a head."""
        return self.head_width or self.width // self.heads

    def _norm(self, name: str | None = None) -> RMSNorm:
        dtypes = self.dtype, self.param_dtype
        return RMSNorm(self.epsilon, self.unit_offset, *dtypes, self.is_centred, name=name)


_SIZES = [
    field.name for field in dataclasses.fields(_Sizes) if field.name not in ("parent", "name")
]


class Block(_Sizes):
    """A pre-norm block: x + attention(norm(x)), then x + mlp(norm(x)); with post_norms, x +
    norm(attention(norm(x))) and so on (Gemma 3).

    It is the body of a scan over layers. The cache of all layers is in the scan's carry, where XLA
    writes new keys in place; as a scanned input and output it would be copied at every step.
    """

    @nn.compact
    def __call__(
        self,
        state: tuple[Float[Array, "batch length embed"], Cache | None],
        layer: Int[Array, ""],
        views: tuple[View, ...],
        start: Int[Array, ""],
        cross: tuple[Any, flamingo.Media | None] | None,
        deep: Float[Array, "batch levels length embed"] | None,
    ) -> tuple[tuple[Float[Array, "batch length embed"], Cache | None], None]:
        """`state` after the block: features, and the cache with keys and values of this layer.

        views: one for all layers, or one for global and one for local layers.
        cross: parameters of the cross attention of all layers, and the images.
        deep: see Picture.
        """
        x, cache = state
        if cross is not None:
            block = flamingo.CrossAttention(self.dtype, self.param_dtype, parent=None)
            x = flamingo.before_block(block, cross[0], self.cross_every, layer, x, cross[1])
        view = views[0]
        if self.global_every is not None:
            is_global = (layer + 1) % self.global_every == 0
            view = jax.tree.map(lambda *both: jnp.where(is_global, *both), *views)
        y, cache = self._attention(self._norm("attention_norm")(x), cache, layer, view, start)
        x = x + (self._norm("attention_post_norm")(y) if self.post_norms else y)
        y = self._mlp(self._norm("mlp_norm")(x))
        x = x + (self._norm("mlp_post_norm")(y) if self.post_norms else y)
        if deep is not None:
            levels = deep.shape[1]
            level = jnp.minimum(layer, levels - 1)
            added = jax.lax.dynamic_index_in_dim(deep, level, axis=1, keepdims=False)
            x = x + jnp.where(layer < levels, added, 0).astype(x.dtype)
        return (types.shard_batch(x), cache), None

    def _dense(self, features: int, name: str, *, is_residual: bool = False) -> layers.Dense:
        # the two matrices that write to the residual stream start smaller by sqrt(2 depth)
        scale = 1 / (2 * self.depth) if is_residual else 1.0
        init = nn.initializers.variance_scaling(scale, "fan_in", "normal")
        return layers.Dense(
            features, False, self.dtype, init, param_dtype=self.param_dtype, name=name
        )

    def _mlp(self, x: jax.Array) -> jax.Array:
        activation, up = ACTIVATIONS[self.activation], self._dense(self.mlp_width, "up")(x)
        gate = self._dense(self.mlp_width, "gate")(x) if self.is_gated else up
        y = activation(gate) * up if self.is_gated else activation(up)
        return self._dense(x.shape[-1], "down", is_residual=True)(y)

    def _attention(
        self, x: jax.Array, cache: Cache | None, layer: jax.Array, view: View, start: jax.Array
    ) -> tuple[jax.Array, Cache | None]:
        batch, length, width = x.shape

        def heads(count: int, name: str) -> jax.Array:
            return self._dense(count * self.head, name)(x).reshape(batch, length, count, self.head)

        query, key = heads(self.heads, "query"), heads(self.groups, "key")
        if self.qk_norm:
            # before the rotation, which mixes features with different scales
            query, key = self._norm("query_norm")(query), self._norm("key_norm")(key)
        if view.rotation is not None:
            query, key = rope.rotate(query, view.rotation), rope.rotate(key, view.rotation)
        value = heads(self.groups, "value")
        # rotated keys: a token's position never changes
        if cache is not None:
            at = (layer, 0, start, 0, 0)
            cache = Cache(
                *(
                    jax.lax.dynamic_update_slice(whole, new[None].astype(whole.dtype), at)
                    for whole, new in zip(cache, (key, value), strict=True)
                )
            )
            key, value = (
                jax.lax.dynamic_index_in_dim(whole, layer, keepdims=False).astype(query.dtype)
                for whole in cache
            )
        mask, scale, bias = view.mask[:, None], (self.scale_width or self.head) ** -0.5, None
        if view.distance is not None:
            slopes = rope.alibi_slopes(self.heads, self.alibi)[None, :, None, None]
            bias = -slopes * view.distance[:, None].astype(jnp.float32)
        mixed = jax.nn.dot_product_attention(query, key, value, bias, mask=mask, scale=scale)
        mixed = mixed.reshape(batch, length, self.heads * self.head)
        return self._dense(width, "out", is_residual=True)(mixed), cache


class Decoder(_Sizes, kw_only=True):
    """A language model: `embed`, then `__call__`, then `logits`.

    kv_heads: heads of keys and values; None: as many as query heads.
    head_width: None is width / heads.   theta, scaling: RoPE frequencies, see models.rope.
    window: number of tokens that a token sees, itself included; None for all.
    global_every: every n-th layer is global: its tokens see all tokens, with theta and scaling. The
      other layers are local: their tokens see the window, with local_theta (Gemma 3). None: all
      layers are the same.
    qk_norm: queries and keys are normalised per head, before the rotation.   post_norms: see Block.
    scale_width: attention logits are divided by its square root; None is the width of a head.
    is_causal: False for bidirectional encoders (LLM2Vec; BehnamGhader et al. 2024).
    is_tied: logits use the embedding matrix.   activation: activation of the gate, see ACTIVATIONS.
    unit_offset: norms multiply by 1 + scale (Gemma).
    scales_embeddings: token embeddings are multiplied by sqrt(width) (Gemma).
    is_centred: layer norms without bias for RMSNorms.   is_gated: False for an MLP of two matrices.
    sections: numbers of feature pairs that rotate by time, row and column of an image token
      (models.rope.axes); None: tokens have one position.
    alibi: largest exponent of the slopes of ALiBi, which then replaces RoPE (MPT: 8).
    cross_every, cross_width: cross attention to images before every n-th block, and the width of
      their latents (models.flamingo); None: none.
    dtype: type of activations and matrix products.   param_dtype: type of parameters; bfloat16
      stores a frozen model as its file does.   remat: see models.layers.REMAT.
    """

    vocab: int
    theta: float = 10_000.0
    scaling: rope.Scaling | None = None
    window: int | None = None
    local_theta: float = 10_000.0
    is_causal: bool = True
    is_tied: bool = False
    scales_embeddings: bool = False
    sections: tuple[int, int, int] | None = None
    cross_width: int | None = None
    remat: str = "none"

    def setup(self) -> None:
        if self.heads % self.groups:
            raise errors.UsageError(
                f"kv_heads must divide heads; got {self.groups} for {self.heads} heads"
            )
        errors.known("activation of a language model", self.activation, ACTIVATIONS)
        errors.known("remat", self.remat, layers.REMAT)
        small, dtypes = nn.initializers.normal(0.02), (self.dtype, self.param_dtype)
        self.token_embedding = nn.Embed(self.vocab, self.width, *dtypes, embedding_init=small)
        # prevent_cse=False: in a scan XLA cannot merge the recomputed block with the first one
        block = layers.rematerialised(Block, self.remat, prevent_cse=False)
        self.blocks = nn.scan(
            block,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=(0, *(nn.broadcast,) * 4),
            length=self.depth,
        )(**{field: getattr(self, field) for field in _SIZES})
        self.norm = self._norm()
        if self.cross_every is not None:
            cross = flamingo.CrossAttention(*dtypes, parent=None)
            sizes = self.depth // self.cross_every, self.width, self.cross_width
            self.cross = self.param("cross", lambda key: flamingo.init_stack(cross, key, *sizes))
        if not self.is_tied:
            shape = (self.width, self.vocab)
            self.output = self.param("head", small, shape, self.param_dtype)

    def empty_cache(self, batch: int, slots: int) -> Cache:
        """A cache of zeros for texts of up to `slots` tokens, padding included."""
        shape = (self.depth, batch, slots, self.groups, self.head)
        return Cache(jnp.zeros(shape, self.dtype), jnp.zeros(shape, self.dtype))

    def embed(self, ids: Int[Array, "*axes"]) -> Float[Array, "*axes embed"]:
        """Embeddings of token ids, scaled if the model scales them."""
        table = self.token_embedding.embedding
        lookup = types.auto_sharded(
            lambda ids, table: jnp.take(table, ids, axis=0),
            # a single sequence has no batch axis
            splits_rows=ids.ndim > 1,
        )
        # cast after the lookup: casting the table would copy it, and sum its gradient in bfloat16
        x = lookup(ids, table).astype(self.dtype)
        if self.scales_embeddings:
            x = x * jnp.asarray(self.width**0.5, x.dtype)
        return x

    def __call__(
        self,
        embeds: Float[Array, "batch length embed"],
        valid: Bool[Array, "batch slots"],
        *,
        cache: Cache | None = None,
        start: Int[Array, ""] | int = 0,
        prefix: Bool[Array, "batch slots"] | None = None,
        media: flamingo.Media | None = None,
        picture: Picture | None = None,
    ) -> tuple[Float[Array, "batch length embed"], Cache | None]:
        """Features after the last norm of the tokens in slots start .. start + length - 1, and the
        cache with their keys and values.

        valid: True on slots that hold a token, of this call, of earlier calls (in the cache) or of
          later ones, which a causal model does not see.
        cache: from `empty_cache` or an earlier call; None: the tokens see each other only.
        prefix: slots with bidirectional attention within each contiguous run (PaliGemma's prompts,
          Gemma 3's images).
        media: images that the tokens of a decoder with cross attention see; None: none.
        picture: positions and features of image tokens, for a decoder with `sections`; None: time,
          row and column of a token are the number of valid slots before it.
        """
        length, slots = embeds.shape[1], valid.shape[1]
        expected = length if cache is None else cache.k.shape[2]
        if slots != expected:
            raise errors.UsageError(
                f"valid has {slots} slots, but "
                + ("the text" if cache is None else "the cache")
                + f" has {expected}; pass one boolean per slot"
            )
        views = self._views(valid, start, length, prefix, picture)
        if media is not None:
            seen = jax.lax.dynamic_slice_in_dim(media.seen, start, length, axis=1)
            media = media._replace(seen=seen)
        cross = None if self.cross_every is None else (self.cross, media)
        state, numbers = (embeds.astype(self.dtype), cache), jnp.arange(self.depth)
        deep = None if picture is None else picture.deep
        (x, cache), _ = self.blocks(state, numbers, views, jnp.asarray(start), cross, deep)
        return self.norm(x), cache

    def _views(
        self,
        valid: Bool[Array, "batch slots"],
        start: Int[Array, ""] | int,
        length: int,
        prefix: Bool[Array, "batch slots"] | None,
        picture: Picture | None,
    ) -> tuple[View, ...]:
        """Mask and rotation for all layers, or for global and for local layers."""
        if picture is None:
            positions = jax.lax.dynamic_slice_in_dim(positions_of(valid), start, length, axis=1)
        else:
            # of each pair of features; from here on the last axis may be that of the pairs
            positions = picture.positions[..., rope.axes(self.sections, self.head // 2)]

        def view(theta: float, scaling: rope.Scaling | None, window: int | None) -> View:
            see = {"is_causal": self.is_causal, "window": window, "prefix": prefix}
            mask = attention_mask(valid, start, length, **see)
            if self.alibi is not None:
                return View(mask, None, positions[..., None] - positions_of(valid)[:, None])
            # longrope: the number of slots chooses the frequencies, the same in all calls that
            # share a cache
            waves = rope.frequencies(self.head // 2, theta, scaling, valid.shape[1])
            return View(mask, rope.rotation_at(positions, *waves))

        if self.global_every is None:
            return (view(self.theta, self.scaling, self.window),)
        local = view(self.local_theta, None, self.window)
        return view(self.theta, self.scaling, None), local

    def logits(self, hidden: Float[Array, "*axes embed"]) -> Float[Array, "*axes vocab"]:
        """Logits of the next token, float32. Compute them only where needed: 700 tokens and a
        vocabulary of 32,000 make 90 MB."""
        head = self.token_embedding.embedding.T if self.is_tied else self.output
        product = (hidden.astype(self.dtype), head.astype(self.dtype))
        # float32 sums: bfloat16 logits above 128 are integers, and many tokens tie
        return jnp.matmul(*product, preferred_element_type=jnp.float32)

    def text_logits(
        self, ids: Int[Array, "batch length"], valid: Bool[Array, "batch length"]
    ) -> Float[Array, "batch length vocab"]:
        """Logits after every token of texts, float32."""
        return self.logits(self(self.embed(ids), valid)[0])


def build(variant: str, **overrides: Any) -> Decoder:
    """The language model `variant` (lm_variants.VARIANTS); overrides: fields of Decoder.

    Raises UsageError for an unknown variant.
    """
    name = errors.known("language model", variant, lm_variants.VARIANTS)
    return Decoder(**{**lm_variants.VARIANTS[name], **overrides})


def from_sizes(sizes: Mapping[str, Any], **options: Any) -> Decoder:
    """The language model with fields `sizes` (scaling: a dict or None) and further `options`."""
    scaling = sizes["scaling"] and rope.Scaling(**sizes["scaling"])
    return Decoder(**{**sizes, "scaling": scaling, **options})


def init(decoder: Decoder, key: jax.Array) -> dict[str, Any]:
    """Random parameters; under `jax.eval_shape` their shapes."""
    ids, valid = jnp.zeros((1, 2), jnp.int32), jnp.ones((1, 2), bool)
    return decoder.init(key, ids, valid, method=Decoder.text_logits)["params"]
