"""What an operator does to sharded operands, and why, without running it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from . import _C


def explain(
    op: str,
    *operands: torch.Tensor | str | None,
    mesh: _C.Mesh | str | None = None,
    rule: str = "",
    outputs: int = 0,
    **arguments: Any,
) -> _C.Explanation:
    """The rule of an operator, what each mesh axis does, which operands move, and what that costs.

    Operands are DTensors, or texts as in `"f32[64, 32@tp]"` with the `mesh` that they are on.

    >>> import sherd
    >>> print(sherd.explain("mm", "f32[64, 32@tp]", "f32[32@tp, 16]", mesh="[tp=4]").rule)
    i k, k j -> i j | reduce k, linear 0 1

    Along a sharded dim most operators are not gathered; `along` says how, `exchanges` what the ranks tell each other.

    >>> answer = sherd.explain("cumsum", "f32[64@tp, 32]", mesh="[tp=4]", dim=0)
    >>> answer.bytes, answer.bytes_by_rule
    (384, 1536)
    >>> answer.exchanges
    [("all_gather@tp of how each rank's rows end", 384)]
    """
    texts: list[str | None] = []
    for operand in operands:
        if isinstance(operand, torch.Tensor):
            if _C.is_dtensor(operand) and mesh is None:
                mesh = _C.mesh_of(operand).layout_mesh
            texts.append(_C.describe(operand).split(" on [")[0])
        else:
            texts.append(operand)
    if mesh is None:
        mesh = "[1]"
    if isinstance(mesh, str):
        mesh = _C.Mesh(mesh)
    plain = [(name, list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value)
             for name, value in arguments.items()]
    return _C.explain(op, texts, mesh, plain, rule, outputs)
