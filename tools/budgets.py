"""Build time, wheel size and kernel count against their limits; exit status 1 if one is exceeded.

    python tools/budgets.py [WHEEL]        default: the wheel in dist/, else the one in build/wheel/

Needs no CUDA tool: kernels are counted by the names under which host code registers them, GPU
targets by the headers of the embedded fat binaries. The clock on the wall also runs for others on
the machine, so the processors' time counts: of the latest build from nothing setup.py leaves it
beside the objects; an object over its limit in ninja's log is compiled once more.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# The budgets.
# One GPU target, from nothing, the processors' time on CORES cores. CI's machine took 19.3 by the
# wall before spool, plait's teams and broad tiles of reed came.
BUILD_MINUTES = 25.0
CORES = 2
# One object, one GPU target; what takes longer is split. hopper_gather_bf16 takes 90 to
# 191 of a core, by how much of the machine others use.
OBJECT_SECONDS = 240.0
# A wheel, for each of its GPU targets: a release may take 39. sm_90a has twelve families of its own
# and took 6.9 before quilt, heddle, spread and strand came, 8.73 with them, 9.15 with spool and
# broad tiles of reed, 9.5 with mma of depthwise and pleat, 9.73 with crimp, twill and pleat of
# strips and flat rows, 9.93 with braid (24 kernels) and crimp of words, 10.13 with purl,
# treadle of 16 bits and fold's crossed tiles, 10.34 with tuft and gauze, and 10.39 with ticking
# and dimity for heddle.
# A wheel for sm_80 alone took 3.1 before mite and reed, which it has too.
TARGET_MIB = {"sm_90": 10.5}
OTHER_TARGET_MIB = 4.2
# Template instances of a family, set somewhat above what there is, so that a new row is free and a
# new template parameter is not.
KERNELS = {
    "direct": 64,
    "hopper": 166,  # 32 without the copy engine; grad_weight, strict fp32, twins, brought words
    "crimp": 21,  # eight widths of strips, two types; five of columns of words
    "pleat": 34,  # eight widths of rows, strips, eight tiles of flat rows, two types
    "twill": 8,  # four tiles, two types
    "gauze": 17,  # two kernels by three numbers of channels out, of two types; five of TF32
    "fold": 29,  # six each of 16 bits, words, planes of no vectors; ten flat, one crossed
    "slide": 24,  # seven tiles, three of turned rows, two of strided ones, of two types
    "scroll": 43,  # eight tiles of pixels and six of planes, of three types; another of words
    "narrow": 32,  # four of four types; three ribbons of three, two of strict fp32; grad_weight
    "spread": 24,  # six of three types, two of three for grad_input
    "tuft": 9,  # two widths of two types, twice in planes of odd sizes; one of words
    "purl": 15,  # three widths, twice in 16 bits of two types
    "plait": 2,  # two types; kernel rows are branches of one
    "fan": 10,
    "loom": 30,  # eight of three types, five of strict fp32
    "igemm": 64,
    "rows": 8,
    "comb": 19,  # four of two types, three of TF32, two of strict fp32; two of lines of three types
    "plain": 12,  # three passes of two tiles, in two types
    "strand": 27,  # four of three types, three strict; four windows, two dense rows, six spans
    "spool": 14,  # turning, adding up in two types, turning back; reels of five tiles in two types
    "fringe": 14,  # four of three types, one of 16 bits
    "quilt": 16,  # four of three types, two of strict fp32
    "braid": 24,  # five tiles of taps down a column, three of taps along a row, of three types
    "mite": 56,  # twelve forms and six of grad_weight, of three types
    "ticking": 10,  # four of two types, one of TF32 and of strict fp32
    "dimity": 36,  # six tiles and three of channels last, of four types
    "skein": 9,  # three tiles, of three types
    "hank": 6,  # two tiles of three types
    "shuttle": 6,  # three tiles, of two types
    "treadle": 12,  # two of TF32 in two layouts, two of strict fp32, two of two 16-bit types
    "reed": 24,  # two of three types, one strict; two held of four, one wide; six lapped, two broad
    "depthwise": 204,  # y, or dY, in registers: 45 in NCHW, 24 in NHWC; four of mma
    "weight": 4,  # weight_sum.cu
    "bias": 12,  # planes, columns, numbers, of four types
}
RELEASE_TARGETS = {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120", "compute_120"}

FATBIN_MAGIC = struct.pack("<IHH", 0xBA55ED50, 1, 16)  # and version 1, header of 16 bytes
PTX = 1


def gpu_targets(library: bytes) -> set[str]:
    """sm_XX for machine code and compute_XX for PTX, from the entries of every fat binary."""
    targets = set()
    for match in re.finditer(re.escape(FATBIN_MAGIC), library):
        entry = match.start() + 16
        (size,) = struct.unpack_from("<Q", library, match.start() + 8)
        end = entry + size
        while entry < end:
            kind, _, header, payload = struct.unpack_from("<HHIQ", library, entry)
            (number,) = struct.unpack_from("<I", library, entry + 28)
            targets.add(f"{'compute' if kind == PTX else 'sm'}_{number}")
            entry += header + payload
    return targets


def kernels(library: bytes) -> Counter[str]:
    """Kernel instances of each family: distinct registered names (the symbol table is stripped)."""
    # A name may follow a string that the compiler laid down without its end.
    names = set(re.findall(rb"_ZN7convt2d\w*convt2d_[a-z0-9]+_\w*kernel\w*(?=\0)", library))
    families = (re.search(rb"convt2d_([a-z0-9]+)_", name) for name in names)
    return Counter(family[1].decode() for family in families if family)


def object_seconds() -> tuple[Path, dict[str, float]]:
    """The folder of the latest build, and what each of its objects took to compile."""
    logs = sorted(ROOT.glob("build/objects/*/.ninja_log"), key=lambda log: log.stat().st_mtime)
    if not logs:
        return Path("no build"), {}
    fields = [line.split("\t") for line in logs[-1].read_text().splitlines()[1:]]
    seconds = {path: (int(end) - int(start)) / 1000 for start, end, _, path, _ in fields}
    return logs[-1].parent, seconds


def processor_seconds(folder: Path, path: str) -> float:
    """What compiling that object takes of one core, whatever else the machine does."""
    places = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    ninja = shutil.which("ninja", path=places) or "ninja"
    ask = [ninja, "-t", "commands", "-s", path]
    command = subprocess.run(ask, cwd=folder, check=True, capture_output=True, text=True).stdout
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory(prefix="convt2d-budgets-") as scratch:
        command = command.replace(path, f"{scratch}/{Path(path).name}")
        subprocess.run(command, cwd=folder, check=True, shell=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def rows(wheel: Path) -> Iterator[tuple[str, float, float]]:
    """(what, value, limit)"""
    with zipfile.ZipFile(wheel) as archive:
        library = archive.read("convt2d_ext/_C.abi3.so")
    targets = gpu_targets(library)
    size = wheel.stat().st_size / 2**20
    room = sum(TARGET_MIB.get(target, OTHER_TARGET_MIB) for target in targets or {"none"})
    yield f"wheel, MiB ({' '.join(sorted(targets)) or 'no GPU target'})", size, room
    if "manylinux" in wheel.name:
        yield "release targets missing", len(RELEASE_TARGETS - targets), 0
    for family, count in sorted(kernels(library).items()):
        yield f"kernels of {family}", count, KERNELS.get(family, 0)

    folder, seconds = object_seconds()
    if seconds and folder.name.count("_") == 0:  # several targets are joined by underscores
        if (used := folder / "processor_seconds").exists():
            build = float(used.read_text()) / CORES / 60
            yield f"build, minutes of {CORES} cores ({folder.name})", build, BUILD_MINUTES
        for path in [path for path in seconds if seconds[path] > OBJECT_SECONDS]:
            wall, seconds[path] = seconds[path], processor_seconds(folder, path)
            print(f"  {Path(path).name}: {wall:.0f} s on the wall, {seconds[path]:.0f} of one core")
        slowest = max(seconds, key=lambda path: seconds[path])
        yield f"slowest object, seconds ({Path(slowest).name})", seconds[slowest], OBJECT_SECONDS


def main() -> int:
    wheels = [Path(argument) for argument in sys.argv[1:]]
    wheels = wheels or [*ROOT.glob("dist/*.whl"), *ROOT.glob("build/wheel/*.whl")]
    if not wheels:
        raise SystemExit("budgets: no wheel in dist/ or build/wheel/")
    print(f"budgets of {wheels[0].name}")
    exceeded = 0
    for what, value, limit in rows(wheels[0]):
        over = value > limit
        exceeded += over
        print(f"  {'OVER' if over else 'ok  '} {value:8.2f} of {limit:7.2f}  {what}")
    return int(exceeded > 0)


if __name__ == "__main__":
    sys.exit(main())
