"""The named case table: one row for every regime of the operator, for the tests and the bench.

Small enough that a CPU runs a row in milliseconds, ragged enough that no tile of a kernel fits.
A case is plain numbers (no torch), so that it prints as its own constructor call.
"""

from __future__ import annotations

from dataclasses import dataclass

Pair = tuple[int, int]


@dataclass(frozen=True)
class Case:
    name: str
    batch: int
    in_channels: int
    out_channels: int
    size: Pair  # (H_in, W_in)
    kernel: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    output_padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1

    @property
    def x_shape(self) -> tuple[int, int, int, int]:
        return (self.batch, self.in_channels, *self.size)

    @property
    def w_shape(self) -> tuple[int, int, int, int]:
        return (self.in_channels, self.out_channels // self.groups, *self.kernel)

    @property
    def out_size(self) -> Pair:
        height, width = (
            (self.size[a] - 1) * self.stride[a]
            - 2 * self.padding[a]
            + self.dilation[a] * (self.kernel[a] - 1)
            + self.output_padding[a]
            + 1
            for a in (0, 1)
        )
        return height, width

    @property
    def y_shape(self) -> tuple[int, int, int, int]:
        return (self.batch, self.out_channels, *self.out_size)

    @property
    def arguments(self) -> dict[str, Pair | int]:
        """The keyword arguments of F.conv_transpose2d."""
        return {
            "stride": self.stride,
            "padding": self.padding,
            "output_padding": self.output_padding,
            "groups": self.groups,
            "dilation": self.dilation,
        }

    def terms(self, direction: str) -> int:
        """The most products that one result element of a direction can sum."""
        taps = self.kernel[0] * self.kernel[1]
        return {
            "forward": self.in_channels // self.groups * taps,
            "grad_input": self.out_channels // self.groups * taps,
            "grad_weight": self.batch * self.size[0] * self.size[1],
            "grad_bias": self.batch * self.out_size[0] * self.out_size[1],
        }[direction]


def _pair(value: int | Pair) -> Pair:
    return (value, value) if isinstance(value, int) else value


def _case(
    name: str,
    channels: Pair,
    size: int | Pair,
    k: int | Pair,
    s: int | Pair = 1,
    p: int | Pair = 0,
    op: int | Pair = 0,
    d: int | Pair = 1,
    g: int = 1,
    n: int = 2,
) -> Case:
    return Case(
        name, n, *channels, _pair(size), _pair(k), _pair(s), _pair(p), _pair(op), _pair(d), g
    )


CASES: tuple[Case, ...] = (
    # Kernel = stride: one GEMM and a pixel shuffle.
    _case("k2s2", (16, 24), (9, 7), k=2, s=2),
    _case("k2s2_odd_width", (37, 21), (3, 37), k=2, s=2),
    _case("k2s2_many_tiles", (72, 136), (11, 13), k=2, s=2, n=1),
    _case("k3s3_odd_channels", (17, 3), (5, 6), k=3, s=3, n=3),
    _case("k4s4", (12, 10), (5, 4), k=4, s=4),
    _case("k4s4_even_planes", (32, 24), (5, 6), k=4, s=4),
    _case("k2s2_cropped", (8, 8), (9, 9), k=2, s=2, p=1, op=1),
    _case("k2s2_even_planes", (72, 40), (8, 12), k=2, s=2),
    _case("k2s2_even_planes_op1", (64, 48), (4, 16), k=2, s=2, op=1, n=1),
    _case("k3s3_even_planes_groups", (128, 48), (6, 8), k=3, s=3, g=2),
    # The limits of a GEMM: 1x1 kernels, one pixel.
    _case("1x1", (37, 21), (7, 9), k=1),
    _case("1x1_one_channel", (1, 1), (3, 5), k=1, n=1),
    _case("1x1_even_planes", (40, 72), (4, 10), k=1),
    _case("pixel_to_4x4", (100, 40), 1, k=4, n=9),
    _case("pixel_to_rows", (24, 16), 1, k=(2, 5), s=3, n=17),
    _case("pixel_k3s1p1", (16, 8), 1, k=3, p=1, n=33),
    _case("pixel_k5s2p2op1", (9, 7), 1, k=5, s=2, p=2, op=1, n=5),
    # Stride 1: a halo and flipped taps.
    _case("k3s1", (16, 16), (6, 5), k=3),
    _case("k3s1p1", (32, 40), (17, 13), k=3, p=1),
    _case("k5s1p2", (8, 12), (11, 9), k=5, p=2),
    _case("k7s1p3_to_3", (24, 3), (9, 12), k=7, p=3, n=1),
    _case("k3s1p1_odd_width", (17, 37), (4, 129), k=3, p=1, n=1),
    # Stride 2 and more, kernel larger than stride: the workhorses.
    _case("k4s2p1", (64, 48), (9, 8), k=4, s=2, p=1),
    _case("k4s2p1_odd_channels", (37, 21), (5, 7), k=4, s=2, p=1, n=3),
    _case("k4s2p1_wide_row", (16, 16), (2, 129), k=4, s=2, p=1, n=1),
    _case("k4s2p1_many_channels", (386, 17), (3, 5), k=4, s=2, p=1, n=1),
    _case("k4s2p1_to_many_channels", (17, 386), (3, 4), k=4, s=2, p=1, n=1),
    _case("k4s2p1_shifted_rows", (256, 24), (6, 20), k=4, s=2, p=1),
    _case("k4s2p1_spread_rows", (256, 24), (8, 6), k=4, s=2, p=1, n=9),
    _case("k4s2p1_loose_planes", (72, 5), (6, 10), k=4, s=2, p=1, n=3),
    _case("k4s2p1_rows_of_16", (40, 20), (19, 16), k=4, s=2, p=1),
    _case("k4s2_rows_of_32", (48, 36), (5, 32), k=4, s=2, op=(1, 0), g=2),
    _case("k4s2p1_rows_of_24", (32, 9), (6, 24), k=4, s=2, p=1, n=3),
    _case("k4s2p1_rows_of_64", (24, 17), (3, 64), k=4, s=2, p=1, op=1, n=1),
    _case("k8s4_columns", (40, 20), (5, 112), k=(8, 1), s=(4, 1)),
    _case("k8s4p2_columns", (72, 9), (6, 40), k=(8, 1), s=(4, 1), p=(2, 0), op=(1, 0), g=3),
    _case("k4s2p1_columns", (33, 6), (5, 136), k=(4, 1), s=(2, 1), p=(1, 0), n=1),
    _case("k16s8p8_columns", (24, 5), (3, 24), k=(16, 1), s=(8, 1), p=(8, 0), op=(7, 0), n=3),
    # Rows of taps, whose weights' gradient takes rows of x and dY as they lie.
    _case("k16s8p4_row", (24, 12), (1, 40), k=(1, 16), s=(1, 8), p=(0, 4), n=3),
    _case("k4s2p1_rows", (40, 6), (3, 72), k=(1, 4), s=(1, 2), p=(0, 1)),
    _case("k3s2p1op1", (32, 24), (8, 8), k=3, s=2, p=1, op=1),
    _case("k3s2p1op1_odd_width", (21, 35), (5, 37), k=3, s=2, p=1, op=1, n=1),
    _case("k3s2_many_tiles", (136, 72), (12, 11), k=3, s=2, n=1),
    _case("k5s2p2op1", (16, 12), (7, 5), k=5, s=2, p=2, op=1),
    _case("k5s3p1", (10, 20), (6, 7), k=5, s=3, p=1),
    _case("k5s3p1_even_rows", (40, 72), (4, 22), k=5, s=3, p=(1, 2), n=1),
    _case("k8s4p2", (8, 16), (5, 6), k=8, s=4, p=2),
    _case("k3s2p1_stride_by_axis", (16, 8), (6, 7), k=3, s=(2, 1), p=1),
    # Dilation, with and without stride.
    _case("kernelbench_75", (32, 64), (9, 13), k=(3, 5), s=(2, 3), p=(1, 2), d=(2, 1), g=4),
    _case("d2s1p2", (16, 16), (8, 9), k=3, p=2, d=2),
    _case("d2_even_rows_groups", (128, 128), (6, 8), k=3, s=(1, 2), p=2, op=(0, 1), d=2, g=2),
    _case("d2s2_empty_phases", (8, 12), (6, 5), k=3, s=2, p=1, d=2),
    _case("d2s3", (9, 8), (5, 6), k=3, s=3, p=2, op=2, d=2),
    _case("d4s6_shared_divisor", (6, 8), (4, 5), k=4, s=6, p=3, op=5, d=4),
    _case("d3_output_padding_past_stride", (8, 8), (6, 6), k=3, s=1, p=1, op=2, d=3),
    _case("d5s2_output_padding_past_stride", (5, 6), (4, 5), k=2, s=2, p=1, op=4, d=5),
    # Kernel smaller than stride: phases without a tap get the bias alone.
    _case("k1s2", (16, 8), (5, 6), k=1, s=2),
    _case("k2s3op2", (8, 16), (6, 5), k=2, s=3, op=2),
    _case("k3s5d2", (6, 7), (4, 5), k=3, s=5, p=1, d=2),
    # Few channels on one side.
    _case("from_1", (1, 33), (9, 11), k=4, s=2, p=1),
    _case("from_2", (2, 17), (9, 8), k=3, s=2, p=1, op=1),
    _case("from_4_s1", (4, 20), (8, 9), k=3, p=1),
    _case("k9s2_to_1", (56, 1), (10, 11), k=9, s=2, p=4, op=1),
    _case("to_2", (40, 2), (9, 8), k=4, s=2, p=1),
    _case("to_4_k2s2", (33, 4), (7, 9), k=2, s=2),
    # Groups of 2 to 32 channels.
    _case("groups_of_2", (16, 16), (9, 7), k=3, s=2, p=1, op=1, g=8),
    _case("groups_of_3_to_5", (12, 20), (6, 7), k=3, p=1, g=4),
    _case("groups_of_4", (24, 24), (7, 9), k=4, s=2, p=1, g=6),
    _case("groups_of_8_k2s2", (16, 16), (6, 9), k=2, s=2, g=2),
    _case("groups_of_16", (48, 48), (5, 6), k=4, s=2, p=1, g=3),
    _case("groups_of_32_to_16", (64, 32), (6, 5), k=3, s=2, n=1, g=2),
    # Depthwise, its multiplier and its reverse.
    _case("depthwise_k3s1", (18, 18), (9, 10), k=3, p=1, g=18),
    _case("depthwise_k4s2p1", (33, 33), (7, 9), k=4, s=2, p=1, g=33),
    _case("depthwise_k3s2_multiplier_3", (10, 30), (6, 7), k=3, s=2, p=1, op=1, g=10),
    _case("depthwise_reduce_4", (24, 6), (6, 7), k=3, s=2, p=1, g=6),
    _case("depthwise_k16s8", (9, 9), (4, 5), k=16, s=8, p=4, g=9),
    # What keeps y in registers: whole vectors of columns, or of channels.
    _case("depthwise_k4s2_vectors", (32, 32), (9, 12), k=4, s=2, p=1, g=32),
    _case("depthwise_k15s8_vectors", (16, 16), (3, 5), k=15, s=8, p=4, op=1, g=16),
    # Rows of whole vectors, in 32 bits too.
    _case("depthwise_k4s2_rows", (24, 24), (9, 16), k=4, s=2, p=1, g=24),
    _case("depthwise_k16s8_rows", (16, 16), (5, 16), k=16, s=8, p=4, g=16),
    # A plane of as many rows as a box of the copy engine has, and one row more of x.
    _case("depthwise_tall", (8, 8), (510, 8), k=(2, 1), g=8, n=1),
    _case("depthwise_d2s2", (12, 12), (6, 6), k=3, s=2, d=2, g=12),
    # Of one pixel; boxes that step over five.
    _case("pixel_k5s5", (8, 64), (1, 1), k=5, s=5, op=1, n=1),
    # Large kernels with large strides.
    _case("k64s32", (3, 5), (2, 3), k=(64, 16), s=(32, 8), p=(16, 4), n=1),
    _case("k16s8_dense", (5, 4), (4, 3), k=16, s=8, p=4, n=1),
    _case("short_rows_k4s2", (40, 70), (8, 6), k=4, s=2, p=1),
    _case("k8s4_rows", (40, 6), (3, 5), k=(4, 8), s=4, p=(1, 4), d=(2, 1), n=3),
    _case("k4s8_groups", (40, 6), (5, 6), k=(3, 4), s=(2, 8), p=(1, 0), g=2),
    _case("k32s16_unpadded", (5, 20), (2, 3), k=32, s=16, n=1),
    _case("k32s16_rows", (6, 20), (4, 5), k=(5, 32), s=(4, 16)),
    # Few positions and long sums: grad_input of the first, forward of the second.
    _case("to_600_channels", (12, 600), 3, k=3, p=1, n=1),
    _case("from_600_channels", (600, 12), 3, k=3, p=1, n=1),
    # One real axis.
    _case("1d_tall", (16, 12), (24, 1), k=(8, 1), s=(4, 1), p=(2, 0)),
    _case("1d_tall_k4s2", (40, 24), (90, 1), k=(4, 1), s=(2, 1), p=(1, 0)),
    _case("1d_wide", (12, 16), (1, 33), k=(1, 16), s=(1, 8), p=(0, 4)),
    _case("column_kernel", (8, 6), (9, 11), k=(8, 1), s=(2, 1), p=(3, 0), n=1),
    _case("row_kernel", (6, 8), (5, 12), k=(1, 5), s=(1, 2), p=(0, 2), op=(0, 1), n=1),
    # Planes under 1 x 1 kernels, which are rows.
    _case("1x1_planes", (40, 24), (9, 14), k=1),
    # Crops beyond the kernel's reach, and everything different on the two axes.
    _case("padding_past_the_kernel", (8, 8), (9, 8), k=2, s=2, p=3),
    _case("1x1_padding_2", (6, 10), (7, 6), k=1, p=2),
    _case("crop_to_one_pixel", (8, 4), (3, 3), k=3, p=2),
    _case(
        "nothing_alike", (12, 18), (5, 8), k=(4, 3), s=(3, 2), p=(2, 1), op=(1, 2), d=(1, 3), g=6
    ),
    # Rows of whole vectors: several tiles side by side, more rows than a tile has, odd rows of y.
    _case("rows_k3", (16, 40), (5, 136), k=3, n=1),
    _case("rows_k4_op", (24, 20), (6, 72), k=4, s=2, p=1, op=1, n=1),
    _case("rows_k4_op_even_channels", (24, 40), (6, 72), k=4, s=2, p=1, op=1, n=1),
    _case("k3s2p1_twice", (40, 72), (5, 64), k=3, s=2, p=1, op=1),
    _case("k3s2p1_twice_strips", (48, 32), (3, 136), k=3, s=2, p=1, op=(0, 1), g=2, n=1),
    _case("k3s2_rows_of_64", (40, 72), (5, 64), k=3, s=2),
    _case("k3s2p1_rows_of_16", (24, 48), (17, 16), k=3, s=2, p=(1, 0), op=(1, 0), g=2),
    _case("k3s2p1_twice_rows_of_8", (20, 136), (19, 8), k=3, s=2, p=1, op=1, n=3),
    _case("rows_k4_strips", (20, 17), (5, 128), k=4, s=2, p=1, n=1),
    _case("rows_k4_strips_groups", (32, 34), (6, 200), k=4, s=2, p=(0, 2), op=(0, 1), g=2, n=1),
    # Even rows of no whole eights, in planes of such: two images in a tile, several tiles of one.
    _case("k4s2p1_rows_of_6", (40, 17), (8, 6), k=4, s=2, p=1, n=3),
    _case("k4s2_rows_of_28", (32, 20), (10, 28), k=4, s=2, p=(1, 2), op=(1, 0), g=2, n=1),
    _case("rows_k3s2", (8, 36), (5, 136), k=3, s=2),
    _case("rows_k5_groups", (32, 20), (7, 40), k=(3, 5), p=(1, 0), g=2, n=1),
    _case("rows_k7", (12, 34), (9, 72), k=(3, 7), p=(1, 3), n=1),
    _case("rows_high_stride", (8, 10), (5, 40), k=(2, 4), s=(3, 2), p=(0, 1), op=(1, 0)),
    # Rows of y that are no whole vectors, of as many channels and pixels as make hopper fetch them,
    # in 16 bits and in TF32 too; with zeros beside them and without.
    _case("odd_rows_k3s2", (72, 8), (17, 19), k=3, s=2, n=8),
    _case("odd_rows_k4s2", (136, 4), (17, 19), k=4, s=2, p=1, n=8),
    # Planes of x that are no whole vectors, moved before they are multiplied; and rows of y that
    # threads bring because tiles are runs of such planes.
    _case("odd_planes_k4s4", (64, 32), (11, 13), k=4, s=4, n=2),
    _case("odd_planes_k2s2", (72, 40), (14, 14), k=2, s=2, n=5),
    _case("odd_planes_groups", (64, 48), (5, 7), k=3, s=2, p=1, op=1, g=2, n=1),
    # Such planes, whose lines tuft brings in two boxes and in four.
    _case("planes_of_27_k2x4", (72, 24), (3, 9), k=(2, 4), s=(2, 4), n=3),
    _case("planes_of_22_k8", (40, 4), (2, 11), k=(3, 8), s=(3, 8), n=2),
    # Planes of which purl wants kernel rows.
    _case("k4s4_kernel_rows", (64, 16), (17, 19), k=4, s=4, n=1),
    # Few channels of x, rows of whole sixteens, one strip of them and two.
    _case("k3s2_rows_of_48", (36, 40), (7, 48), k=3, s=2, p=1, op=1),
    _case("k4s2_rows_of_80", (24, 72), (5, 80), k=4, s=2, p=1),
    # Few channels of y: their taps are all of K, two of 16 bits a word where stride and rows are
    # even.
    _case("k9s2_to_1_channel", (40, 1), (9, 20), k=9, s=2, p=4, op=1),
    _case("k4s2_to_3_channels", (40, 3), (10, 16), k=4, s=2, p=1),
    # Odd channels of y: what a kernel row reads of a pixel starts at words, or does not.
    _case("k4s2_to_17_channels", (72, 17), (10, 12), k=4, s=2, p=1),
    _case("k4s2_of_whole_planes", (32, 17), (14, 14), k=4, s=2, p=1, n=150),
    _case("k3s1_to_13_channels", (136, 13), (7, 9), k=3, p=1, n=8),
    # Whole rows of y by one block, some of them without taps; a group's channels are no whole units
    # of 16 bytes.
    _case("whole_rows", (12, 24), (9, 70), k=(3, 5), s=(2, 3), p=(1, 2), op=(1, 1), d=(2, 1)),
    _case("whole_rows_groups", (20, 40), (6, 50), k=3, s=5, p=1, op=(0, 2), d=2, g=2, n=3),
    # Many images.
    _case("batch_800", (8, 6), 3, k=3, s=2, p=1, op=1, n=800),
    _case("batch_1", (16, 16), (7, 6), k=4, s=2, p=1, n=1),
    # More tiles than any GPU has multiprocessors.
    _case("many_tiles", (8, 10), (64, 80), k=4, s=2, p=1, n=16),
    _case("many_tiles_k3", (6, 9), (96, 90), k=3, p=1, n=8),
)

BY_NAME: dict[str, Case] = {case.name: case for case in CASES}
assert len(BY_NAME) == len(CASES), "case names are unique"
