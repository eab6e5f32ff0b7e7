"""Lesson 10, the first half: a model is trained in Python, saved by torch.distributed.checkpoint, and trained on.

usage: lesson_10_from_python.py FOLDER
"""

import pathlib
import sys
import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict

warnings.filterwarnings("ignore")  # of saving without ranks, which is meant
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4)).double()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers that C++ makes, too."""
    x = (torch.arange(128, dtype=torch.float64) * 0.37 + step).sin().view(16, 8)
    return x, x.narrow(1, 0, 4).square()


def train(first: int, last: int) -> list[float]:
    losses = []
    for step in range(first, last):
        x, wanted = batch(step)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), wanted)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


train(0, 10)
weights, state = get_state_dict(model, optimizer)
dcp.save({"model": weights, "optim": state, "step": 10}, checkpoint_id=folder / "step-10")
(folder / "losses.txt").write_text("".join(f"{loss!r}\n" for loss in train(10, 20)))
