"""Rotary position embedding and its gradient, for queries and keys of any layout.

Of a row of D elements the first R = 2 half are pairs, turned by an angle: (x1, x2) are (X[k], X[k + half]), or
(X[2k], X[2k + 1]) where interleaved is 1; the elements behind them are copied.

    RotaryEmbedding      Y1 = x1 cos - x2 sin,     Y2 = x2 cos + x1 sin
    RotaryEmbeddingGrad  dX1 = dy1 cos + dy2 sin,  dX2 = dy2 cos - dy1 sin

X is (B, N, S, D): batch, heads, sequence, elements of a head, in any strides: a view (B, S, N, D).transpose(1, 2) is
taken as it is, and Y has its memory order. cos_cache and sin_cache are (B, S, half); or (positions, half), with
position_ids (B, S). Arithmetic is float32 (float64 for float64) and rounds once, at the store.

The CPU provider refuses position_ids outside of the cache. On a GPU such a row has the angles of the nearest position,
the first or the last.

Sources: ONNX, RotaryEmbedding 23, without its input of three dimensions: view it as four. ONNX Runtime has no gradient.
RotaryEmbeddingGrad is gradkern's own. Beyond them: bfloat16 and float64, angles of float32 with data of 16 bits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gradkern.errors import AttributeValueError, ShapeError


def resolve(axes: Mapping[str, Any], attributes: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    """The attributes; raises ShapeError where the cache does not fit the rows, and AttributeValueError for a
    rotary_embedding_dim that is not twice the last dimension of the cache.
    """
    cached, half, elements = tuple(axes["cached"]), axes["half"], axes["D"]
    rows = (axes["B"], axes["S"])
    if 2 * half > elements:
        raise ShapeError(
            f"input cos_cache has {half} angles; expected at most {elements // 2}, a half of D = {elements}"
        )
    if "position_ids" in names and len(cached) != 1:
        raise ShapeError(f"input cos_cache is {(*cached, half)}; expected (positions, {half}) with position_ids")
    if "position_ids" in names and cached[0] == 0 < axes["B"] * axes["S"]:
        raise ShapeError(
            f"input cos_cache is {(*cached, half)}; expected a position at least, with position_ids {rows}"
        )
    if "position_ids" in names and tuple(axes["placed"]) != rows:
        raise ShapeError(f"input position_ids is {tuple(axes['placed'])}; expected {rows}, batch and sequence")
    if "position_ids" not in names and cached != rows:
        raise ShapeError(f"input cos_cache is {(*cached, half)}; expected {(*rows, half)} without position_ids")
    turned = attributes["rotary_embedding_dim"]
    if turned not in (0, 2 * half):
        raise AttributeValueError(f"attribute rotary_embedding_dim is {turned}; expected 0 or {2 * half}, twice {half}")
    return attributes
