#include "cuda/cuda_families.h"

#include <array>
#include <utility>

#include "cuda/braid/braid.h"
#include "cuda/comb/comb.h"
#include "cuda/crimp/crimp.h"
#include "cuda/depthwise/depthwise.h"
#include "cuda/dimity/dimity.h"
#include "cuda/direct/direct.h"
#include "cuda/fan/fan.h"
#include "cuda/fan/fan_plan.h"
#include "cuda/fold/fold.h"
#include "cuda/fringe/fringe.h"
#include "cuda/gauze/gauze.h"
#include "cuda/hank/hank.h"
#include "cuda/hopper/hopper.h"
#include "cuda/hopper/hopper_plan.h"
#include "cuda/igemm/igemm.h"
#include "cuda/igemm/igemm_plan.h"
#include "cuda/loom/loom.h"
#include "cuda/loom/loom_plan.h"
#include "cuda/mite/mite.h"
#include "cuda/narrow/narrow.h"
#include "cuda/plain/plain.h"
#include "cuda/plait/plait.h"
#include "cuda/pleat/pleat.h"
#include "cuda/purl/purl.h"
#include "cuda/quilt/quilt.h"
#include "cuda/reed/reed.h"
#include "cuda/rows/rows.h"
#include "cuda/scroll/scroll.h"
#include "cuda/shuttle/shuttle.h"
#include "cuda/skein/skein.h"
#include "cuda/slide/slide.h"
#include "cuda/spool/spool.h"
#include "cuda/spool/spool_plan.h"
#include "cuda/spread/spread.h"
#include "cuda/strand/strand.h"
#include "cuda/ticking/ticking.h"
#include "cuda/treadle/treadle.h"
#include "cuda/tuft/tuft.h"
#include "cuda/twill/twill.h"

namespace convt2d::cuda {

// The position is the value of `algorithm`, and decides between equal predictions.
FamilyList families() {
  static const Family list[] = {
      depthwise_family,  // one input channel a group: bound by memory, so no tile of a GEMM
      hank_family,  // sm_90a: NHWC grad_weight of one input and output channel a group, on tensor cores' diagonals
      plain_family,  // sm_90a: 16-bit NCHW, kernels of one tap: planes are rows of a matrix, in all three passes
      fold_family,  // sm_90a: 16-bit NCHW forward, operands as they lie, taps added up afterwards
      tuft_family,  // sm_90a: NCHW forward of kernels that are their stride, x and w as they lie, planes of any size
      twill_family,  // sm_90a: 16-bit NCHW forward of 3 x 3 kernels with stride 2; tap columns added up in registers
      gauze_family,  // sm_90a: NCHW forward of 3 x 3 and 4 x 4 kernels with stride 2, few input channels; pixels out of registers
      pleat_family,  // sm_90a: 16-bit NCHW forward of 4 x 4 kernels with stride 2; likewise, added up in registers
      crimp_family,  // sm_90a: likewise, and TF32, of kernels of one column and two strides' rows, added up by the tensor core
      slide_family,  // sm_90a: 16-bit NCHW with short kernel rows, whose columns are added up afterwards
      narrow_family,  // sm_90a: forward to at most four output channels; kernel columns likewise; their grad_weight
      spread_family,  // sm_90a: forward, all taps of a pixel side by side, whatever the channels; NHWC grad_input
      fan_family,  // sm_90a: TF32 NCHW forward, a pixel fetched once for all phases that read it
      loom_family,  // sm_90a: NCHW forward and grad_input, weights fetched, pixels turned once for all taps
      scroll_family,  // sm_90a: NHWC forward of few channels, a pixel multiplied once for all kernel rows
      hopper_family,  // sm_90a's own tensor-core instructions: fp16, bf16, tf32, strict fp32 as 3 x tf32
      plait_family,  // sm_90a: 16-bit NCHW grad_input, what taps read of dY written out once for all channels
      purl_family,  // sm_90a: NCHW grad_input of short, even kernel rows, dY and w as they lie, nothing written out
      quilt_family,  // sm_90a: NCHW grad_weight of kernels that are their stride, runs of dY as they lie
      braid_family,  // sm_90a: NCHW grad_weight of taps along one axis, rows of x and dY as they lie
      fringe_family,  // sm_90a: NCHW grad_weight of few output channels and taps, x as it lies, dY written out by tap
      spool_family,  // sm_90a: 16-bit NCHW grad_weight, turned to channels last for hopper
      comb_family,  // sm_80: NCHW grad_weight of kernel rows and strides of whole fours, taps as columns
      strand_family,  // clusters: grad_input of few outputs and long sums, which clusters share; operands as they lie
      ticking_family,  // sm_90a: NCHW grad_input of few channels of a group, whole rows of dY by bulk copies, sums in registers
      dimity_family,  // sm_90a: grad_weight of few channels of a group, bound by moving dY: rows of it as they lie, all taps in registers
      skein_family,  // sm_90a: NCHW grad_weight of depthwise layers, bands of planes by the copy engine, taps as columns
      shuttle_family,  // sm_90a: 16-bit NCHW grad_weight, rows of dY turned once for all taps
      treadle_family,  // sm_90a: grad_weight of few channels and stride 1, two taps or lines to an instruction
      reed_family,  // sm_80: forward of large kernels and strides, all phases as rows of one GEMM, weights as they lie
      igemm_family,  // tensor cores, sm_80 and up: fp16, bf16, tf32, and strict fp32 as 3 x tf32
      rows_family,  // sm_90a: NCHW forward that is bound by writing y: whole rows of it, all phases at once
      mite_family,  // few channels and taps, small: a patch of the source, no tensor cores, little code
      direct_family,  // any dtype, strides, geometry and size; declines nothing, so it stays last
  };
  constexpr int kCount = sizeof list / sizeof *list;
  static const std::array<Search, kCount> searches = [] {
    const std::pair<const Family&, Search> have_many[] = {{fan_family, fan::search},
                                                          {loom_family, loom::search},
                                                          {hopper_family, hopper::search},
                                                          {spool_family, spool::search},
                                                          {igemm_family, igemm::search}};
    std::array<Search, kCount> found{};
    for (int i = 0; i < kCount; ++i)
      for (const auto& [family, search] : have_many)
        if (list[i].plan == family.plan) found[i] = search;
    return found;
  }();
  return {list, kCount, searches.data()};
}

}  // namespace convt2d::cuda
