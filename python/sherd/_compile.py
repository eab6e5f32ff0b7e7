"""torch.compile does not look into this package: a graph breaks around a call of it, and goes on after it.

What torch.compiler.disable does, without loading the compiler.
"""

from __future__ import annotations

import sys
import types

from torch._C._dynamo import eval_frame


def skip_package() -> None:
    skip = eval_frame._FrameAction.SKIP
    strategy = eval_frame._FrameExecStrategy(skip, skip)
    for name, module in list(sys.modules.items()):
        if module is None or not (name == __package__ or name.startswith(f"{__package__}.")):
            continue
        for value in vars(module).values():
            if isinstance(value, types.FunctionType) and value.__module__ == name:
                eval_frame.set_code_exec_strategy(value.__code__, strategy)
                value._torchdynamo_disable = True  # type: ignore[attr-defined]
