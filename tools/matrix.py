"""Runs the test suite on one wheel under every Python and torch it is meant for.

    python tools/matrix.py WHEEL [--only py3.10] [-- pytest arguments]
    python tools/matrix.py --source [--only py3.10]     build from source in each, then test that
    python tools/matrix.py WHEEL --here --name h200     this interpreter and its torch, nothing made

Each combination gets an environment of its own, kept in build/matrix/ for the next time. The tests
run from a copy outside the checkout, so that only the installed package can be imported. The table
goes to the screen and to benchmarks/results/matrix/NAME.{csv,md}.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "matrix"
ENVIRONMENTS = Path(os.environ.get("CONVT2D_MATRIX", ROOT / "build" / "matrix"))

# (Python, torch requirement). 2.13.0 is found as a CPU-only build where the index has one for
# Python 3.11; "torch" is the newest release.
COMBINATIONS = [
    ("3.10", "torch==2.10.0"),
    ("3.12", "torch==2.11.0"),
    ("3.11", "torch==2.13.0"),
    ("3.11", "torch==2.14.1"),
    ("3.13", "torch"),
]
COLUMNS = ["python", "torch", "cuda", "gpu", "passed", "failed", "skipped", "seconds", "verdict"]

DESCRIBE = """
import torch, convt2d_ext
print(torch.__version__)
print(torch.version.cuda or "CPU-only")
print(torch.cuda.get_device_name() if torch.cuda.is_available() else "none")
print(convt2d_ext.__file__)
"""


def find_python(version: str) -> str | None:
    """An interpreter of that version that really starts, also one that pyenv keeps off PATH."""
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for path in [shutil.which(f"python{version}"), *map(str, kept)]:
        if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            return path
    return None


def environment(version: str, requirement: str) -> Path:
    """The Python of a virtual environment with that torch; made if it is not there yet."""
    folder = ENVIRONMENTS / f"py{version}-{requirement.replace('==', '')}"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        base = find_python(version)
        if base is None:
            raise RuntimeError(f"no Python {version} on this machine")
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([base, "-m", "venv", str(folder)], check=True)
        wanted = [requirement, "ninja", "setuptools>=77", "-r", "tools/requirements-test.txt"]
        install = [str(python), "-m", "pip", "install", "--quiet", *wanted]
        subprocess.run(install, check=True, cwd=ROOT)
        (folder / "ready").touch()
    return python


def pip(python: Path, *arguments: str) -> None:
    offline = ["--quiet", "--no-deps", "--no-index"]
    subprocess.run([str(python), "-m", "pip", *arguments, *offline], check=True, cwd=ROOT)


def build(python: Path, folder: Path) -> Path:
    """A wheel compiled against that environment's own torch headers."""
    for stale in (*ROOT.glob("build/lib*"), *ROOT.glob("build/bdist*")):
        shutil.rmtree(stale)  # setuptools would put another build's leftovers into this wheel
    pip(python, "wheel", "--no-build-isolation", "--wheel-dir", str(folder), ".")
    return next(folder.glob("*.whl"))


def test(python: Path, scratch: Path, site: Path | None, arguments: list[str]) -> dict[str, object]:
    """One row of the table: what was really imported, and how the tests went."""
    tests = scratch / "tests"
    shutil.copytree(ROOT / "tests", tests, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", scratch)  # pytest's settings
    variables = {**os.environ, **({"PYTHONPATH": str(site)} if site else {})}

    describe = subprocess.run(
        [str(python), "-c", DESCRIBE], cwd=tests, env=variables, capture_output=True, text=True
    )
    if describe.returncode != 0:
        return {"verdict": f"import fails: {describe.stderr.strip().splitlines()[-1]}"}
    torch, cuda, gpu, file = describe.stdout.strip().splitlines()[-4:]
    if Path(file).is_relative_to(ROOT) and ENVIRONMENTS not in Path(file).parents:
        return {"verdict": f"imported the sources, {file}"}

    report = scratch / "report.xml"
    start = time.monotonic()
    command = [str(python), "-m", "pytest", "-q", f"--junitxml={report}", *arguments]
    status = subprocess.run(command, cwd=tests, env=variables).returncode
    seconds = time.monotonic() - start
    counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    if report.exists():
        suite = next(ElementTree.parse(report).iter("testsuite"))
        counts = {name: int(suite.get(name, 0)) for name in counts}
    failed = counts["failures"] + counts["errors"]
    return {
        "torch": torch,
        "cuda": cuda,
        "gpu": gpu,
        "passed": counts["tests"] - failed - counts["skipped"],
        "failed": failed,
        "skipped": counts["skipped"],
        "seconds": round(seconds),
        "verdict": "pass" if status == 0 else f"pytest's exit status {status}",
    }


def write_table(name: str, what: str, table: list[dict[str, object]]) -> str:
    RESULTS.mkdir(parents=True, exist_ok=True)
    with open(RESULTS / f"{name}.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(table)
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + " --- |" * len(COLUMNS)]
    lines += [f"| {' | '.join(str(row.get(c, '')) for c in COLUMNS)} |" for row in table]
    text = "\n".join([what, "", *lines, ""])
    (RESULTS / f"{name}.md").write_text(text)
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path, nargs="?", help="the one file to test")
    parser.add_argument("--source", action="store_true", help="build in each environment instead")
    parser.add_argument("--here", action="store_true", help="this interpreter only, as it is")
    parser.add_argument("--only", default="", help="combinations whose name has this in it")
    parser.add_argument("--name", default="cpu", help="name of the result files")
    own = sys.argv[1:]
    arguments = own[own.index("--") + 1 :] if "--" in own else []
    options = parser.parse_args(own[: own.index("--")] if "--" in own else own)
    if (options.wheel is None) != options.source:
        parser.error("give either a wheel or --source")

    revision = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    what = f"built from source in each environment, commit {revision or 'unknown'}"
    if options.wheel:
        digest = hashlib.sha256(options.wheel.read_bytes()).hexdigest()
        what = f"{options.wheel.name}, sha256 {digest}"
    what += f", {time.strftime('%Y-%m-%d')}, on {platform.platform()}"

    version = platform.python_version()
    combinations = [(version, "torch")] if options.here else COMBINATIONS
    table: list[dict[str, object]] = []
    for python_version, requirement in combinations:
        label = f"py{python_version}-{requirement.replace('==', '')}"
        if options.only not in label:
            continue
        print(f"== {label}", flush=True)
        row: dict[str, object] = {"python": python_version, "torch": requirement}
        with tempfile.TemporaryDirectory(prefix="convt2d-matrix-") as folder:
            scratch = Path(folder)
            try:
                if options.here:
                    python, site = Path(sys.executable), scratch / "site"
                    target = ["--target", str(site)]
                else:
                    python, site = environment(python_version, requirement), None
                    target = ["--force-reinstall"]
                wheel = options.wheel or build(python, scratch / "wheel")
                pip(python, "install", *target, str(wheel.resolve()))
                row |= test(python, scratch, site, arguments)
            except (RuntimeError, subprocess.CalledProcessError) as problem:
                row["verdict"] = str(problem)
        table.append(row)
    print(write_table(options.name, what, table))
    return int(any(row["verdict"] != "pass" for row in table) or not table)


if __name__ == "__main__":
    sys.exit(main())
