"""`pip install .`: builds the wheel, installs it into an empty folder, and uses what it carries.

    test_wheel.py SOURCE WORK COMPILER
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import torch

SOURCE, WORK = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
COMPILER = sys.argv[3]
SITE = WORK / "site"

PROGRAM = """
import pathlib, sys, sherd, torch
assert pathlib.Path(sherd.__file__).parent.parent == pathlib.Path(sys.argv[1]), sherd.__file__
def total(rank):
    mesh = sherd.init_device_mesh("cpu", (4,))
    return sherd.distribute_tensor(torch.ones(10, 3), mesh, [sherd.Shard(0)]).sum().item()
assert sherd.spawn(4, total) == [30.0] * 4
print(sherd.cmake_prefix_path)
"""


def run(*command: object, **environment: str) -> str:
    words = [str(word) for word in command]
    print("+", *words, flush=True)
    outer = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
    return subprocess.run(words, env={**outer, **environment}, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    # Without isolation only so that nothing is downloaded here; the build itself is what a user's pip runs, but for the
    # flags: with those of the preset dev, and the compiler under the same name, a compiler cache has the objects already.
    run(*pip, "wheel", "--no-build-isolation", "--no-deps", "-w", WORK, SOURCE,
        "--config-settings=build-dir=" + str(WORK / "build"),
        "--config-settings=cmake.build-type=RelWithDebInfo",
        "--config-settings=cmake.define.CMAKE_CXX_COMPILER=" + COMPILER,
        "--config-settings=cmake.define.CMAKE_CXX_FLAGS_RELWITHDEBINFO=-O2 -g1")
    (wheel,) = WORK.glob("sherd-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert not any("torch" in name and name.endswith(".so") for name in names), "libtorch must not be in the wheel"
    for part in ("lib/libsherd.so", "include/sherd/sherd.h", "bin/sherd", "lib/cmake/sherd/sherdConfig.cmake",
                 "_C.pyi", "py.typed"):
        assert f"sherd/{part}" in names, f"{part} is missing among {names}"
    print(f"{wheel.name}: {wheel.stat().st_size / 2**20:.1f} MiB")

    run(*pip, "install", "--no-deps", "--target", SITE, wheel)
    torch_site = pathlib.Path(torch.__file__).parent.parent
    prefix = run(sys.executable, "-c", PROGRAM, SITE, PYTHONPATH=f"{SITE}:{torch_site}").strip()
    assert "sherd" in run(sys.executable, SITE / "bin" / "sherd", "--version", PYTHONPATH=str(SITE))

    build = WORK / "consume"
    run("cmake", "-G", "Ninja", "-S", SOURCE / "tests" / "consume", "-B", build, "-DCOMPONENT=sherd",
        f"-DCMAKE_PREFIX_PATH={prefix}", f"-DTorch_DIR={torch.utils.cmake_prefix_path}/Torch",
        "-DTORCH_CUDA_ARCH_LIST=9.0")
    run("cmake", "--build", build)
    run(build / "consume")
    shutil.rmtree(WORK)


if __name__ == "__main__":
    main()
