"""Builds convt2d_ext._C, one abi3 library on torch's stable ABI. The rest is in pyproject.toml.

CONVT2D_CUDA=auto|on|off   auto builds the CUDA room when a toolkit is found; a GPU plays no part
CUDA_HOME                  where the toolkit is, if it is in none of the usual places
TORCH_CUDA_ARCH_LIST       GPU targets; without it the release list below
CONVT2D_LINEINFO=1         source lines for profilers, registers in the log; never in a release
MAX_JOBS                   how many compilers at once
"""

import os
import resource
import shutil
import sysconfig
from pathlib import Path

import torch
from setuptools import setup
from torch.utils import cpp_extension

# Every source, room by room. A new file is one more word, a new room one more line.
ROOMS = {
    "core": "choose.cpp floor.cpp problem.cpp types.cpp",
    "cpu": "cpu_families.cpp direct_cpu.cpp",
    "torch": "choice_cache.cpp cpu_ops.cpp library.cpp overrideable.cpp plan_ops.cpp "
    "tensor_args.cpp",
}
CUDA_ROOMS = {
    "torch": "cuda_ops.cpp precision_flag.cpp",
    "cuda": "cuda_families.cpp device_query.cpp gather_axes.cpp tensor_map.cpp weight_sum.cu",
    "cuda/depthwise": "depthwise_plan.cpp depthwise_planes.cpp depthwise_pixels.cpp "
    "depthwise_lanes.cpp depthwise_lanes_forward.cu depthwise_lanes_input.cu "
    "depthwise_mma.cpp depthwise_mma_input.cu "
    "depthwise_lanes_weight.cu depthwise_walks.cpp depthwise_walks_forward.cu "
    "depthwise_walks_input.cu depthwise_walks_weight.cu "
    "depthwise_gather.cu depthwise_grad_weight.cu",
    "cuda/fold": "fold_plan.cpp fold_launch.cpp fold_kernel.cu fold_kernel_shifted.cu "
    "fold_kernel_flat.cu fold_kernel_words.cu fold_kernel_crossed.cu",
    "cuda/slide": "slide_plan.cpp slide_launch.cpp slide_kernel_f16.cu slide_kernel_bf16.cu "
    "slide_turned.cu slide_strided_plan.cpp slide_strided.cu slide_rows_plan.cpp",
    "cuda/scroll": "scroll_plan.cpp scroll_planes_plan.cpp scroll_launch.cpp scroll_f16.cu "
    "scroll_bf16.cu scroll_tf32.cu scroll_planes_f16.cu scroll_planes_bf16.cu "
    "scroll_planes_tf32.cu",
    "cuda/plait": "plait_plan.cpp plait_shape.cpp plait_launch.cpp plait_kernel.cu",
    "cuda/comb": "comb_plan.cpp comb_lines_plan.cpp comb_launch.cpp comb_f16.cu comb_bf16.cu "
    "comb_tf32.cu comb_f32x3.cu",
    "cuda/twill": "twill_plan.cpp twill_launch.cpp twill_f16.cu twill_bf16.cu",
    "cuda/crimp": "crimp_plan.cpp crimp_launch.cpp crimp_f16.cu crimp_bf16.cu crimp_tf32.cu",
    "cuda/tuft": "tuft_plan.cpp tuft_launch.cpp tuft_f16.cu tuft_bf16.cu tuft_tf32.cu",
    "cuda/gauze": "gauze_plan.cpp gauze_launch.cpp gauze_f16.cu gauze_bf16.cu gauze_tf32.cu",
    "cuda/purl": "purl_plan.cpp purl_launch.cpp purl_f16.cu purl_bf16.cu purl_tf32.cu",
    "cuda/pleat": "pleat_plan.cpp pleat_launch.cpp pleat_f16.cu pleat_bf16.cu",
    "cuda/plain": "plain_plan.cpp plain_launch.cpp plain_f16.cu plain_bf16.cu",
    "cuda/spool": "spool_plan.cpp spool_launch.cpp spool_kernel.cu spool_reel.cu",
    "cuda/fringe": "fringe_plan.cpp fringe_launch.cpp fringe_kernel.cu",
    "cuda/quilt": "quilt_plan.cpp quilt_launch.cpp quilt_f16.cu quilt_bf16.cu quilt_f32.cu",
    "cuda/braid": "braid_plan.cpp braid_launch.cpp braid_f16.cu braid_bf16.cu braid_f32.cu",
    "cuda/ticking": "ticking_plan.cpp ticking_launch.cpp ticking_kernel.cu",
    "cuda/dimity": "dimity_plan.cpp dimity_launch.cpp dimity_f16.cu dimity_bf16.cu dimity_tf32.cu "
    "dimity_f32x3.cu",
    "cuda/skein": "skein_plan.cpp skein_launch.cpp skein_f16.cu skein_bf16.cu skein_tf32.cu",
    "cuda/hank": "hank_plan.cpp hank_launch.cpp hank_f16.cu hank_bf16.cu hank_tf32.cu",
    "cuda/shuttle": "shuttle_plan.cpp shuttle_launch.cpp shuttle_kernel.cu",
    "cuda/treadle": "treadle_plan.cpp treadle_launch.cpp treadle_f32.cu treadle_halves.cu",
    "cuda/reed": "reed_plan.cpp reed_held_plan.cpp reed_lapped_plan.cpp reed_broad_plan.cpp "
    "reed_launch.cpp reed_f16.cu reed_bf16.cu reed_tf32.cu reed_f32x3.cu reed_wide.cu "
    "reed_lapped.cu reed_broad.cu",
    "cuda/narrow": "narrow_plan.cpp narrow_launch.cpp narrow_kernel.cu narrow_kernel_words.cu "
    "narrow_ribbon_plan.cpp narrow_ribbon.cu narrow_weight_plan.cpp narrow_weight_halves.cu "
    "narrow_weight_words.cu",
    "cuda/spread": "spread_plan.cpp spread_input_plan.cpp spread_launch.cpp spread_kernel.cu "
    "spread_kernel_words.cu spread_input.cu",
    "cuda/fan": "fan_plan.cpp fan_launch.cpp fan_kernel.cu",
    "cuda/loom": "loom_shape.cpp loom_predict.cpp loom_plan.cpp loom_maps.cpp loom_launch.cpp "
    "loom_kernel.cu loom_kernel_f16.cu loom_kernel_bf16.cu loom_kernel_strict.cu",
    "cuda/hopper": "hopper_plan.cpp hopper_predict.cpp hopper_predict_planes.cpp "
    "hopper_predict_words.cpp hopper_shape.cpp hopper_maps.cpp hopper_launch.cpp "
    "hopper_gather_f16.cu hopper_gather_bf16.cu hopper_gather_channels.cu hopper_gather_tf32.cu "
    "hopper_gather_strict.cu hopper_gather_strict_fetched.cu hopper_gather_turned.cu "
    "hopper_gather_fetched.cu hopper_gather_fetched_words.cu "
    "hopper_gather_weights.cu hopper_gather_copied.cu hopper_weight_plan.cpp "
    "hopper_weight_shape.cpp hopper_weight_launch.cpp hopper_weight.cu "
    "hopper_fetched_weight_plan.cpp hopper_fetched_weight_launch.cpp hopper_fetched_weight.cu "
    "hopper_packed_weight_plan.cpp hopper_packed_weight.cu",
    "cuda/igemm": "igemm_plan.cpp igemm_shape.cpp igemm_launch.cpp igemm_gather_f16.cu "
    "igemm_gather_bf16.cu igemm_gather_tf32.cu igemm_gather_f32x3.cu igemm_weight_plan.cpp "
    "igemm_weight_shape.cpp igemm_weight_launch.cpp igemm_weight_f16.cu igemm_weight_bf16.cu "
    "igemm_weight_tf32.cu",
    "cuda/mite": "mite_plan.cpp mite_gather_plan.cpp mite_weight_plan.cpp mite_launch.cpp "
    "mite_gather.cu mite_weight.cu",
    "cuda/rows": "rows_plan.cpp rows_kernel.cu",
    "cuda/strand": "strand_plan.cpp strand_windows_plan.cpp "
    "strand_dense_plan.cpp strand_spans_plan.cpp strand_launch.cpp "
    "strand_f16.cu strand_bf16.cu strand_tf32.cu strand_f32x3.cu strand_spans.cu",
    "cuda/direct": "direct_plan.cpp direct_gather.cu direct_grad_weight.cu",
    "cuda/grad_bias": "grad_bias_plan.cpp grad_bias_kernel.cu",
}

