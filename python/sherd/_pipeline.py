"""A model in stages, one for each rank of a mesh axis."""

from __future__ import annotations

from collections.abc import Callable

import torch

from . import _C
from ._arguments import mesh_or_current
from ._errors import error_text

Stage = Callable[[torch.Tensor], torch.Tensor]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_ONE_F_ONE_B = {"1f1b": True, "gpipe": False}


def _is_one_f_one_b(operation: str, schedule: str) -> bool:
    found = _ONE_F_ONE_B.get(schedule.lower()) if isinstance(schedule, str) else None
    if found is None:
        raise ValueError(error_text(operation, "no such schedule", '"1F1B" or "GPipe"', schedule=repr(schedule)))
    return found


class Pipeline:
    """This rank's stage of a model; the batch goes through the stages in microbatches.

    The stages stand in the order of `axis`, a mesh of one axis: `mesh["pp"]`. A stage is an nn.Module, or any function
    of a tensor. What goes from stage to stage is one tensor, plain or a DTensor on other axes of the root mesh. Every
    rank of the axis makes the same calls; where a stage or the loss raises on a rank, the others fail with its message.

    `schedule` is "1F1B" (a backward as soon as it can run: fewer activations alive) or "GPipe" (all forwards, then all
    backwards).

    >>> import torch, sherd
    >>> def train(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (2,), mesh_dim_names=("pp",))
    ...     stage = torch.nn.Linear(4, 4, bias=False)
    ...     torch.nn.init.eye_(stage.weight)
    ...     pipeline = sherd.Pipeline(stage, mesh["pp"], microbatches=2)
    ...     x = torch.ones(8, 4) if pipeline.is_first else None
    ...     y = torch.zeros(8, 4) if pipeline.is_last else None
    ...     loss = pipeline.step(x, y, torch.nn.functional.mse_loss)
    ...     return loss.item(), round(stage.weight.grad.sum().item(), 4)
    >>> sherd.spawn(2, train)
    [(1.0, 8.0), (1.0, 8.0)]
    """

    def __init__(
        self, stage: Stage, axis: _C.DeviceMesh | None = None, *, schedule: str = "1F1B", microbatches: int = 1
    ) -> None:
        def run(input: torch.Tensor) -> torch.Tensor:
            return _checked("stage", stage(input))

        one_f_one_b = _is_one_f_one_b("Pipeline", schedule)
        self._pipeline = _C.Pipeline(run, mesh_or_current("Pipeline", axis), one_f_one_b, microbatches)

    def step(self, input: torch.Tensor | None, target: torch.Tensor | None, loss: Loss) -> torch.Tensor:
        """Forward and backward of a batch; gradients are added to those that the parameters have.

        `input` counts on the first rank and `target` on the last; elsewhere they may be None. Both are cut along dim 0,
        of a DTensor each rank's part. `loss(output, target)` is the mean over a microbatch. Returns the mean loss, on
        every rank, without gradient.
        """
        return self._pipeline.step(input, target, lambda output, wanted: _checked("loss", loss(output, wanted)))

    def forward(self, input: torch.Tensor | None) -> torch.Tensor | None:
        """The output, without gradient, on the last rank; None on the others."""
        return self._pipeline.forward(input)

    __call__ = forward

    @property
    def stage(self) -> int:
        """This rank's place on the axis."""
        return self._pipeline.stage()

    @property
    def stages(self) -> int:
        return self._pipeline.stages()

    @property
    def is_first(self) -> bool:
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        return self.stage + 1 == self.stages


def _checked(what: str, result: object) -> torch.Tensor:
    if not isinstance(result, torch.Tensor):
        raise TypeError(
            error_text("Pipeline", f"the {what} returns something else than a tensor", "return one tensor",
                       returned=type(result).__name__)
        )
    return result


def schedule_actions(schedule: str, stages: int, stage: int, microbatches: int) -> list[tuple[str, int]]:
    """What stage `stage` of `stages` does, in order: ("forward", microbatch) or ("backward", microbatch).

    >>> import sherd
    >>> sherd.schedule_actions("1F1B", 2, 1, 2)
    [('forward', 0), ('backward', 0), ('forward', 1), ('backward', 1)]
    """
    return _C.schedule_actions(_is_one_f_one_b("schedule_actions", schedule), stages, stage, microbatches)
