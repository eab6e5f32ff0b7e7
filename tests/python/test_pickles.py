"""Pickles of random values in every protocol: read and written again by sherd, Python reads the same value.

usage: test_pickles.py PROBE    (build/tests/format_probe)
"""

import collections
import decimal
import pathlib
import pickle
import random
import sys
import tempfile

from probe import Probe

CASES = 300


def random_text(rng):
    alphabet = "ab.\\'\"\n\tßλ語😀\x00\x7f\xff"
    return "".join(rng.choice(alphabet) for _ in range(rng.choice([0, 1, 3, 10, 300])))


def random_leaf(rng, hashable=False):
    return rng.choice(
        [
            lambda: None,
            lambda: rng.random() < 0.5,
            lambda: rng.choice([0, 1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, -1, -128, -(2**31), 2**63, -(2**63), 2**100]),
            lambda: rng.randint(-(2**70), 2**70),
            lambda: rng.choice([0.0, -0.0, 1.5, 1e300, float("inf"), -float("inf"), 5e-324, rng.random()]),
            lambda: random_text(rng),
            lambda: rng.randbytes(rng.choice([0, 1, 300])),
            lambda: complex(rng.random(), -1),
            lambda: bytearray(rng.randbytes(5)) if not hashable else b"key",
            lambda: int,
            lambda: pathlib.PurePosixPath("a/b"),
            lambda: decimal.Decimal("1.5"),
        ]
    )()


def random_value(rng, depth=0):
    if depth > 4 or rng.random() < 0.3:
        return random_leaf(rng)
    items = [random_value(rng, depth + 1) for _ in range(rng.choice([0, 1, 2, 3, 4, 6]))]
    keys = [random_leaf(rng, hashable=True) for _ in items]
    shared = random_value(rng, depth + 1)
    return rng.choice(
        [
            lambda: items,
            lambda: tuple(items),
            lambda: dict(zip(keys, items)),
            lambda: collections.OrderedDict(zip(keys, items)),
            lambda: collections.Counter(keys),
            lambda: collections.deque(items),
            lambda: set(keys),
            lambda: frozenset(keys),
            lambda: [shared, shared, {"again": shared}],
            lambda: list(range(rng.choice([999, 1000, 1001, 2500]))),
        ]
    )()


def same(a, b):
    """Equal, of equal kinds all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple, collections.deque)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a.items(), b.items()))
    return a == b


def main(program):
    probe = Probe(program)
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        there, back = pathlib.Path(folder, "there"), pathlib.Path(folder, "back")
        for case in range(CASES):
            value = random_value(rng)
            for protocol in range(6):
                there.write_bytes(pickle.dumps(value, protocol))
                probe("pickle", there, back)
                read = pickle.loads(back.read_bytes())
                assert same(value, read), (case, protocol, value, read)

        one = [1]
        there.write_bytes(pickle.dumps((one, {"k": one})))
        probe("pickle", there, back)
        read = pickle.loads(back.read_bytes())
        assert read[0] is read[1]["k"], "one object became two"
    print(f"{CASES} values in 6 protocols")


if __name__ == "__main__":
    main(*sys.argv[1:])
