"""The form of a row in dispatch.json and python.json."""


def make_row(case, ours, peer, instructions):
    """`ours`: nanoseconds of the local and of the distributed call; `peer`: the same of torch's DTensor, by name."""
    local, sherd = ours
    python_local, python = peer["local_ns"], peer["distributed_ns"]
    return {
        "case": case,
        "local_ns": round(local, 1),
        "sherd_ns": round(sherd, 1),
        "python_local_ns": round(python_local, 1),
        "python_ns": round(python, 1),
        "extra_ratio": round((sherd - local) / (python - python_local), 4),
        "extra_instructions": instructions,
    }
