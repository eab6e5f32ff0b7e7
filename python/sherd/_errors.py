"""Errors in the one shape that sherd has: `operation: what is wrong`, facts, and a `help:` line to paste."""

from __future__ import annotations


def error_text(operation: str, problem: str, help: str, **facts: object) -> str:
    lines = [f"{operation}: {problem}"]
    lines += [f"  {name.replace('_', ' ')}: {value}" for name, value in facts.items()]
    lines.append(f"  help: {help}")
    return "\n".join(lines)
