"""Checkpoints with the zstd extension: what Python compressed, sherd reads; what sherd compressed, Python loads.

usage: test_transforms.py PROBE    (build/tests/format_probe)
"""

import io
import pathlib
import pickle
import sys
import tempfile

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._extension import ZStandard

from probe import Probe


def saved(value):
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()


def main(program):
    probe = Probe(program)
    state = {"w": torch.arange(10000.0), "step": 17}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        dcp.save(state, storage_writer=dcp.FileSystemWriter(folder, _extensions=[ZStandard()]), no_dist=True)
        metadata = pickle.loads((folder / ".metadata").read_bytes())
        file = (folder / "__0_0.distcp").read_bytes()
        written = b""
        for index, info in metadata.storage_data.items():
            (folder / "item").write_bytes(file[info.offset : info.offset + info.length])
            probe("unpack", ",".join(info.transform_descriptors), folder / "item", folder / "plain")
            plain = (folder / "plain").read_bytes()
            assert plain == saved(state[index.fqn]), index

            probe("pack", ",".join(info.transform_descriptors), folder / "plain", folder / "item")
            packed = (folder / "item").read_bytes()
            assert len(packed) < len(plain)
            info.offset, info.length = len(written), len(packed)
            written += packed
        (folder / "__0_0.distcp").write_bytes(written)
        (folder / ".metadata").write_bytes(pickle.dumps(metadata))
        probe("metadata", folder / ".metadata", folder / ".metadata")

        blank = {"w": torch.zeros(10000), "step": 0}
        dcp.load(blank, checkpoint_id=folder, no_dist=True)
        assert torch.equal(blank["w"], state["w"]) and blank["step"] == 17
    print("compressed items are the same")


if __name__ == "__main__":
    main(*sys.argv[1:])
