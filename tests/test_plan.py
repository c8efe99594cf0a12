"""The planner, asked about GPUs that are not here: a table pins which family must not refuse.

Needs the CUDA room to be compiled, not a GPU. Elsewhere only the CPU's planner is asked.
"""

import dataclasses
import itertools
import os
import re

import pytest
import torch
from calls import INNER
from cases import BY_NAME, CASES, Case

BOARDS = ("h200", "h100", "a100", "a10", "rtx4090", "l4", "t4", "b200", "rtx5090")
DIRECTIONS = {"forward": 0, "grad_input": 1, "grad_weight": 2}
DTYPES = {"f16": (0, 0), "bf16": (1, 0), "f32": (2, 0), "tf32": (2, 1), "f64": (3, 0)}
LAYOUTS = {"nchw": 0, "nhwc": 1, "strided": 2}
WORKSPACE = 32 << 20
REFUSALS = (RuntimeError, ValueError)  # older releases of torch know one exception for C++'s many


def cuda_families():
    try:
        return INNER.families("h200").split(",")
    except REFUSALS as error:
        assert "no CUDA kernels" in str(error) and "CONVT2D_CUDA" in str(error)
        return []


FAMILIES = cuda_families()
needs_cuda_room = pytest.mark.skipif(
    not FAMILIES and os.environ.get("REQUIRE_CUDA") != "1",
    reason="this build has no CUDA kernels (CONVT2D_CUDA=off)",
)


def explain(
    case, direction="forward", dtype="f32", layout="nchw", device="h200", family=None, bias=True
):
    sizes = [case.batch, case.in_channels, case.out_channels, case.groups]
    for axis in (0, 1):
        sizes += [
            case.size[axis],
            case.out_size[axis],
            case.kernel[axis],
            case.stride[axis],
            case.padding[axis],
            case.dilation[axis],
        ]
    algorithm = -1 if family is None else INNER.families(device).split(",").index(family)
    number, precision = DTYPES[dtype]
    # One for all tensors, or those of x, w and y.
    layouts = [LAYOUTS[each] for each in ([layout] * 3 if isinstance(layout, str) else layout)]
    return INNER.explain(
        DIRECTIONS[direction], number, precision, sizes, layouts, int(bias), device, algorithm
    )


def chosen(text):
    match = re.search(r"^(?:chosen|forced): (\S+)", text, re.MULTILINE)
    assert match, text
    return match[1]


def refusal(text, family):
    """The reason in a family's line, or None where it offers a plan."""
    match = re.search(rf"^\s+{family}\s+declined: (.*)$", text, re.MULTILINE)
    return match[1] if match else None


def check_refusals(family, *asked):
    """Each of `asked` is a call of explain and words of the reason why `family` declines it."""
    for case, direction, dtype, layout, board, words in asked:
        reason = refusal(explain(case, direction, dtype, layout, board), family)
        assert reason and words in reason, (case, reason)


def check_changes(family, case, *changes, direction="forward", dtype="f16"):
    """The same of `case` with one thing changed each time."""
    for change, words in changes:
        changed = dataclasses.replace(case, **change)
        check_refusals(family, (changed, direction, dtype, "nchw", "h200", words))


