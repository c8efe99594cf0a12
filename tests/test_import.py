"""The binary: it imports everywhere, brings nothing along, and says what is missing.

Each check runs in a process of its own, as a user's first line would.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import convt2d_ext

BINARY = Path(convt2d_ext.__file__).parent / "_C.abi3.so"


def python(code, **environment):
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout.strip()


CALL = """
import torch, convt2d_ext
x, w = torch.ones(1, 2, 3, 3), torch.ones(2, 1, 2, 2)
y = convt2d_ext.conv_transpose2d(x, w, stride=2, algorithm="direct")
assert torch.equal(y, torch.full((1, 1, 6, 6), 2.0)), y
"""


def test_without_a_gpu():
    """A CUDA build of torch on a machine whose devices are hidden, or that has none."""
    python(CALL, CUDA_VISIBLE_DEVICES="")


def test_without_compiler_or_network():
    """Nothing is compiled, started or downloaded at the user's."""
    python(
        "import sys\n"
        "def refuse(event, arguments):\n"
        "    assert event not in ('socket.connect', 'subprocess.Popen', 'os.system'), event\n"
        "import torch\n"
        "sys.addaudithook(refuse)\n" + CALL,
        PATH="",
    )


@pytest.fixture(scope="module")
def after_import():
    """What is true in a process that has done nothing but import us."""
    code = (
        "import ctypes, json, os, sys, torch\n"
        "before = set(sys.modules)\n"
        "import convt2d_ext\n"
        "new = sorted({name.split('.')[0] for name in set(sys.modules) - before})\n"
        "try:\n"
        "    library = ctypes.CDLL('libtorch_cuda.so', mode=os.RTLD_LAZY | os.RTLD_NOLOAD)\n"
        "except OSError:\n"
        "    library = None\n"
        "print(json.dumps({\n"
        "    'new': new,\n"
        "    'inductor': 'torch._inductor.compile_fx' in sys.modules,\n"
        "    'initialised': torch.cuda.is_initialized(),\n"
        "    'stream': hasattr(library, 'aoti_torch_get_current_cuda_stream'),\n"
        "}))\n"
    )
    return json.loads(python(code))


def test_import_is_light(after_import):
    """No compiler stack, no tools: what a user pays for at each start."""
    heavy = {"matplotlib", "pandas", "scipy", "pytest", "hypothesis", "onnx"}
    assert not heavy & set(after_import["new"])
    assert not after_import["inductor"]


def test_no_cuda_context_at_import(after_import):
    assert not after_import["initialised"]


def test_the_stream_symbol_is_there_iff_torch_has_cuda(after_import):
    """What csrc/torch/cuda_ops.cpp looks up: found in libtorch_cuda once torch has loaded it."""
    assert after_import["stream"] == (torch.version.cuda is not None)


def test_links_torch_cpu_alone():
    """libtorch_cuda or libcudart among the needed libraries would fail on a CPU-only torch."""
    if not shutil.which("readelf"):
        pytest.skip("readelf is not installed")
    dynamic = subprocess.run(
        ["readelf", "-d", str(BINARY)], capture_output=True, text=True, check=True
    ).stdout
    needed = [line.split("[")[1].split("]")[0] for line in dynamic.splitlines() if "NEEDED" in line]
    assert "libtorch_cpu.so" in needed
    for name in needed:
        assert not name.startswith(("libtorch_cuda", "libcud", "libc10_cuda", "libtorch_python"))
        assert not name.startswith("libpython")
    assert "RPATH" not in dynamic and "RUNPATH" not in dynamic


def test_exports_its_module_and_nothing_of_cudart():
    if not shutil.which("readelf"):
        pytest.skip("readelf is not installed")
    symbols = subprocess.run(
        ["readelf", "--dyn-syms", "-W", str(BINARY)], capture_output=True, text=True, check=True
    ).stdout
    defined = {
        line.split()[-1]
        for line in symbols.splitlines()
        if " GLOBAL " in line and " UND " not in line and "FUNC" in line
    }
    assert "PyInit__C" in defined
    assert not {name for name in defined if name.startswith(("cuda", "__cuda"))}


def test_disabled_by_the_environment():
    """Everything through ATen: bit for bit its results, and explain() says so."""
    code = (
        "import torch, torch.nn.functional as F, convt2d_ext\n"
        "x, w = torch.randn(2, 4, 9, 9), torch.randn(4, 3, 3, 3)\n"
        "y = convt2d_ext.conv_transpose2d(x, w, stride=2)\n"
        "assert torch.equal(y, F.conv_transpose2d(x, w, stride=2))\n"
        "assert 'CONVT2D_DISABLE' in str(convt2d_ext.explain(x, w, stride=2))\n"
    )
    python(code, CONVT2D_DISABLE="1")


def test_plan_log():
    """CONVT2D_LOG=plan prints one line for each distinct problem."""
    code = CALL + "convt2d_ext.conv_transpose2d(x, w, stride=2, algorithm='direct')\n"
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "CONVT2D_LOG": "plan"},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    lines = [line for line in run.stderr.splitlines() if "fwd f32" in line]
    assert len(lines) == 1 and "direct" in lines[0], run.stderr


def test_explain_names_the_path():
    x, w = torch.randn(2, 4, 9, 9), torch.randn(4, 3, 3, 3)
    auto = str(convt2d_ext.explain(x, w, stride=2))
    assert "ATen" in auto or "aten" in auto, auto
    assert "direct" in str(convt2d_ext.explain(x, w, stride=2, algorithm="direct"))


def test_version():
    from importlib import metadata

    try:
        installed = metadata.version("convt2d_ext")
    except metadata.PackageNotFoundError:
        pytest.skip("built in place, not installed")
    assert convt2d_ext.__version__ == installed
