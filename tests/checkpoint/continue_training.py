#!/usr/bin/env python3
"""A model trained in Python goes on in C++, and the reverse: one more step on either side gives the same weights.

usage: continue_training.py PROGRAM, the path of what continue_training.cpp became

Every optimizer of libtorch, in float64: the two implementations add in a different order here and there, which is all
that differs. Keys and kinds of the states are compared, too.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
import warnings
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys

PROGRAM = sys.argv.pop(1)
TOLERANCE = 1e-12

# Options of the first group and of the second; nothing that is a class's default.
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}, {"lr": 0.2, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}, {"lr": 0.02, "momentum": 0.5, "dampening": 0.25}),
    ("Adam", {"lr": 0.01, "betas": (0.8, 0.99)}, {"lr": 0.02, "weight_decay": 0.1, "eps": 1e-6}),
    ("Adam", {"lr": 0.01, "amsgrad": True}, {"lr": 0.02}),
    ("AdamW", {"lr": 0.01}, {"lr": 0.02, "weight_decay": 0.2, "amsgrad": True}),
    ("Adagrad", {"lr": 0.05, "lr_decay": 0.1}, {"lr": 0.02, "weight_decay": 0.1, "eps": 1e-8}),
    ("RMSprop", {"lr": 0.01, "alpha": 0.9}, {"lr": 0.02, "momentum": 0.5, "centered": True}),
    ("LBFGS", {"lr": 0.3, "max_iter": 4, "history_size": 5}, {}),
    ("LBFGS", {"lr": 1.0, "max_iter": 3, "line_search_fn": "strong_wolfe"}, {}),
]

Case = tuple[str, dict[str, Any], dict[str, Any]]


def make(case: Case) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)
    ).double()
    name, first, second = case
    p = list(model.parameters())
    if name == "LBFGS":
        return model, torch.optim.LBFGS(p, **first)
    groups: list[dict[str, Any]] = [{"params": p[:4], **first}, {"params": p[4:], **second}]
    return model, getattr(torch.optim, name)(groups)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    x = torch.arange(64, dtype=torch.float64).cos().view(16, 4)
    y = torch.arange(32, dtype=torch.float64).sin().view(16, 2)

    def loss_of_step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(loss_of_step)  # type: ignore[arg-type]


def state_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer, form: str) -> dict[str, Any]:
    if form == "numbers":
        optim = optimizer.state_dict()
    else:
        optim = get_optimizer_state_dict(
            model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=form == "flat")
        )
    return {"model": model.state_dict(), "optim": optim}


def run_cpp(steps: int, cases: list[Case], states: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The states that `states` become after some steps in C++; PyTorch writes and reads the checkpoints."""
    with tempfile.TemporaryDirectory() as folder:
        command: list[str] = [PROGRAM]
        for i, (case, state) in enumerate(zip(cases, states)):
            dcp.save(state, checkpoint_id=f"{folder}/{i}-before", no_dist=True)
            command += [case[0], str(steps), f"{folder}/{i}-before", f"{folder}/{i}-after"]
        subprocess.run(command, check=True, timeout=300)
        return [_load_state_dict_from_keys(checkpoint_id=f"{folder}/{i}-after") for i in range(len(states))]


def with_numbers(optim: dict[str, Any], model: torch.nn.Module) -> dict[str, Any]:
    """torch.optim's own form: Python's set_optimizer_state_dict cannot take an LBFGS before its first step."""
    numbers = {name: i for i, (name, _) in enumerate(model.named_parameters())}
    return {
        "state": {numbers[name]: state for name, state in optim["state"].items()},
        "param_groups": [{**g, "params": [numbers[name] for name in g["params"]]} for g in optim["param_groups"]],
    }


class ContinueTraining(unittest.TestCase):
    def expect_same(self, a: Any, b: Any, where: str = "") -> None:
        """The same keys, kinds and values; numbers may be whole in Python: weight_decay=0."""
        if isinstance(a, dict):
            # In groups Python has first what the group was given.
            self.assertEqual(sorted(a), sorted(b), where)
            for key in a:
                self.expect_same(a[key], b[key], f"{where}.{key}")
        elif isinstance(a, (list, tuple)):
            self.assertIs(type(a), type(b), where)
            self.assertEqual(len(a), len(b), where)
            for i, (x, y) in enumerate(zip(a, b)):
                self.expect_same(x, y, f"{where}[{i}]")
        elif isinstance(a, torch.Tensor):
            self.assertEqual((a.dtype, a.shape), (b.dtype, b.shape), where)
            self.assertTrue(torch.allclose(a, b, TOLERANCE, TOLERANCE), f"{where}: {a} and {b}")
        elif isinstance(a, (int, float)) and not isinstance(a, bool):
            self.assertIsInstance(b, (int, float), where)
            self.assertNotIsInstance(b, bool, where)
            self.assertAlmostEqual(a, b, delta=TOLERANCE, msg=where)
        else:
            self.assertEqual(a, b, where)

    def test_cpp_goes_on_from_python(self) -> None:
        # Python has no flat form of lists.
        jobs = [(c, form) for c in CASES for form in ["names", "numbers", "flat"] if (c[0], form) != ("LBFGS", "flat")]
        trained = [make(case) for case, _ in jobs]
        for model, optimizer in trained:
            train(model, optimizer, 2)
        states = [state_of(*both, form) for both, (_, form) in zip(trained, jobs)]
        results = run_cpp(1, [case for case, _ in jobs], states)
        for job, (model, optimizer), after in zip(jobs, trained, results):
            with self.subTest(job=job):
                train(model, optimizer, 1)
                self.expect_same(state_of(model, optimizer, "names"), after)

    def test_python_goes_on_from_cpp(self) -> None:
        trained = [make(case) for case in CASES]
        twos = run_cpp(2, CASES, [state_of(*both, "numbers") for both in trained])
        threes = run_cpp(1, CASES, twos)
        for case, (model, optimizer), two, three in zip(CASES, trained, twos, threes):
            with self.subTest(case=case):
                other, continued = make(case)
                for group in continued.param_groups:
                    group["lr"] = 7
                other.load_state_dict(two["model"])
                if case[0] == "LBFGS":
                    continued.load_state_dict(with_numbers(two["optim"], other))
                else:
                    # Python's strictness asks SGD without momentum for a state.
                    options = StateDictOptions(strict=case[0] != "SGD")
                    set_optimizer_state_dict(other, continued, two["optim"], options=options)
                train(other, continued, 1)
                self.expect_same(state_of(other, continued, "names"), three)
                train(model, optimizer, 3)  # all three steps in Python
                self.expect_same(state_of(model, optimizer, "names"), three)

    def test_random_numbers_go_on_in_cpp_and_back(self) -> None:
        torch.manual_seed(11)
        torch.rand(3)
        state = {"rng": torch.get_rng_state()}
        drawn = torch.rand(8)
        (after,) = run_cpp(0, [("generator", {}, {})], [state])
        self.assertTrue(after["drawn"].equal(drawn))
        expected = torch.rand(8)
        torch.manual_seed(0)
        torch.set_rng_state(after["rng"])
        self.assertTrue(torch.rand(8).equal(expected))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    unittest.main()