# 9.0a for wgmma (no other 9.x GPU exists); the PTX of the last one serves GPUs yet to come.
# 10.3 is left out: nvcc 13.0 has miscompiled for it, and the code for 10.0 runs there.
RELEASE_ARCHS = "7.5;8.0;8.6;8.9;9.0a;10.0;12.0+PTX"

ROOT = Path(__file__).parent.resolve()
# pip's ninja is there also when its environment is not activated.
os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
LIBRARY_FOLDERS = ("lib64", "lib", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu")


def toolkit_places():
    """Folders that may hold a CUDA toolkit, best first. Some only look like one."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable])
    yield from sorted(Path(sysconfig.get_path("purelib"), "nvidia").glob("cu[0-9]*"), reverse=True)
    if nvcc := shutil.which("nvcc"):
        yield from (Path(nvcc).parents[1], Path(nvcc).resolve().parents[1])
    yield Path("/usr/local/cuda")


def static_cudart(home):
    """The folder of libcudart_static.a, or None."""
    folders = [home / folder for folder in LIBRARY_FOLDERS]
    return next((folder for folder in folders if (folder / "libcudart_static.a").is_file()), None)


def find_toolkit():
    """The CUDA toolkit to build with, or None to build without the CUDA room.

    A place counts only when it is complete: nvcc on PATH may be a wrapper script with no toolkit
    around it, and torch's own CUDA packages bring headers and libraries but no compiler.
    """
    wish = os.environ.get("CONVT2D_CUDA", "auto")
    if wish not in ("auto", "on", "off"):
        raise SystemExit(f"CONVT2D_CUDA must be auto, on or off, not {wish!r}")
    if wish == "off":
        return None
    places = list(dict.fromkeys(toolkit_places()))
    for home in places:
        files = (home / "bin/nvcc", home / "include/cuda_runtime.h")
        if all(file.is_file() for file in files) and static_cudart(home):
            return home
    missing = (
        "there is no CUDA toolkit (bin/nvcc, include/cuda_runtime.h and libcudart_static.a in one "
        f"place; looked in {', '.join(map(str, places))}). Set CUDA_HOME, or install one with "
        "pip install 'cuda-toolkit[nvcc,cudart,cccl,crt,nvvm]==13.0.*'"
    )
    if wish == "on":
        raise SystemExit(f"CONVT2D_CUDA=on, but {missing}")
    print(f"convt2d_ext: the CUDA kernels are left out: {missing}")
    return None


def sources(rooms):
    return [f"csrc/{room}/{name}" for room, names in rooms.items() for name in names.split()]


def make_extension(toolkit):
    """The one extension module; with the CUDA room when there is a toolkit."""
    host = ["-fvisibility=hidden", "-fvisibility-inlines-hidden", "-g0"]
    # Build paths would end up in error messages; keep `csrc/...` and `torch/...`.
    host += [f"-ffile-prefix-map={folder}/=" for folder in (ROOT, Path(torch.__file__).parents[1])]
    common = ["-O3", "-std=c++17", "-DTORCH_STABLE_ONLY"]
    common += ["-DTORCH_TARGET_VERSION=0x020a000000000000"]  # torch 2.10, the oldest one served
    options = {
        "include_dirs": [str(ROOT / "csrc")],
        # A stray use of ATen, libtorch_cuda or libpython fails here and not at a user's.
        "extra_link_args": ["-Wl,-z,defs", "-Wl,--exclude-libs,ALL", "-Wl,--strip-all"],
        "extra_compile_args": {"cxx": common + host},
        "py_limited_api": True,
    }
    if toolkit is None:
        module = cpp_extension.CppExtension("convt2d_ext._C", sources(ROOMS), **options)
        module.libraries = ["torch_cpu"]
        return module

    nvcc = [*common, *(f"-Xcompiler={flag}" for flag in host), "--compress-mode=size"]
    # torch forbids these for its own sources; -U takes back its -D.
    forbidden = "HALF_OPERATORS HALF_CONVERSIONS HALF2_OPERATORS BFLOAT16_CONVERSIONS"
    nvcc += [f"-U__CUDA_NO_{name}__" for name in forbidden.split()]
    if os.environ.get("CONVT2D_LINEINFO") == "1":
        nvcc += ["-lineinfo", "-Xptxas=-v"]
    os.environ["TORCH_CUDA_ARCH_LIST"] = os.environ.get("TORCH_CUDA_ARCH_LIST") or RELEASE_ARCHS
    # torch guesses the toolkit differently, and a CPU-only torch not at all. Nor need the versions
    # agree: cudart is linked in, and torch is reached through its stable ABI only.
    cpp_extension.CUDA_HOME = str(toolkit)
    cpp_extension._check_cuda_version = lambda *_: None
    options["extra_compile_args"]["nvcc"] = nvcc
    options["define_macros"] = [("CONVT2D_WITH_CUDA", None)]
    every_source = sources(ROOMS) + sources(CUDA_ROOMS)
    module = cpp_extension.CUDAExtension("convt2d_ext._C", every_source, **options)
    # Not CUDAExtension's list: the same file must load where torch has no CUDA libraries.
    module.libraries = ["torch_cpu", "cudart_static", "dl", "rt", "pthread"]
    module.library_dirs.append(str(static_cudart(toolkit)))
    return module


class Build(cpp_extension.BuildExtension):
    def finalize_options(self):
        super().finalize_options()
        self.force = True  # ninja knows what is out of date, headers included
        # Objects outlive the build, an editable one too, and one set of flags spares another's.
        kernels = any(source.endswith(".cu") for source in self.extensions[0].sources)
        targets = os.environ["TORCH_CUDA_ARCH_LIST"].replace(";", "_") if kernels else "cpu"
        tag = f"py{sysconfig.get_python_version()}-torch{torch.__version__}-{targets}"
        self.build_temp = str(ROOT / "build" / "objects" / tag.replace(" ", "_"))

    def build_extensions(self):
        # Some Pythons put their own lib folder into the search path of every extension they build.
        for name in ("linker_so", "linker_so_cxx"):
            linker = getattr(self.compiler, name)
            setattr(self.compiler, name, [f for f in linker if not f.startswith("-Wl,-rpath")])
        from_nothing = not Path(self.build_temp, ".ninja_log").exists()
        before = processor_seconds()
        super().build_extensions()
        # For make emulators. (In ninja's file nvcc may stand behind ccache, which torch adds.)
        Path(self.build_temp, "toolkit").write_text(f"{TOOLKIT or ''}\n")
        if from_nothing:  # for tools/budgets.py
            used = f"{processor_seconds() - before:.0f}\n"
            Path(self.build_temp, "processor_seconds").write_text(used)


def processor_seconds() -> float:
    """What this process's children took of the processors' time."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


TOOLKIT = find_toolkit()

setup(
    ext_modules=[make_extension(TOOLKIT)],
    cmdclass={"build_ext": Build},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
