"""torch.save files: sherd writes the same bytes, and reads and writes back whole state dicts.

usage: test_archives.py PROBE    (build/tests/format_probe)
"""

import collections
import io
import pathlib
import sys
import tempfile
import zlib

import torch

from probe import Probe, Refused

DTYPES = (
    "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool complex32 complex64 complex128 "
    "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2"
).split()
SHAPES = [(), (0,), (1,), (2, 3), (300,), (70000, 1), (3, 0, 5), (2, 3, 4), (2, 3, 4, 5), (1, 2, 1, 3, 2), (256, 257)]


def saved(value):
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()


def dims(numbers):
    return "[" + ", ".join(map(str, numbers)) + "]"


def raw(tensor):
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).numpy().tobytes()


def random_tensor(shape, dtype):
    size = torch.empty((), dtype=dtype).itemsize
    count = torch.Size(shape).numel()
    values = torch.randint(0, 2 if dtype == torch.bool else 256, (count * size,), dtype=torch.uint8)
    return values.view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)


class Tensors:
    """One tensor per archive."""

    def __init__(self, probe, folder):
        self.probe, self.data, self.out = probe, folder / "data", folder / "out"

    def check(self, tensor):
        self.data.write_bytes(raw(tensor))
        dtype = str(tensor.dtype).removeprefix("torch.")
        self.probe("item", dtype, dims(tensor.shape), dims(tensor.stride()), self.data, self.out)
        assert self.out.read_bytes() == saved(tensor), (tensor.dtype, tensor.shape, tensor.stride())

    def run(self):
        for dtype in DTYPES:
            for shape in SHAPES:
                self.check(random_tensor(shape, getattr(torch, dtype)))
        self.check(torch.randn(4, 6).t())
        self.check(torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last))


class Ends:
    """Keeps what torch.save writes at the beginning and at the end of a file that is not kept."""

    def __init__(self, count):
        self.count, self.total, self.first, self.last = count, 0, b"", b""

    def write(self, data):
        view = memoryview(data)
        self.first += bytes(view[: self.count - len(self.first)])
        self.last = (self.last + bytes(view[-self.count :]))[-self.count :]
        self.total += len(view)
        return len(view)

    def flush(self):
        pass


def crc_of_zeros(count):
    crc, block = 0, bytes(1 << 20)
    for _ in range(count >> 20):
        crc = zlib.crc32(block, crc)
    return zlib.crc32(block[: count & ((1 << 20) - 1)], crc)


def check_huge(probe, folder):
    """Where 32 bits end. The tensors' pages are never written, so that they need no memory."""
    hole = folder / "hole"
    with open(hole, "wb") as file:
        file.truncate((1 << 32) + 64)
    for count in [(1 << 32) - 1 - 704, (1 << 32) - 1, (1 << 32) + 5]:
        torch_ends = Ends(4096)
        torch.save(torch.from_file(str(hole), size=count, dtype=torch.uint8), torch_ends)
        head, total = probe("ends", "uint8", dims([count]), "[1]", crc_of_zeros(count), folder / "ends").split()
        ends = (folder / "ends").read_bytes()
        assert int(total) == torch_ends.total, count
        assert ends[: int(head)] == torch_ends.first[: int(head)], count
        assert ends[int(head) :] == torch_ends.last[int(head) - len(ends) :], count


def state_dicts():
    weight = torch.randn(4, 5)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 3)).sum().backward()
    optimizer.step()
    yield {"w": weight, "row": weight[1], "again": weight}
    yield model.state_dict()
    yield {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "names": ("a", "b"), "none": None}
    yield [torch.nn.Parameter(weight), torch.zeros(2, 3, device="meta"), torch.float8_e5m2, torch.Size([1, 2]), torch.device("cpu")]
    yield {"rng": torch.get_rng_state(), 5: torch.tensor(7), "empty": {}, "big": 2**80, "bytes": b"\x00\xff", "set": {1}}
    yield collections.OrderedDict((f"layer.{i}.weight", torch.full((2,), float(i))) for i in range(2500))
    yield 17
    yield "text"


def same(a, b):
    if isinstance(a, torch.Tensor):
        return type(a) is type(b) and a.dtype == b.dtype and a.device == b.device and a.stride() == b.stride() and (a.is_meta or torch.equal(a, b))
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a) and same(getattr(a, "_metadata", None), getattr(b, "_metadata", None))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def check_state_dicts(probe, folder):
    there, back = folder / "there", folder / "back"
    for value in state_dicts():
        there.write_bytes(saved(value))
        probe("archive", there, back)
        read = torch.load(back, weights_only=True)
        assert same(value, read), (value, read)
        assert back.read_bytes() == there.read_bytes(), "the bytes differ"

    weight = torch.randn(4, 5)
    there.write_bytes(saved({"w": weight, "row": weight[1]}))
    probe("archive", there, back)
    read = torch.load(back)
    assert read["w"].data_ptr() + 20 == read["row"].data_ptr(), "a shared storage became two"

    torch.save({"a": weight}, folder / "named.pt")  # its folder in the archive is "named"
    assert "tensor f32[4, 5]" in probe("archive", folder / "named.pt", back)

    torch.save({"a": weight}, there, _use_new_zipfile_serialization=False)
    try:
        probe("archive", there, back)
    except Refused as refusal:
        assert "torch.save of PyTorch before 1.6 wrote it" in str(refusal), refusal
    else:
        raise AssertionError("a file of the old format was read")


def main(program):
    torch.manual_seed(0)
    probe = Probe(program)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        Tensors(probe, folder).run()
        check_state_dicts(probe, folder)
        check_huge(probe, folder)
    print("archives are the same")


if __name__ == "__main__":
    main(*sys.argv[1:])
