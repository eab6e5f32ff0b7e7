"""Finds torch, compares it with the one that this package was built for, and loads the extension."""

from __future__ import annotations

from ._build import TORCH_VERSION
from ._errors import error_text


def _minor(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])


try:
    import torch
except ImportError as missing:
    raise ImportError(
        error_text(
            "import sherd",
            "torch cannot be imported",
            f"pip install torch=={TORCH_VERSION}",
            cause=missing,
            built_for=f"torch {TORCH_VERSION}",
        )
    ) from missing

if _minor(torch.__version__) != _minor(TORCH_VERSION):
    raise ImportError(
        error_text(
            "import sherd",
            "this sherd was built for another version of torch",
            f"pip install torch=={TORCH_VERSION}, or build sherd again beside this torch: "
            "pip install --no-build-isolation --force-reinstall sherd",
            built_for=f"torch {TORCH_VERSION}",
            found=f"torch {torch.__version__}",
        )
    )

from . import _C  # noqa: E402, F401  (torch's libraries must be loaded first)