# What must be served, row by row: (family, cases, directions, dtypes, layouts, boards). A refusal
# that creeps into one of these is a regression even though another family would step in.
EVERY_CASE, EVERY_DIRECTION, EVERY_DTYPE = tuple(BY_NAME), tuple(DIRECTIONS), tuple(DTYPES)
DENSE, EVERY_LAYOUT = ("nchw", "nhwc"), tuple(LAYOUTS)
TENSOR_CORES = ("f16", "bf16", "tf32")
DEPTHWISE = tuple(
    name for name in BY_NAME if name.startswith("depthwise") and name != "depthwise_reduce_4"
)
VECTORS = tuple(  # of channels, and taps that hopper's grad_weight has a table for
    case.name
    for case in CASES
    if case.in_channels // case.groups % 8 == case.out_channels // case.groups % 8 == 0
    and case.kernel[0] * case.kernel[1] <= 128
    and max(case.stride) <= 8
)
FOLDED = tuple(  # whole vectors in a plane of x, rows that a tile holds
    case.name
    for case in CASES
    if case.kernel in ((3, 3), (4, 4))
    and case.stride == (2, 2)
    and case.dilation == (1, 1)
    and case.size[0] * case.size[1] % 8 == 0
)
SHIFTED = tuple(  # sets of planes that are whole vectors
    case.name
    for case in CASES
    if case.kernel in ((3, 3), (4, 4))
    and case.stride == (2, 2)
    and case.dilation == (1, 1)
    and case.size[0] * case.size[1] >= 8
    and case.in_channels // case.groups % 8 == 0
)
SLID = tuple(  # rows that are whole vectors, kernel rows that there is a tile for
    case.name
    for case in CASES
    if (case.kernel[1], case.stride[1]) in ((3, 1), (3, 2), (4, 2), (5, 1), (7, 1))
    and case.stride[0] <= 8
    and case.kernel[0] * case.in_channels // case.groups <= 5 * 96
    and case.dilation[1] == 1
    and case.size[1] % 8 == 0
    and (case.groups == 1 or case.in_channels // case.groups % 16 == 0)
)
FEW_COLUMNS = tuple(  # products of a pixel that a tile has, rows that are whole vectors
    case.name
    for case in CASES
    if case.groups == 1
    and case.out_channels <= 4
    and case.stride[0] * case.out_channels * case.kernel[1] <= 64
    and max(case.kernel) <= 16
    and max(case.stride) <= 8
    and case.in_channels <= 128
    and case.size[1] % 8 == 0
)
FANNED = tuple(  # columns that fill a tile, rows that are whole vectors
    case.name
    for case in CASES
    if case.kernel in ((3, 3), (4, 4))
    and case.stride in ((1, 1), (2, 2))
    and case.dilation == (1, 1)
    and case.groups == 1
    and case.in_channels % 8 == 0
    and case.in_channels >= 32
    and case.out_channels > 32
    and case.size[1] % 4 == 0
)
FLAT_ROWS = (2, 4, 6, 10, 12, 14, 18, 20, 22, 26, 28, 36, 60)  # that pleat has tiles for
PLEATED = tuple(  # whole eights of pixels of a row or plane, outputs that taps of two rows reach
    case.name
    for case in CASES
    if (case.kernel, case.stride, case.dilation) == ((4, 4), (2, 2), (1, 1))
    and max(case.padding) <= 2
    and all(op <= p for op, p in zip(case.output_padding, case.padding, strict=True))
    and (case.size[1] % 8 == 0 or case.size[1] in FLAT_ROWS)
    and case.size[0] * case.size[1] % 8 == 0
)
TWILLED = tuple(  # whole eights of pixels of a row, and of channels out; outputs that taps reach
    case.name
    for case in CASES
    if (case.kernel, case.stride, case.dilation) == ((3, 3), (2, 2), (1, 1))
    and max(case.padding) <= 1
    and all(op <= p for op, p in zip(case.output_padding, case.padding, strict=True))
    and case.size[1] % 8 == 0
    and case.out_channels // case.groups % 8 == 0
)
GAUZED = tuple(  # rows of whole sixteens and twice that; weights that fit, of words too
    case.name
    for case in CASES
    if (case.kernel, case.output_padding) in (((3, 3), (1, 1)), ((4, 4), (0, 0)))
    and (case.stride, case.padding, case.dilation) == ((2, 2), (1, 1), (1, 1))
    and case.size[1] % 16 == 0
    and case.in_channels <= 64 * case.groups
    and case.out_channels * case.kernel[0] % (8 * case.groups) == 0
)
WOVEN = tuple(  # planes and kernels that are whole vectors of 16 bits
    name
    for name in FANNED
    if BY_NAME[name].size[0] * BY_NAME[name].size[1] % 8 == 0
    and BY_NAME[name].out_channels * BY_NAME[name].kernel[0] * BY_NAME[name].kernel[1] % 8 == 0
)
LONG_SUMS = tuple(name for name in FANNED if BY_NAME[name].in_channels >= 64)
FEW_VECTORS = tuple(name for name in FEW_COLUMNS if BY_NAME[name].in_channels % 8 == 0)
ODD_ROWS = tuple(  # of x or of dY, whose planes add up to whole vectors
    case.name
    for case in CASES
    if (case.size[1] % 4 != 0 or case.out_size[1] % 4 != 0)
    and case.in_channels // case.groups % 8 == 0
    and case.out_channels // case.groups % 8 == 0
    and max(case.stride) <= 7
    and max(case.kernel) <= 8
)
WRITTEN = tuple(  # phases that the tables of rows take
    case.name
    for case in CASES
    if max(case.kernel) <= 16
    and max(case.stride) <= 16
    and case.stride[0] * case.stride[1] <= 64
    and case.in_channels // case.groups <= 64
)
WRITTEN_PIXELS = tuple(  # weights of all groups that fit in a block
    case.name
    for case in CASES
    if case.name in WRITTEN
    and case.in_channels > case.groups
    and case.kernel[0] * case.kernel[1] * case.in_channels * case.out_channels
    <= 32000 * case.groups
)
MUST_SERVE = (
    ("direct", EVERY_CASE, EVERY_DIRECTION, EVERY_DTYPE, EVERY_LAYOUT, BOARDS),
    ("depthwise", DEPTHWISE, EVERY_DIRECTION, ("f16", "bf16", "f32", "tf32"), DENSE, BOARDS),
    ("igemm", EVERY_CASE, ("forward",), TENSOR_CORES, EVERY_LAYOUT, ("h200", "h100", "b200")),
    ("hopper", EVERY_CASE, ("forward",), TENSOR_CORES, EVERY_LAYOUT, ("h200", "h100")),
    ("fold", FOLDED, ("forward",), TENSOR_CORES, ("nchw",), ("h200", "h100")),
    ("fold", SHIFTED, ("forward",), ("f16", "bf16"), ("nchw",), ("h200", "h100")),
    ("slide", SLID, ("forward",), ("f16", "bf16"), ("nchw",), ("h200", "h100")),
    ("pleat", PLEATED, ("forward",), ("f16", "bf16"), ("nchw",), ("h200", "h100")),
    ("gauze", GAUZED, ("forward",), TENSOR_CORES, ("nchw",), ("h200", "h100")),
    ("twill", TWILLED, ("forward",), ("f16", "bf16"), ("nchw",), ("h200", "h100")),
    ("narrow", FEW_COLUMNS, ("forward",), TENSOR_CORES, ("nchw",), ("h200", "h100")),
    ("narrow", FEW_VECTORS, ("forward",), TENSOR_CORES, ("nhwc",), ("h200", "h100")),
    ("fan", FANNED, ("forward",), ("tf32",), ("nchw",), ("h200", "h100")),
    ("loom", FANNED, ("forward",), ("tf32",), ("nchw",), ("h200", "h100")),
    ("loom", WOVEN, ("forward",), ("f16", "bf16"), ("nchw",), ("h200", "h100")),
    ("loom", LONG_SUMS, ("forward",), ("f32",), ("nchw",), ("h200", "h100")),
    ("rows", WRITTEN, ("forward",), ("f16", "bf16"), ("nchw",), ("h200", "h100")),
    ("rows", WRITTEN_PIXELS, ("forward",), ("f16", "bf16"), ("nhwc",), ("h200", "h100")),
    ("hopper", VECTORS, ("grad_weight",), ("f16", "bf16", "tf32"), ("nhwc",), ("h200", "h100")),
    ("hopper", ODD_ROWS, ("grad_weight",), TENSOR_CORES, ("nchw",), ("h200", "h100")),
)


@needs_cuda_room
@pytest.mark.parametrize("row", MUST_SERVE, ids=lambda row: row[0])
def test_must_not_refuse(row):
    family, *columns = row
    for name, direction, dtype, layout, board in itertools.product(*columns):
        text = explain(BY_NAME[name], direction, dtype, layout, board, family)
        assert chosen(text) == family, text


# Which family serves which regime: (layer, dtypes, directions, layouts, boards, family). Sizes of
# ordinary layers, none of them one that the planners were fitted to.
MANY = Case("many_channels", 16, 192, 96, (40, 56), (4, 4), (2, 2), (1, 1))
SAME = Case("stride_1", 8, 48, 48, (200, 300), (3, 3), (1, 1), (1, 1))
ONE_TAP = Case("one_tap", 4, 64, 128, (248, 216), (1, 1), (1, 1), (0, 0))
ROWS = Case("rows", 8, 96, 64, (200, 304), (3, 5), (1, 1), (1, 2))
LINES = Case("lines", 8, 32, 32, (256, 512), (3, 3), (1, 1), (1, 1))
BOXES = Case("k_is_s_in_small_planes", 200, 256, 256, (14, 14), (2, 2), (2, 2))
KEYPOINTS = Case("keypoints", 400, 384, 17, (14, 20), (4, 4), (2, 2), (1, 1))
SHUFFLE = Case("k_is_s", 8, 96, 48, (100, 120), (2, 2), (2, 2))
PATCHES = Case("patches_of_4", 8, 192, 192, (30, 37), (4, 4), (4, 4))
VOCODER = Case("vocoder", 12, 384, 192, (1, 40), (1, 16), (1, 8), (0, 4))
FEWER = dataclasses.replace(KEYPOINTS, name="planes_of_no_eights", size=(14, 18))
SMALLER = dataclasses.replace(KEYPOINTS, name="small_planes", batch=800, size=(14, 14))
BILINEAR = Case("depthwise", 8, 96, 96, (40, 48), (4, 4), (2, 2), (1, 1), groups=96)
FEW = Case("two_channels", 4, 2, 2, (64, 80), (4, 4), (2, 2), (1, 1))
SQUARES = Case("rows_of_32", 16, 192, 96, (24, 32), (4, 4), (2, 2), (1, 1))
DEEP = Case("deep", 12, 768, 320, (20, 24), (4, 4), (2, 2), (1, 1))
COLUMNS = Case("columns", 6, 320, 160, (10, 200), (8, 1), (4, 1), (2, 0))
GENERATOR = Case("generator", 12, 320, 160, (56, 56), (3, 3), (2, 2), (1, 1), (1, 1))
FINE = Case("few_of_x", 32, 64, 64, (32, 64), (4, 4), (2, 2), (1, 1))
POSE = Case("rows_of_6", 48, 1536, 192, (8, 6), (4, 4), (2, 2), (1, 1))
WIDE = Case("rows_of_128", 8, 320, 160, (60, 128), (4, 4), (2, 2), (1, 1))
NARROW = Case("few_to_fold", 24, 64, 64, (100, 120), (3, 3), (2, 2), (1, 1))
WINDOW = Case("window_of_7", 8, 32, 16, (240, 304), (7, 7), (1, 1), (3, 3))
DOUBLE = Case("double", 48, 64, 64, (200, 128), (4, 4), (2, 2), (1, 1), (1, 1))
LAST_UP = Case("last_up", 16, 64, 16, (120, 152), (3, 3), (2, 2), (1, 1), (1, 1))
POINTS = Case("points", 4, 96, 160, (200, 180), (1, 1), (1, 1))
HOLES = Case(
    "empty_phases", 12, 48, 96, (72, 150), (3, 5), (4, 3), (1, 2), dilation=(2, 1), groups=4
)
FEW_OF_GROUPS = Case(
    "few_of_groups", 12, 24, 48, (96, 192), (3, 5), (2, 3), (1, 2), dilation=(2, 1), groups=3
)
IMAGES = Case("from_three", 8, 3, 48, (144, 208), (5, 5), (2, 2), (2, 2))
THIN = Case("to_three", 8, 160, 3, (72, 96), (4, 4), (2, 2), (1, 1))
BLURRED = Case("to_one", 8, 48, 1, (200, 320), (7, 7), (2, 2), (3, 3))
HEADS = Case("heads", 500, 256, 256, (14, 14), (2, 2), (2, 2))
LOOSE = Case("loose_keypoints", 600, 448, 16, (14, 18), (4, 4), (2, 2), (1, 1))
# Elsewhere fp32 multiply-adds are as fast as TF32 or nearly, and `direct` may win.
DATA_CENTRE, HOPPER = ("a100", "h100", "h200", "b200"), ("h100", "h200")
NOT_HOPPER = ("a100", "b200")
REGIMES = (
    (BILINEAR, ("f16", "bf16", "f32", "tf32"), EVERY_DIRECTION, DENSE, DATA_CENTRE, "depthwise"),
    (MANY, TENSOR_CORES, ("forward",), DENSE, NOT_HOPPER, "reed"),
    (MANY, ("f16", "bf16"), ("forward",), ("nhwc",), HOPPER, "scroll"),
    (MANY, ("tf32",), ("forward",), ("nhwc",), HOPPER, "hopper"),  # weights do not fit
    (SQUARES, ("f16", "bf16"), ("forward",), ("nchw",), HOPPER, "pleat"),
    (SQUARES, ("tf32",), ("forward",), ("nchw",), HOPPER, "loom"),
    (DEEP, ("f16", "bf16"), ("forward",), ("nchw",), HOPPER, "pleat"),
    (WIDE, ("f16", "bf16"), ("forward",), ("nchw",), HOPPER, "pleat"),  # two strips
    (POSE, ("f16", "bf16"), ("forward",), ("nchw",), HOPPER, "pleat"),  # two images in a tile
    (DEEP, ("tf32",), ("forward",), ("nchw",), HOPPER, "loom"),
    (COLUMNS, TENSOR_CORES, ("forward",), ("nchw",), HOPPER, "crimp"),
    (GENERATOR, ("f16", "bf16"), ("forward",), ("nchw",), HOPPER, "twill"),
    (DEEP, ("f16", "bf16"), ("forward",), ("nhwc",), HOPPER, "hopper"),
    (DEEP, ("f32",), ("forward",), ("nchw",), HOPPER, "loom"),
    (DEEP, ("tf32",), ("forward",), ("nhwc",), HOPPER, "hopper"),
    (THIN, ("f16", "bf16"), ("forward",), ("nchw",), HOPPER, "narrow"),
    (BLURRED, ("f16", "bf16", "f32", "tf32"), ("forward",), ("nchw",), HOPPER, "narrow"),
    (NARROW, ("f32",), ("forward",), ("nchw",), HOPPER, "loom"),
    (HOLES, ("f16", "bf16"), ("forward",), ("nchw",), HOPPER, "rows"),
    (HOLES, TENSOR_CORES, ("forward",), ("nhwc",), HOPPER, "rows"),
    (IMAGES, TENSOR_CORES, ("forward",), ("nhwc",), HOPPER, "rows"),
    (FEW_OF_GROUPS, (*TENSOR_CORES, "f32"), ("grad_input",), ("nchw",), ("h200",), "ticking"),
    (FEW_OF_GROUPS, (*TENSOR_CORES, "f32"), ("grad_weight",), ("nchw",), HOPPER, "dimity"),
    (HOLES, ("tf32", "f32"), ("grad_weight",), ("nchw",), HOPPER, "dimity"),
    (HOLES, ("f16", "bf16"), ("grad_weight",), ("nchw",), ("h200",), "igemm"),
    (HOLES, ("f16", "bf16"), ("grad_weight",), ("nchw",), ("h100",), "dimity"),
    (IMAGES, TENSOR_CORES, ("grad_weight",), ("nchw",), HOPPER, "dimity"),
    (SHUFFLE, ("f32",), ("forward",), ("nchw",), HOPPER, "fold"),
    (SHUFFLE, ("tf32",), ("forward",), ("nchw",), ("h200",), "fold"),
    (POINTS, ("tf32",), ("forward",), ("nchw",), HOPPER, "fold"),
    (SAME, TENSOR_CORES, ("forward", "grad_input"), DENSE, NOT_HOPPER, "igemm"),
    (SAME, ("f32", "tf32"), ("forward",), ("nchw",), HOPPER, "loom"),
    (SAME, ("tf32",), ("grad_input",), ("nchw",), HOPPER, "loom"),
    (SAME, TENSOR_CORES, ("forward", "grad_input"), ("nhwc",), HOPPER, "scroll"),
    (WINDOW, ("tf32",), ("forward", "grad_input"), ("nchw",), HOPPER, "scroll"),
    (LAST_UP, ("f16", "bf16"), ("forward",), ("nchw",), HOPPER, "scroll"),
    (DOUBLE, ("tf32",), ("forward",), ("nchw",), HOPPER, "scroll"),  # odd rows of y
    (MANY, ("f16", "bf16"), ("forward",), ("nchw",), HOPPER, "pleat"),  # rows of 56
    (MANY, ("tf32", "f32"), ("forward",), ("nchw",), HOPPER, "loom"),
    (MANY, TENSOR_CORES, ("grad_input",), ("nchw",), HOPPER, "purl"),  # rows of dY
    (HEADS, TENSOR_CORES, ("grad_input",), ("nchw",), HOPPER, "purl"),  # runs of planes
    (ROWS, ("f16", "bf16"), ("forward", "grad_input"), ("nchw",), HOPPER, "scroll"),
    (ROWS, ("f16", "bf16"), ("forward", "grad_input"), ("nhwc",), HOPPER, "scroll"),
    (NARROW, ("f16", "bf16"), ("forward", "grad_input"), ("nchw",), HOPPER, "slide"),
    (NARROW, ("tf32",), ("forward",), ("nchw",), ("h200",), "loom"),
    (SHUFFLE, TENSOR_CORES, ("forward",), DENSE, NOT_HOPPER, "reed"),
    (SHUFFLE, ("f16", "bf16"), ("forward",), ("nchw",), ("h200",), "tuft"),
    (SHUFFLE, ("f16", "bf16"), ("forward",), ("nhwc",), HOPPER, "hopper"),
    (BOXES, ("f16", "bf16"), ("forward",), ("nchw",), HOPPER, "tuft"),
    (SHUFFLE, TENSOR_CORES, ("grad_input",), ("nchw",), HOPPER, "purl"),
    (PATCHES, TENSOR_CORES, ("forward",), ("nhwc",), HOPPER, "hopper"),
    (PATCHES, TENSOR_CORES, ("forward",), ("nchw",), HOPPER, "tuft"),  # planes of no vectors
    (HEADS, ("f16", "bf16"), ("forward",), ("nchw",), HOPPER, "tuft"),
    (KEYPOINTS, ("f16", "bf16"), ("forward",), ("nchw",), ("h200",), "pleat"),  # rows of 20
    (FEWER, ("f16", "bf16"), ("forward",), ("nchw",), ("h200",), "spread"),
    (SMALLER, ("f16", "bf16", "tf32"), ("forward",), ("nchw",), ("h200",), "spread"),  # whole
    (PATCHES, TENSOR_CORES, ("grad_input",), ("nhwc",), HOPPER, "hopper"),
    (PATCHES, TENSOR_CORES, ("grad_input",), ("nchw",), HOPPER, "purl"),
    (KEYPOINTS, ("f16", "bf16"), ("grad_weight",), ("nhwc",), HOPPER, "hopper"),  # packed columns
    (SAME, ("f32",), ("forward",), ("nchw",), ("a100",), "igemm"),  # three tf32 products
    (SHUFFLE, ("f32",), ("forward",), ("nchw",), NOT_HOPPER, "direct"),  # sums too short for them
    (MANY, ("f32",), ("forward", "grad_input"), ("nhwc",), HOPPER, "hopper"),
    (MANY, ("f32",), ("grad_input",), ("nchw",), HOPPER, "loom"),
    (SAME, ("f32",), ("forward", "grad_input"), ("nhwc",), HOPPER, "hopper"),
    (SHUFFLE, ("f32",), ("forward",), ("nhwc",), HOPPER, "hopper"),
    (ONE_TAP, ("f16", "bf16"), ("forward", "grad_input"), ("nchw",), HOPPER, "plain"),
    (FEW, ("f16",), ("forward",), DENSE, BOARDS, "mite"),
    (FEW, ("f32", "tf32"), EVERY_DIRECTION, DENSE, BOARDS, "mite"),
    (FEW, ("f64",), ("forward",), ("nchw",), BOARDS, "direct"),
    (MANY, ("f64",), EVERY_DIRECTION, EVERY_LAYOUT, BOARDS, "direct"),
    (MANY, ("f16", "f32"), EVERY_DIRECTION, EVERY_LAYOUT, ("t4",), "direct"),
    (MANY, TENSOR_CORES, ("grad_weight",), DENSE, ("a100",), "igemm"),
    (SAME, TENSOR_CORES, ("grad_weight",), DENSE, ("a100",), "igemm"),
    (SHUFFLE, ("f16", "bf16"), ("grad_weight",), DENSE, NOT_HOPPER, "igemm"),
    (MANY, ("tf32",), ("grad_weight",), ("nchw",), HOPPER, "hopper"),
    (MANY, ("f16", "bf16"), ("grad_weight",), ("nchw",), HOPPER, "spool"),  # a reel
    (DEEP, ("f16", "bf16"), ("grad_weight",), ("nchw",), HOPPER, "spool"),
    (SHUFFLE, TENSOR_CORES, ("grad_weight",), ("nchw",), HOPPER, "hopper"),
    (VOCODER, TENSOR_CORES, ("grad_weight",), ("nchw",), HOPPER, "braid"),
    (VOCODER, ("f32",), ("grad_weight",), ("nchw",), HOPPER, "comb"),
    (COLUMNS, ("tf32",), ("grad_weight",), ("nchw",), HOPPER, "braid"),
    (PATCHES, ("f16", "bf16", "tf32"), ("grad_weight",), ("nchw",), HOPPER, "quilt"),
    (BOXES, ("f16", "bf16"), ("grad_weight",), ("nchw",), HOPPER, "quilt"),  # odd planes
    (KEYPOINTS, ("tf32",), ("grad_weight",), ("nchw",), HOPPER, "fringe"),
    (LOOSE, ("f16", "bf16"), ("grad_weight",), ("nchw",), HOPPER, "fringe"),
    (MANY, ("tf32",), ("grad_weight",), ("nhwc",), HOPPER, "hopper"),  # three warps turn x
    (SAME, ("tf32", "f32"), ("grad_weight",), ("nchw",), HOPPER, "hopper"),  # odd rows of dY
    (ROWS, ("f16", "bf16"), ("grad_weight",), ("nchw",), HOPPER, "shuttle"),
    (ROWS, ("tf32",), ("grad_weight",), ("nchw",), HOPPER, "treadle"),
    (LINES, ("f16", "bf16", "tf32"), ("grad_weight",), ("nchw",), HOPPER, "treadle"),  # words
    (PATCHES, ("tf32",), ("grad_weight",), ("nhwc",), HOPPER, "hopper"),
    (MANY, ("f16", "bf16"), ("grad_weight",), ("nhwc",), HOPPER, "hopper"),
    (SAME, ("f16", "bf16"), ("grad_weight",), ("nhwc",), HOPPER, "hopper"),
    (SHUFFLE, ("f16", "bf16"), ("grad_weight",), ("nhwc",), HOPPER, "hopper"),
    (MANY, ("f64",), ("grad_weight",), EVERY_LAYOUT, NOT_HOPPER, "direct"),
    (MANY, ("f32",), ("grad_weight",), ("nchw",), NOT_HOPPER, "direct"),
    (MANY, ("f64",), ("grad_weight",), EVERY_LAYOUT, BOARDS, "direct"),
    (MANY, ("f32",), ("grad_weight",), ("nchw",), HOPPER, "hopper"),
    (MANY, ("f32",), ("grad_weight",), ("nhwc",), HOPPER, "comb"),
)


@needs_cuda_room
@pytest.mark.parametrize("row", REGIMES, ids=lambda row: f"{row[0].name}-{row[1][0]}-{row[-1]}")
def test_who_serves_what(row):
    case, dtypes, directions, layouts, boards, family = row
    for direction, dtype, layout, board in itertools.product(directions, dtypes, layouts, boards):
        text = explain(case, direction, dtype, layout, board)
        assert chosen(text) == family, text


# Few positions and long sums: without cuts in K, a handful of blocks. Like the first layer of a
# generator, large kernels for segmentation and sound, which the planner was fitted to.
PIXELS = Case("few_positions", 96, 120, 384, (1, 1), (4, 4))
WINDOWS = Case("large_kernel", 1, 24, 24, (14, 18), (48, 48), (24, 24))
IN_A_ROW = Case("in_a_row", 12, 384, 192, (1, 40), (1, 16), (1, 8), (0, 4))
CLUSTER = "K split over a cluster of"
WAYS = (CLUSTER, "teams of warps", "rows of taps at once", "rows of taps as channels")


@needs_cuda_room
@pytest.mark.parametrize("dtype", ("f16", "bf16", "tf32", "f32"))
@pytest.mark.parametrize("layout", DENSE)
def test_long_sums_of_few_positions_are_split_over_clusters(layout, dtype):
    for case, board in itertools.product((PIXELS, WINDOWS), ("h100", "h200")):
        text = explain(case, "grad_input", dtype, layout, board, "igemm")
        assert re.search("^forced: .*" + CLUSTER, text, re.MULTILINE), text
    for case in (PIXELS, WINDOWS, IN_A_ROW):
        text = explain(case, "grad_input", dtype, layout, "h200")
        assert re.search("^chosen: strand .*" + CLUSTER, text, re.MULTILINE), text


@needs_cuda_room
def test_nothing_is_shared_out_without_clusters_or_with_enough_tiles():
    for direction, dtype, layout in itertools.product(
        ("forward", "grad_input"), TENSOR_CORES, DENSE
    ):
        for case, board in itertools.product(
            (PIXELS, WINDOWS, IN_A_ROW), ("a100", "a10", "rtx4090", "l4", "rtx5090")
        ):
            text = explain(case, direction, dtype, layout, board, "igemm")
            assert not any(way in text for way in WAYS), text
        for case in (MANY, SAME, SHUFFLE):
            text = explain(case, direction, dtype, layout, "h200", "igemm")
            assert chosen(text) == "igemm" and not any(way in text for way in WAYS), text


@needs_cuda_room
@pytest.mark.parametrize("dtype", ("f16", "tf32", "f32"))
@pytest.mark.parametrize("layout", DENSE)
def test_the_case_table_meets_every_way_of_sharing(layout, dtype):
    """What a GPU runs are the cases of cases.py, each with the plan that igemm chooses for it."""
    for direction in ("forward", "grad_input"):
        plans = [
            explain(case, direction, dtype, layout, "h200", "igemm").splitlines()[1]
            for case in CASES
        ]
        met = [way for way in WAYS if any(way in plan for plan in plans)]
        # Forward has a unit for every chunk of channels, and windows are what grad_input reads.
        assert met == list(WAYS if direction == "grad_input" else WAYS[:2])
        apart = [plan for plan in plans if "igemm" in plan and not any(way in plan for way in WAYS)]
        assert len(apart) >= (1 if dtype == "f32" else 2), "kernels that share nothing out run too"


@needs_cuda_room
@pytest.mark.parametrize("stride", (8, 9, 16))
def test_the_copy_engine_steps_over_seven_pixels_at_most(stride):
    """The driver refuses a tensor map that steps farther (cuTensorMapEncodeTiled, error 1)."""
    kernel = (stride + 1, stride + 1)
    case = Case("far_apart", 2, 64, 64, (20, 24), kernel, (stride, stride))
    for dtype in ("f16", "tf32"):
        text = explain(case, "grad_input", dtype, "nhwc", "h200", "hopper")
        assert stride <= 8 or "copied" not in text.splitlines()[1], text
    text = explain(case, "grad_weight", "f16", "nhwc", "h200", "hopper")
    assert (stride <= 8) == (chosen(text) == "hopper"), text


@needs_cuda_room
def test_hopper_fetches_nchw_as_it_lies():
    """In grad_input, rows of dY with what is around them."""
    up = Case("up", 8, 256, 128, (100, 120), (2, 2), (2, 2))
    few = dataclasses.replace(up, in_channels=128)
    wide = Case("wide", 8, 256, 128, (48, 64), (4, 4), (2, 2), (1, 1))

    def way(case, direction, dtype, layout="nchw"):
        text = explain(case, direction, dtype, layout, "h200", "hopper")
        assert chosen(text) == "hopper", text
        match = re.search("rows copied|rows brought", text)
        return match and match[0]

    for case, dtype in itertools.product((up, few, wide), TENSOR_CORES):
        assert way(case, "forward", dtype) is None
        assert way(case, "grad_input", dtype) == "rows copied"
    for dtype in TENSOR_CORES:
        for layout, direction in itertools.product(("nhwc", "strided"), ("forward", "grad_input")):
            assert way(up, direction, dtype, layout) is None
    # Of 16 bits, pairs of taps are words once rows were moved by a pixel, or spread out of planes.
    pose = Case("pose", 64, 2048, 256, (8, 6), (4, 4), (2, 2), (1, 1))
    for dtype in TENSOR_CORES:
        text = explain(wide, "grad_input", dtype, "nchw", "h200", "hopper")
        assert ("rows copied, shifted" in text.splitlines()[1]) == (dtype != "tf32"), text
        text = explain(pose, "grad_input", dtype, "nchw", "h200", "hopper")
        assert ("rows copied, spread" in text.splitlines()[1]) == (dtype != "tf32"), text
    for how in ("shifted", "spread"):  # test_exact.py has them
        text = explain(BY_NAME[f"k4s2p1_{how}_rows"], "grad_input", "f16", "nchw", "h200", "hopper")
        assert f"rows copied, {how}" in text.splitlines()[1], text
    # Rows that are no whole vectors come by threads, unless a kernel has more rows and columns than
    # there are bits to tell what is beside them.
    odd = dataclasses.replace(wide, output_padding=(1, 1))
    large = dataclasses.replace(wide, kernel=(1, 41))
    for dtype in TENSOR_CORES:
        assert way(odd, "grad_input", dtype) == "rows brought"
        assert way(large, "grad_input", dtype) is None


@needs_cuda_room
@pytest.mark.parametrize("dtype", TENSOR_CORES)
def test_planes_come_whole(dtype):
    for case in (SMALLER, BY_NAME["k4s2_of_whole_planes"]):  # test_exact.py has the second
        text = explain(case, "forward", dtype, "nchw", family="spread")
        assert "as a mesh of whole planes" in text, text


@needs_cuda_room
def test_fold_says_why_it_declines():
    check_changes(
        "fold",
        DEEP,
        ({"kernel": (4, 3)}, "3 x 3 and 4 x 4"),
        ({"kernel": (5, 5)}, "3 x 3 and 4 x 4"),
        ({"stride": (2, 1)}, "stride 2"),
        ({"dilation": (1, 2), "output_padding": (0, 1)}, "stride 2"),
        ({"size": (21, 23), "in_channels": 764}, "483 pixels, 764 channels"),
        ({"size": (1, 7)}, "smaller than a vector"),
        ({"size": (8, 300)}, "rows of x"),  # longer than a tile, and no whole vectors
    )
    check_refusals(
        "fold",
        (DEEP, "grad_input", "f16", "nchw", "h200", "forward"),
        (DEEP, "forward", "f64", "nchw", "h200", "16 or 32 bits"),
        (DEEP, "forward", "f16", "nhwc", "h200", "NCHW"),
        (DEEP, "forward", "f16", "nchw", "b200", "wgmma"),
    )


@needs_cuda_room
def test_pleat_says_why_it_declines():
    check_changes(
        "pleat",
        SQUARES,
        ({"kernel": (4, 3)}, "4 x 4"),
        ({"stride": (2, 1)}, "stride 2"),
        ({"dilation": (1, 2), "output_padding": (0, 1)}, "stride 2"),
        ({"padding": (1, 3)}, "a pad of 3"),
        ({"output_padding": (1, 0), "padding": (0, 1)}, "are not those of 24 pixels"),
        ({"size": (24, 35)}, "35 pixels, which are no eights"),
        ({"size": (25, 36)}, "25 rows of 36 pixels"),
        ({"size": (24, 68)}, "68 pixels, which are no eights"),
        ({"size": (24, 44)}, "no tile has rows of 44 pixels"),
    )
    check_refusals(
        "pleat",
        (SQUARES, "grad_input", "f16", "nchw", "h200", "forward"),
        (SQUARES, "forward", "tf32", "nchw", "h200", "fp16 and bf16"),
        (SQUARES, "forward", "f16", "nhwc", "h200", "NCHW"),
        (SQUARES, "forward", "f16", "nchw", "b200", "sm_90a"),
    )


@needs_cuda_room
def test_crimp_says_why_it_declines():
    check_changes(
        "crimp",
        COLUMNS,
        ({"kernel": (8, 2)}, "one column"),
        ({"stride": (4, 2)}, "one column"),
        ({"kernel": (7, 1)}, "two strides"),
        ({"kernel": (6, 1), "stride": (3, 1)}, "two strides of 2, 4 or 8"),
        ({"dilation": (2, 1)}, "two strides"),
        ({"padding": (5, 0)}, "a pad of 5"),
        ({"output_padding": (3, 0)}, "are not those of 10 rows of x"),
        ({"size": (10, 204)}, "204 pixels"),
        ({"kernel": (4, 1), "stride": (2, 1), "out_channels": 161}, "rows of w, 644"),
        ({"in_channels": 1800}, "no room"),
    )
    check_refusals(
        "crimp",
        (COLUMNS, "grad_input", "f16", "nchw", "h200", "forward"),
        (COLUMNS, "forward", "f32", "nchw", "h200", "fp16, bf16 and TF32"),
        (dataclasses.replace(COLUMNS, size=(10, 202)), "forward", "tf32", "nchw", "h200", "fours"),
        (dataclasses.replace(COLUMNS, in_channels=1700), "forward", "tf32", "nchw", "h200", "room"),
        (COLUMNS, "forward", "f16", "nhwc", "h200", "NCHW"),
        (COLUMNS, "forward", "f16", "nchw", "b200", "sm_90a"),
    )


@needs_cuda_room
def test_tuft_says_why_it_declines():
    check_changes(
        "tuft",
        PATCHES,
        ({"stride": (4, 2)}, "kernels that are their stride, without padding, not 4 x 4"),
        ({"padding": (1, 0)}, "without padding"),
        ({"output_padding": (0, 1)}, "that are their stride"),
        ({"kernel": (4, 3), "stride": (4, 3)}, "2, 4 or 8 columns, not 3"),
        ({"in_channels": 188}, "188 channels are no whole sets of 8"),
        ({"size": (1, 7)}, "planes of 7 pixels"),
        ({"kernel": (1, 2), "stride": (1, 2), "out_channels": 3}, "6 weights are no whole 16"),
        ({"in_channels": 1024}, "1024 channels need 262144 bytes"),
    )
    check_refusals(
        "tuft",
        (PATCHES, "grad_input", "f16", "nchw", "h200", "forward"),
        (PATCHES, "forward", "f32", "nchw", "h200", "TF32"),
        (PATCHES, "forward", "f16", "nhwc", "h200", "NCHW"),
        (PATCHES, "forward", "f16", "nchw", "b200", "sm_90a"),
    )


@needs_cuda_room
def test_tuft_brings_as_many_places_at_once_as_lines_have_room_for():
    for case, dtype, words in (
        (SHUFFLE, "f16", "3 chunks in 1 boxes"),
        (HEADS, "f16", "8 chunks in 2 boxes"),  # 4 pixels behind the last whole 16 bytes
        (PATCHES, "f16", "6 chunks in 4 boxes"),  # 6
        (PATCHES, "tf32", "12 chunks in 1 boxes"),  # 2
    ):
        text = explain(case, "forward", dtype, "nchw", "h200", "tuft")
        assert words in text.splitlines()[1], text


@needs_cuda_room
def test_purl_says_why_it_declines():
    check_changes(
        "purl",
        MANY,
        ({"kernel": (4, 3)}, "even width"),
        ({"stride": (2, 1)}, "even stride, not 4 with 1"),
        ({"kernel": (4, 16)}, "4 x 16 do not divide"),
        ({"kernel": (3, 4)}, "3 x 4 do not divide"),
        ({"dilation": (2, 1)}, "without dilation"),
        ({"kernel": (1, 2), "out_channels": 3}, "6 weights are no whole 16 bytes"),
        ({"size": (41, 57), "output_padding": (1, 1)}, "83 x 115 are no whole 16 bytes"),
        ({"size": (40, 57), "output_padding": (0, 1)}, "rows of dY of 115"),
        ({"size": (40, 102)}, "too long for a run"),
        direction="grad_input",
    )
    check_refusals(
        "purl",
        (MANY, "forward", "f16", "nchw", "h200", "grad_input"),
        (MANY, "grad_input", "f32", "nchw", "h200", "TF32"),
        (MANY, "grad_input", "f16", "nhwc", "h200", "NCHW"),
        (MANY, "grad_input", "f16", "nchw", "b200", "sm_90a"),
        (dataclasses.replace(MANY, kernel=(4, 8)), "grad_input", "tf32", "nchw", "h200", "divide"),
    )


@needs_cuda_room
def test_purl_brings_whole_rows_runs_or_kernel_rows():
    even = dataclasses.replace(MANY, padding=(2, 2), size=(41, 57))
    for case, dtype, words in (
        (MANY, "f16", "dY in rows of"),
        (even, "f16", "dY in rows of"),
        (POSE, "f16", "2 images x 8 rows of 6 pixels x 256 channels, dY in runs of"),
        (HEADS, "f16", "dY in runs of"),
        (PATCHES, "f16", "dY in kernel rows of"),
        (SHUFFLE, "f16", "weights stay"),
        (WIDE, "f16", "outputs in boxes by turns"),
    ):
        text = explain(case, "grad_input", dtype, "nchw", "h200", "purl")
        assert words in text.splitlines()[1], text


@needs_cuda_room
def test_comb_brings_segments_of_channels_last_kernel_rows():
    case = Case("scores", 1, 19, 19, (18, 20), (32, 32), (16, 16))
    for dtype in ("f16", "bf16"):
        text = explain(case, "grad_weight", dtype, "nhwc", bias=False)
        assert chosen(text) == "comb" and "32 channels x 152 columns of lines" in text, text
    for dtype, change in (
        ("tf32", {}),
        ("f16", {"padding": (0, 8)}),  # runs begin beside dY
        ("f16", {"stride": (16, 12)}),  # and between whole vectors
    ):
        other = dataclasses.replace(case, **change)
        text = explain(other, "grad_weight", dtype, "nhwc", family="comb", bias=False)
        assert chosen(text) == "comb" and "of lines" not in text, text


@needs_cuda_room
def test_seven_taps_of_words_are_treadles_in_both_layouts():
    case = Case("long_rows", 16, 64, 64, (128, 128), (3, 7), padding=(1, 3))
    for layout in DENSE:
        text = explain(case, "grad_weight", "tf32", layout, bias=False)
        assert chosen(text) == "treadle", text


@needs_cuda_room
def test_exact_cases_reach_what_is_rarely_best():
    for name, direction, dtypes, family, words in (
        ("k2s2_even_planes", "forward", ("tf32",), "fold", "(128 rows) x 256 pixels"),
        ("k4s4_kernel_rows", "grad_input", ("f16", "bf16"), "purl", "dY in kernel rows"),
    ):
        for dtype in dtypes:
            text = explain(BY_NAME[name], direction, dtype, "nchw", "h200", family)
            assert words in text.splitlines()[1], text


@needs_cuda_room
def test_twill_says_why_it_declines():
    check_changes(
        "twill",
        GENERATOR,
        ({"kernel": (3, 4)}, "3 x 3"),
        ({"stride": (1, 2), "output_padding": (0, 1)}, "stride 2"),
        ({"padding": (2, 1)}, "padding 0 or 1"),
        ({"padding": (1, 0)}, "outputs, 114 of a pad of 0"),
        ({"size": (56, 52)}, "52 pixels"),
        ({"out_channels": 100}, "100 output channels"),
    )
    check_refusals(
        "twill",
        (GENERATOR, "grad_input", "f16", "nchw", "h200", "forward"),
        (GENERATOR, "forward", "tf32", "nchw", "h200", "fp16 and bf16"),
        (GENERATOR, "forward", "f16", "nhwc", "h200", "NCHW"),
        (GENERATOR, "forward", "f16", "nchw", "b200", "sm_90a"),
    )


@needs_cuda_room
def test_gauze_says_why_it_declines():
    check_changes(
        "gauze",
        FINE,
        ({"kernel": (3, 4)}, "3 x 3 and 4 x 4"),
        ({"stride": (1, 2)}, "stride 2"),
        ({"padding": (1, 0)}, "padding 1"),
        ({"output_padding": (0, 1)}, "129 columns, which are not twice the 64"),
        ({"output_padding": (1, 0)}, "65 rows, more than twice the 32"),
        ({"size": (32, 56)}, "56 pixels"),
        ({"kernel": (3, 3), "output_padding": (1, 1), "out_channels": 20}, "180 weights"),
        ({"in_channels": 640}, "640 input channels a group"),
        ({"in_channels": 2560, "out_channels": 2560, "groups": 160}, "160 groups"),
    )
    check_refusals(
        "gauze",
        (FINE, "grad_input", "f16", "nchw", "h200", "forward"),
        (FINE, "forward", "f32", "nchw", "h200", "fp16, bf16 and TF32"),
        (FINE, "forward", "f16", "nhwc", "h200", "NCHW"),
        (FINE, "forward", "f16", "nchw", "b200", "sm_90a"),
    )


@needs_cuda_room
def test_upright_lines_lie_down():
    lines = Case("lines", 32, 128, 96, (700, 1), (6, 1), (3, 1), (1, 0), (1, 0))
    for dtype, direction in itertools.product(("f16", "bf16"), DIRECTIONS):
        text = explain(lines, direction, dtype, "nchw")
        assert "an upright line, laid down" in text.splitlines()[0], text
        assert "x [32, 128, 1, 700]" in text, text
        wide = dataclasses.replace(lines, size=(700, 2))
        assert "an upright line" not in explain(wide, direction, dtype, "nchw")


@needs_cuda_room
def test_planes_under_1x1_kernels_are_rows_where_that_is_faster():
    planes = Case("planes", 8, 32, 32, (256, 250), (1, 1))
    text = explain(planes, "grad_weight", "f16", "nchw")
    assert "images as rows" in text.splitlines()[0] and "x [8, 32, 1, 64000]" in text, text
    for case in (
        dataclasses.replace(planes, padding=(1, 0)),
        dataclasses.replace(planes, stride=(1, 2)),
        dataclasses.replace(planes, kernel=(1, 2)),
    ):
        assert "images as rows" not in explain(case, "grad_weight", "f16", "nchw")
    assert "images as rows" not in explain(planes, "grad_weight", "f16", "nhwc")


@needs_cuda_room
def test_one_pixel_to_one_kernel_is_a_product_of_matrices():
    case = Case("first", 64, 128, 256, (1, 1), (4, 4))
    for dtype, layout in itertools.product((*TENSOR_CORES, "f32"), DENSE):
        for change, bias, expected in (
            ({}, False, True),
            ({}, True, False),
            ({"padding": (1, 1)}, False, False),
            ({"output_padding": (1, 0), "stride": (2, 2)}, False, False),
            ({"groups": 2}, False, False),
        ):
            other = dataclasses.replace(case, **change)
            text = explain(other, "forward", dtype, layout, bias=bias)
            assert ("a product of matrices" in text) == expected, text
            if expected:
                assert "w [128, 4096, 1, 1]" in text, text
                assert dtype == "f32" or chosen(text) in ("hopper", "reed"), text
        # A bias is not its; the gradient of one is computed beside it, where that is faster.
        text = explain(case, "grad_weight", dtype, layout)
        assert "a product of matrices, the bias gradient apart in " in text, text
        assert "bias" not in text.splitlines()[1], text


@needs_cuda_room
def test_grad_input_has_no_bias():
    case = Case("first", 64, 128, 256, (1, 1), (4, 4))
    assert explain(case, "grad_input", bias=True) == explain(case, "grad_input", bias=False)


@needs_cuda_room
def test_slide_says_why_it_declines():
    check_changes(
        "slide",
        ROWS,
        ({"stride": (1, 2), "kernel": (3, 2)}, "kernel rows of 2"),
        ({"stride": (1, 2), "kernel": (3, 7)}, "kernel rows of 7 with stride 2"),
        ({"dilation": (1, 2)}, "without dilation"),
        ({"size": (200, 301)}, "rows of 301"),
        ({"groups": 4}, "groups of 24"),
        ({"in_channels": 320}, "320 channels"),
        ({"kernel": (17, 3)}, "too high"),
        ({"in_channels": 256, "kernel": (7, 7)}, "bytes of shared memory"),
    )
    wider = dataclasses.replace(NARROW, kernel=(5, 5))
    check_refusals(
        "slide",
        (ROWS, "grad_weight", "f16", "nchw", "h200", "forward and grad_input"),
        (wider, "grad_input", "f16", "nchw", "h200", "two rows of the result"),
        (ROWS, "forward", "f32", "nchw", "h200", "16 bits"),
        (ROWS, "forward", "f16", "nhwc", "h200", "NCHW"),
        (ROWS, "forward", "f16", "nchw", "b200", "wgmma"),
    )


@needs_cuda_room
def test_shuttle_says_why_it_declines():
    check_changes(
        "shuttle",
        dataclasses.replace(ROWS, batch=2),
        ({"size": (200, 300)}, "rows of x, 300"),
        ({"kernel": (17, 3)}, "17 taps in a row"),
        ({"stride": (1, 9)}, "a stride of 9"),
        ({"out_channels": 65, "size": (201, 304), "kernel": (3, 4)}, "no whole 16 bytes"),
        direction="grad_weight",
    )
    check_refusals(
        "shuttle",
        (ROWS, "forward", "f16", "nchw", "h200", "grad_weight"),
        (ROWS, "grad_weight", "tf32", "nchw", "h200", "16 bits"),
        (ROWS, "grad_weight", "f16", "nhwc", "h200", "NCHW"),
        (ROWS, "grad_weight", "f16", "nchw", "b200", "sm_90a"),
    )


@needs_cuda_room
def test_ticking_says_why_it_declines():
    check_changes(
        "ticking",
        FEW_OF_GROUPS,
        ({"in_channels": 240}, "80 input channels of a group"),
        ({"out_channels": 900}, "300 output channels of a group"),
        ({"size": (96, 15)}, "rows of 15 pixels"),
        ({"kernel": (3, 33)}, "33 kernel columns"),
        ({"kernel": (5, 5)}, "5 rows of x share a line of dY"),
        direction="grad_input",
    )
    few = dataclasses.replace(FEW_OF_GROUPS, out_channels=6)
    check_refusals(
        "ticking",
        (FEW_OF_GROUPS, "forward", "f16", "nchw", "h200", "grad_input"),
        (FEW_OF_GROUPS, "grad_input", "f16", "nhwc", "h200", "NCHW"),
        (FEW_OF_GROUPS, "grad_input", "f16", "nchw", "b200", "sm_90a"),
        (few, "grad_input", "f32", "nchw", "h200", "30 products"),
    )


@needs_cuda_room
def test_dimity_says_why_it_declines():
    wide = {"kernel": (1, 2), "stride": (1, 1), "padding": (0, 0), "dilation": (1, 14_000_000)}
    check_changes(
        "dimity",
        IMAGES,
        ({"dilation": (65, 1)}, "65 rows of x apart"),
        ({"stride": (2, 900), "batch": 1, "size": (16, 64)}, "two steps take"),
        # Rows whose bytes 32 bits do not hold.
        ({**wide, "batch": 1, "out_channels": 40, "size": (1, 8)}, "two steps take"),
        direction="grad_weight",
    )
    short = dataclasses.replace(IMAGES, batch=1, size=(8, 12))
    halves = dataclasses.replace(FEW_OF_GROUPS, in_channels=16, out_channels=32, groups=4)
    odd = dataclasses.replace(FEW_OF_GROUPS, in_channels=32, out_channels=36, groups=4)
    check_refusals(
        "dimity",
        (short, "grad_weight", "f32", "nchw", "h200", "96 products"),
        (IMAGES, "forward", "f16", "nchw", "h200", "grad_weight"),
        (IMAGES, "grad_weight", "f16", "nhwc", "h200", "a pixel's channels are no whole 16 bytes"),
        (halves, "grad_weight", "f16", "nhwc", "h200", "4 and 8 channels start between"),
        (odd, "grad_weight", "f32", "nhwc", "h200", "8 and 9 channels start between"),
        (IMAGES, "grad_weight", "f16", "strided", "h200", "NCHW and NHWC"),
        (IMAGES, "grad_weight", "f64", "nchw", "h200", "fp16, bf16 and fp32"),
        (IMAGES, "grad_weight", "f16", "nchw", "b200", "sm_90a"),
    )


@needs_cuda_room
def test_hank_says_why_it_declines():
    changes = (
        ({"kernel": (5, 4)}, "kernels of 5 are longer than two strides of 2"),
        ({"kernel": (9, 9), "stride": (9, 9)}, "does not step over 9"),
        ({"dilation": (1, 2)}, "without dilation"),
        ({"groups": 48}, "one channel in and one out"),
        ({"in_channels": 92, "out_channels": 92, "groups": 92}, "92 channels are no whole"),
    )
    for change, words in changes:
        case = dataclasses.replace(BILINEAR, **change)
        check_refusals("hank", (case, "grad_weight", "f16", "nhwc", "h200", words))
    check_refusals(
        "hank",
        (BILINEAR, "forward", "f16", "nhwc", "h200", "grad_weight"),
        (BILINEAR, "grad_weight", "f16", "nchw", "h200", "NHWC"),
        (BILINEAR, "grad_weight", "f32", "nhwc", "h200", "fp16, bf16 and TF32"),
        (BILINEAR, "grad_weight", "f16", "nhwc", "b200", "sm_90a"),
    )


# A bias gradient is one more pass over dY, but for depthwise, which has it on the way.
@needs_cuda_room
@pytest.mark.parametrize("dtype", (*TENSOR_CORES, "f32"))
@pytest.mark.parametrize(("layout", "family"), (("nchw", "skein"), ("nhwc", "hank")))
def test_who_serves_grad_weight_of_depthwise_layers_without_a_bias(dtype, layout, family):
    case = dataclasses.replace(BILINEAR, batch=32)
    for device, bias in itertools.product((*HOPPER, *NOT_HOPPER), (False, True)):
        special = device in HOPPER and not bias and dtype != "f32"
        text = explain(case, "grad_weight", dtype, layout, device, bias=bias)
        assert chosen(text) == (family if special else "depthwise"), text


# Of x a band has a row more than of dY; a box of the copy engine has 256 at most.
@needs_cuda_room
@pytest.mark.parametrize("height", (254, 255, 256, 509, 510, 511))
def test_no_band_of_skein_has_more_rows_than_a_box(height):
    case = Case("tall", 1, 8, 8, (height, 8), (2, 1), groups=8)
    text = explain(case, "grad_weight", "tf32", family="skein", bias=False)
    rows = re.search(r"skein \((\d+) of (\d+) rows of x", text)
    assert rows and int(rows[2]) == height + 1 and int(rows[1]) <= 255, text


@needs_cuda_room
def test_skein_says_why_it_declines():
    changes = (
        ({"kernel": (5, 4)}, "5 kernel rows are more than two steps of 2"),
        ({"kernel": (4, 6), "stride": (2, 6)}, "6 columns is no part of 8"),
        ({"kernel": (8, 8), "stride": (4, 2)}, "more than a warp has sums for"),
        ({"dilation": (1, 2)}, "1 and 2 apart"),
        ({"groups": 48}, "2 input channels"),
        ({"size": (40, 44)}, "rows of 88 bytes"),
    )
    for change, words in changes:
        case = dataclasses.replace(BILINEAR, **change)
        check_refusals("skein", (case, "grad_weight", "f16", "nchw", "h200", words))
    check_refusals(
        "skein",
        (BILINEAR, "forward", "f16", "nchw", "h200", "grad_weight"),
        (BILINEAR, "grad_weight", "f16", "nhwc", "h200", "NCHW"),
        (BILINEAR, "grad_weight", "f32", "nchw", "h200", "16 bits and TF32"),
        (BILINEAR, "grad_weight", "f16", "nchw", "b200", "sm_90a"),
    )


@needs_cuda_room
def test_quilt_says_why_it_declines():
    large = Case("large", 1, 1, 1, (1 << 27, 6), (1, 2), (1, 2))
    wide, odd = (
        dataclasses.replace(PATCHES, size=(8, w), kernel=kernel, stride=kernel)
        for w, kernel in ((2048, (4, 4)), (37, (4, 2)))
    )
    check_refusals(
        "quilt",
        (large, "grad_weight", "f32", "nchw", "h200", "planes of x, 3221225472 bytes"),
        (wide, "grad_weight", "f16", "nchw", "h200", "rows of 2048 pixels"),
        (odd, "grad_weight", "f16", "nchw", "h200", "no pairs"),
        (SAME, "grad_weight", "f16", "nchw", "h200", "3 taps"),
        (PATCHES, "forward", "f16", "nchw", "h200", "grad_weight"),
        (PATCHES, "grad_weight", "f16", "nhwc", "h200", "NCHW"),
        (PATCHES, "grad_weight", "f16", "nchw", "b200", "sm_90a"),
    )


@needs_cuda_room
def test_braid_says_why_it_declines():
    check_changes(
        "braid",
        COLUMNS,
        ({"kernel": (8, 2)}, "8 x 2, lie along no single axis"),
        ({"dilation": (2, 1)}, "2 apart"),
        ({"kernel": (66, 1)}, "66 taps make no fours"),
        ({"kernel": (17, 1)}, "17 taps make no fours"),
        ({"stride": (4, 2)}, "2 apart"),
        ({"kernel": (6, 1), "out_channels": 161}, "966 sums"),
        ({"size": (10, 204)}, "rows of 408 bytes"),
        direction="grad_weight",
    )
    check_changes(
        "braid",
        COLUMNS,
        ({"padding": (2, 2), "size": (10, 204)}, "padding of 8 bytes"),
        direction="grad_weight",
        dtype="tf32",
    )
    check_changes(
        "braid",
        VOCODER,
        ({"size": (1, 39)}, "rows of 78 bytes"),
        ({"kernel": (1, 15), "output_padding": (0, 1)}, "15 taps are no pairs"),
        ({"kernel": (1, 32), "stride": (1, 16)}, "more of a row than a box has"),
        direction="grad_weight",
    )
    check_refusals(
        "braid",
        (COLUMNS, "forward", "f16", "nchw", "h200", "grad_weight"),
        (COLUMNS, "grad_weight", "f32", "nchw", "h200", "TF32"),
        (COLUMNS, "grad_weight", "f16", "nhwc", "h200", "NCHW"),
        (COLUMNS, "grad_weight", "f16", "nchw", "b200", "sm_90a"),
    )


@needs_cuda_room
def test_fringe_says_why_it_declines():
    check_changes(
        "fringe",
        KEYPOINTS,
        ({"out_channels": 18}, "16 taps of 18 output channels"),
        ({"size": (14, 15), "kernel": (4, 3)}, "rows of dY, 116 bytes"),
        ({"size": (13, 14)}, "planes of x, 728 bytes"),
        direction="grad_weight",
        dtype="tf32",
    )
    check_changes(
        "fringe",
        LOOSE,
        ({"kernel": (4, 3)}, "not four that step by two"),
        ({"size": (13, 13)}, "planes of dY"),
        ({"size": (14, 13), "in_channels": 510}, "do not add up"),
        ({"size": (14, 34)}, "too long"),
        direction="grad_weight",
    )
    check_refusals(
        "fringe",
        (KEYPOINTS, "forward", "f16", "nchw", "h200", "grad_weight"),
        (KEYPOINTS, "grad_weight", "f32", "nchw", "h200", "TF32"),
        (KEYPOINTS, "grad_weight", "f16", "nhwc", "h200", "NCHW"),
        (KEYPOINTS, "grad_weight", "f16", "nchw", "b200", "sm_90a"),
    )


@needs_cuda_room
def test_narrow_says_why_it_declines():
    check_changes(
        "narrow",
        THIN,
        ({"out_channels": 5}, "5 output channels"),
        ({"kernel": (4, 12)}, "72 products of a pixel"),
        ({"kernel": (4, 17)}, "more than 16 or 8"),
        ({"stride": (1, 1), "kernel": (16, 4)}, "reaches over 15 x 3 pixels"),
        ({"size": (72, 97)}, "rows of 97"),
        ({"in_channels": 264, "kernel": (12, 4)}, "264 channels"),
        ({"in_channels": 256, "kernel": (12, 4)}, "bytes of shared memory"),
        ({"in_channels": 162, "out_channels": 4, "groups": 2}, "one group, not 2"),
    )
    check_refusals(
        "narrow",
        (THIN, "grad_input", "f16", "nchw", "h200", "forward"),
        (THIN, "forward", "f64", "nchw", "h200", "fp32"),
        (THIN, "forward", "f16", "strided", "h200", "NCHW and NHWC"),
        (THIN, "forward", "f32", "nhwc", "h200", "no strict fp32"),
        (FEW, "forward", "f16", "nhwc", "h200", "2 channels"),
        (FEW, "forward", "f32", "nchw", "h200", "sums of 8 products"),
        (THIN, "forward", "f16", "nchw", "b200", "wgmma"),
    )


@needs_cuda_room
def test_grad_weight_is_cut_alike_on_every_gpu():
    """How the sums are cut follows from the shape, so results do not depend on the GPU."""
    for case, dtype, layout in itertools.product(
        (MANY, SAME, SHUFFLE, FEW), ("f16", "tf32"), ("nchw", "nhwc")
    ):
        notes = set()
        for board in ("a100", "a10", "rtx4090", "h200", "b200"):
            text = explain(case, "grad_weight", dtype, layout, board, "igemm")
            assert chosen(text) == "igemm", text
            notes.add(re.search(r"^forced: igemm \((.*?)\) predicted", text, re.MULTILINE)[1])
        assert len(notes) == 1, notes


@needs_cuda_room
def test_hopper_fetches_operands_that_wgmma_cannot_turn():
    """Words across K: weights of TF32 NHWC forward; dY of grad_weight in NCHW, and in TF32."""
    wide = Case("wide", 8, 256, 128, (48, 64), (4, 4), (2, 2), (1, 1))
    for dtype in TENSOR_CORES:
        text = explain(wide, "forward", dtype, "nhwc", "h200", "hopper")
        assert ("weights fetched" in text.splitlines()[1]) == (dtype == "tf32"), text
    fetched = (*itertools.product(TENSOR_CORES, ("nchw",)), ("tf32", "nhwc"))
    for case, (dtype, layout) in itertools.product((MANY, SHUFFLE), fetched):
        text = explain(case, "grad_weight", dtype, layout, "h200", "hopper")
        assert "dY fetched" in text.splitlines()[1], text


@needs_cuda_room
def test_hopper_moves_and_brings_odd_rows_of_a_grad_weight():
    patches = Case("patches", 8, 192, 192, (27, 29), (4, 4), (4, 4))
    for case, dtypes, words in (
        (patches, TENSOR_CORES, "dY fetched, x shifted"),
        (HEADS, ("f16", "bf16"), "dY by planes and fetched, x shifted, runs"),
        (HEADS, ("tf32",), "dY by planes and fetched, runs"),
    ):
        for dtype in dtypes:
            text = explain(case, "grad_weight", dtype, "nchw", "h200", "hopper")
            assert chosen(text) == "hopper" and words in text.splitlines()[1], text


@needs_cuda_room
def test_hopper_pairs_taps_with_few_output_channels_in_a_grad_weight():
    last = Case("last", 16, 128, 3, (128, 128), (4, 4), (2, 2), (1, 1))
    upscaled = Case("upscaled", 16, 56, 1, (135, 240), (9, 9), (2, 2), (4, 4), (1, 1))
    many = Case("many", 16, 128, 64, (32, 32), (4, 4), (2, 2), (1, 1))
    for dtype in (*TENSOR_CORES, "f32"):
        for case, taps in ((last, "4 x 4"), (upscaled, "9 x 9")):
            text = explain(case, "grad_weight", dtype, "nchw", "h200", "hopper")
            words = f"{case.out_channels} x .* channels, {taps} taps, pairs, dY fetched"
            assert re.search(words, text.splitlines()[1]), text
        assert ", pairs, " not in explain(many, "grad_weight", dtype, "nchw", "h200", "hopper")
    assert "pairs, dY fetched" in explain(last, "grad_weight", "tf32", "nhwc", "h200", "hopper")


@needs_cuda_room
def test_operands_are_fetched_or_turned_where_that_is_faster():
    decoder = Case("decoder", 8, 128, 96, (120, 160), (2, 2), (2, 2))
    odd = Case("odd_rows", 8, 64, 64, (256, 512), (3, 3))
    halved = Case("halved", 8, 32, 48, (256, 512), (3, 3))
    stepped = Case("stepped", 24, 64, 64, (200, 240), (4, 4), (2, 2), (1, 1), (1, 1))
    long = Case("long", 48, 64, 128, (128, 192), (3, 5))
    few = Case("few", 8, 64, 20, (120, 128), (2, 2), (2, 2))
    upscaled = Case("upscaled", 16, 56, 1, (270, 480), (9, 9), (2, 2), (4, 4), (1, 1))
    doubled = Case("doubled", 64, 64, 64, (96, 120), (3, 3), (2, 2), (1, 1), (1, 1))
    for case, direction, dtype, layout, family, words in (
        (decoder, "grad_input", "f32", "nchw", "hopper", "rows copied and fetched"),
        (odd, "grad_input", "f16", "nchw", "slide", "turned rows"),
        (doubled, "grad_input", "f16", "nchw", "slide", "strided rows"),
        (odd, "grad_input", "tf32", "nchw", "loom", "64 channels, 1 phases"),
        (odd, "forward", "tf32", "nchw", "scroll", "bytes of channels"),
        (halved, "grad_input", "tf32", "nchw", "scroll", "bytes of channels"),
        (WINDOW, "forward", "tf32", "nchw", "scroll", " turning"),  # seven kernel columns
        (upscaled, "grad_input", "f16", "nchw", "plait", "rows of 9 taps"),
        (stepped, "grad_input", "tf32", "nchw", "loom", ", parts"),
        (long, "forward", "tf32", "nchw", "loom", "64 channels, 1 phases"),
        (few, "grad_weight", "f16", "nhwc", "hopper", "pairs, dY fetched"),
    ):
        text = explain(case, direction, dtype, layout, "h200")
        assert chosen(text) == family and words in text.splitlines()[1], text


@needs_cuda_room
def test_walks_that_wait_for_memory_at_every_step_are_left_to_strips():
    case = Case("upsampled", 8, 48, 48, (72, 80), (8, 8), (4, 4), (2, 2), groups=48)
    text = explain(case, "forward", "f16", "nchw", "h200")
    assert chosen(text) == "depthwise" and "strips of 8" in text.splitlines()[1], text


@needs_cuda_room
def test_short_sums_of_strict_fp32_are_left_to_plain_multiply_adds():
    for channels, served in ((63, False), (64, True)):
        case = Case("short", 8, channels, 64, (64, 64), (2, 2), (2, 2))
        text = explain(case, "forward", "f32", "nchw", "h200")
        assert (chosen(text) == "fold") == served, text
        for family in ("fold", "hopper"):
            assert served or "fewer than 64" in refusal(text, family), text


@needs_cuda_room
@pytest.mark.parametrize("dtype", ("f16", "tf32", "f32"))
def test_phases_get_blocks_by_their_work(dtype):
    """Of a 3 x 3 kernel with stride 2, even rows have half of the taps; of 4 x 4, all the same."""
    for kernel in (3, 4):
        case = Case("halves", 8, 256, 256, (48, 64), (kernel, kernel), (2, 2), (1, 1))
        text = explain(case, "forward", dtype, "nhwc", "h200", "hopper").splitlines()[1]
        blocks = [int(number) for number in re.search(r"blocks ([\d +]+)", text)[1].split("+")]
        assert len(blocks) > 1 and sum(blocks) <= 132, text
        most = max(blocks) / min(blocks)
        assert 1.3 <= most <= 4 if kernel == 3 else most < 1.2, text


@needs_cuda_room
def test_hopper_cuts_grad_weight_alike_on_every_gpu():
    kinds = (("f16", "nhwc"), ("bf16", "nhwc"), ("f16", "nchw"), ("tf32", "nchw"), ("f32", "nchw"))
    for case, (dtype, layout) in itertools.product((MANY, SHUFFLE), kinds):
        notes = set()
        for board in HOPPER:
            text = explain(case, "grad_weight", dtype, layout, board, "hopper")
            assert chosen(text) == "hopper", text
            notes.add(re.search(r"^forced: hopper \((.*?)\) predicted", text, re.MULTILINE)[1])
        assert len(notes) == 1, notes


@needs_cuda_room
def test_hopper_says_why_it_leaves_a_grad_weight():
    for case, dtype, layout, words in (
        (MANY, "f32", "nhwc", "cannot turn"),
        (dataclasses.replace(MANY, out_channels=90), "tf32", "nhwc", "vectors"),
        (MANY, "f16", "strided", "vectors of channels"),
        (Case("odd", 2, 68, 64, (7, 7), (2, 2), (2, 2)), "f16", "nchw", "planes of x"),
        (Case("huge", 9000, 64, 73, (21, 21), (2, 2), (2, 2)), "f16", "nchw", "2 GiB"),
        (Case("apart", 2, 64, 64, (8, 8), (9, 2), (9, 2)), "f16", "nchw", "7 rows"),
        (
            Case("up", 2, 64, 65, (9, 9), (3, 3), padding=(10**8, 0), dilation=(10**8, 1)),
            "f16",
            "nchw",
            "too far apart for threads",
        ),
        (Case("wide", 2, 64, 64, (8, 64), (2, 16), (2, 8)), "f16", "nchw", "too long"),
        (FEW, "f16", "nhwc", "vectors of channels"),
        (Case("far", 2, 64, 64, (8, 8), (3, 3), dilation=(20000, 1)), "f16", "nhwc", "too far"),
        (Case("skips", 2, 64, 64, (8, 8), (9, 9), (9, 1)), "f16", "nhwc", "skip 8 pixels"),
        (Case("taps", 2, 64, 64, (8, 8), (12, 12)), "f16", "nhwc", "144 taps"),
    ):
        reason = refusal(explain(case, "grad_weight", dtype, layout), "hopper")
        assert reason and words in reason, reason


@needs_cuda_room
def test_igemm_says_why_it_leaves_a_grad_weight():
    for case, dtype, layout, board, words in (
        (MANY, "f32", "nchw", "h200", "strict fp32"),
        (MANY, "f64", "nchw", "h200", "fp64"),
        (MANY, "f16", "nchw", "t4", "sm_80"),
        (
            Case("far", 2, 32, 32, (8, 8), (3, 3), dilation=(20000, 1)),
            "f16",
            "nchw",
            "h200",
            "taps reach",
        ),
        (Case("long", 2, 32, 32, (4, 4), (3, 200)), "f16", "nchw", "h200", "kernel extent 200"),
    ):
        reason = refusal(explain(case, "grad_weight", dtype, layout, board), "igemm")
        assert reason and words in reason, reason


@needs_cuda_room
@pytest.mark.parametrize("board", BOARDS)
def test_every_problem_has_a_plan_and_every_refusal_a_reason(board):
    for case, direction, dtype, layout in itertools.product(CASES, DIRECTIONS, DTYPES, LAYOUTS):
        text = explain(case, direction, dtype, layout, board)
        assert chosen(text) in FAMILIES
        assert re.search(r"predicted \d", text) and re.search(r"floor \d", text), text
        for family in FAMILIES:
            reason = refusal(text, family)
            assert reason is None or len(reason) > 10, text


@needs_cuda_room
@pytest.mark.parametrize("dtype", ("f16", "tf32"))
def test_who_takes_no_view_takes_none_on_either_side(dtype):
    """Dense memory that starts off 16 bytes is a view too, which kernels of vectors cannot load."""
    views = (("strided", "nchw", "nchw"), ("nchw", "nchw", "strided"))
    for case, direction in itertools.product((SAME, WINDOW, ROWS, LAST_UP), DIRECTIONS):
        of_views = explain(case, direction, dtype, "strided")
        for layout in views:
            text = explain(case, direction, dtype, layout)
            for family in FAMILIES:
                if refusal(of_views, family):
                    assert refusal(text, family), (family, direction, layout, text)


@needs_cuda_room
def test_the_choice_is_the_cheapest():
    for case, dtype in itertools.product(CASES, DTYPES):
        text = explain(case, "forward", dtype)
        offers = [float(us) for us in re.findall(r"(?:predicted|  ) ?([\d.]+) us", text)]
        assert offers and offers[0] == min(offers), text


@needs_cuda_room
def test_predictions_respect_physics():
    """No plan is faster than its floor, and more work is not cheaper."""
    for case, dtype in itertools.product(CASES, DTYPES):
        times = []
        for factor in (1, 64):
            larger = dataclasses.replace(case, batch=case.batch * factor)
            text = explain(larger, "forward", dtype)
            predicted, floor = (
                float(re.search(rf"{word} ([\d.]+) us", text)[1]) for word in ("predicted", "floor")
            )
            assert predicted >= 0.95 * floor, text
            times.append(predicted)
        assert times[1] >= times[0], case


@needs_cuda_room
def test_workspace_only_in_grad_weight_and_bounded():
    huge = Case("huge", 64, 512, 512, (64, 64), (4, 4), (2, 2), (1, 1))
    long = Case("long", 4096, 3, 5, (64, 64), (3, 3), (1, 1), (1, 1))
    for case, direction, dtype in itertools.product((*CASES, huge, long), DIRECTIONS, DTYPES):
        for family in FAMILIES:
            text = explain(case, direction, dtype, family=family)
            used = re.search(r"workspace (\d+) bytes", text)
            if used:
                assert direction == "grad_weight" and int(used[1]) <= WORKSPACE, text


@needs_cuda_room
def test_spool_cuts_a_batch_whose_copies_are_too_large():
    text = explain(MANY, "grad_weight", "f16", "nchw", "h200", "spool")
    assert re.search(r"a reel of \d+ slices", text), text
    deep = explain(DEEP, "grad_weight", "f16", "nchw", "h200", "spool")
    assert re.search(r"a reel of \d+ slices", deep), deep
    small = explain(VOCODER, "grad_weight", "f16", "nchw", "h200", "spool")
    assert "turned," in small, small
    odd = dataclasses.replace(MANY, batch=64, size=(41, 57))
    refused = explain(odd, "grad_weight", "f16", "nchw", "h200", "direct")
    assert "planes are no whole 16 bytes" in refused, refused


@needs_cuda_room
def test_sizes_beyond_32_bits():
    wide = Case("wide", 3, 64, 64, (4096, 4096), (4, 4), (2, 2), (1, 1))
    for direction, dtype, layout in itertools.product(DIRECTIONS, DTYPES, LAYOUTS):
        assert chosen(explain(wide, direction, dtype, layout)) in FAMILIES
        assert chosen(explain(wide, direction, dtype, layout, family="direct")) == "direct"


@needs_cuda_room
def test_folded_windows_have_rows_of_their_own():
    """Rows of y as long as the kernel fold into one; igemm's planner divided by zero."""
    column = Case("column", 130, 16, 4, (2, 1), (4, 2), (2, 2))
    for direction, dtype, layout in itertools.product(DIRECTIONS, DTYPES, LAYOUTS):
        assert chosen(explain(column, direction, dtype, layout)) in FAMILIES


@needs_cuda_room
def test_turing_has_no_tensor_core_family():
    """mma.sync in the shapes we use begins with sm_80; only what needs no tensor core may run."""
    for case, dtype in itertools.product(CASES, ("bf16", "tf32", "f16")):
        family = chosen(explain(case, "forward", dtype, device="t4"))
        assert family in ("direct", "depthwise", "mite"), case.name


@needs_cuda_room
def test_unknown_board():
    with pytest.raises(REFUSALS, match="voodoo"):
        explain(CASES[0], device="voodoo2")


@needs_cuda_room
def test_unknown_algorithm():
    case = CASES[0]
    sizes = [case.batch, case.in_channels, case.out_channels, case.groups] + [8, 16, 2, 2, 0, 1] * 2
    with pytest.raises(REFUSALS, match="does not exist"):
        INNER.explain(0, 2, 0, sizes, [0, 0, 0], 0, "h200", 99)


def test_the_cpu_plans_everything():
    for case, direction, dtype, layout in itertools.product(CASES, DIRECTIONS, DTYPES, LAYOUTS):
        assert chosen(explain(case, direction, dtype, layout, "cpu")) == "direct"


def test_illegal_problems_are_named():
    good = CASES[0]
    for change, word in (
        ({"groups": 5}, "groups"),
        ({"stride": (2**31, 1)}, "stride"),
        ({"dilation": (1, 2**40)}, "dilation"),
        ({"batch": 0}, "batch"),
        ({"size": (2**14, 2**14), "batch": 2**31}, "elements"),
    ):
        case = dataclasses.replace(good, **change)
        try:
            text = explain(case, device="cpu")
        except REFUSALS as error:
            text = str(error)
        assert "not a legal problem" in text and word in text, text


def test_explain_op_checks_its_arguments():
    with pytest.raises(REFUSALS, match="16 sizes"):
        INNER.explain(0, 2, 0, [1, 2, 3], [0, 0, 0], 0, "cpu", -1)
    with pytest.raises(REFUSALS, match="dtype 9"):
        INNER.explain(0, 9, 0, [1] * 16, [0, 0, 0], 0, "cpu", -1)
    assert torch.ops.convt2d.families("cpu") == "direct"
