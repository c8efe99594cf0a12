// Spans of all types.
#include "cuda/strand/strand_launch.cuh"
#include "cuda/strand/strand_spans.cuh"

namespace convt2d::cuda::strand {
namespace {

template <class M, bool PIXELS>
void launch(const SpanParams& params, int64_t tiles, const CUtensorMap& source,
            const CUtensorMap& weights, void* stream) {
  constexpr auto kernel = convt2d_strand_spans_kernel<M, PIXELS>;
  allow_shared_memory<kernel>(params.shared_bytes);
  if (params.ranks > kPortableRanks) allow_large_clusters<kernel>();
  launch_ranks(kernel, tiles, params.ranks, params.groups * 128 + 32, params.shared_bytes, stream,
               params, source, weights);
}

}  // namespace

void launch_spans(DType dtype, bool pixels, const SpanParams& params, int64_t tiles,
                  const CUtensorMap& source, const CUtensorMap& weights, void* stream) {
  const auto run = dtype == DType::f16    ? pixels ? launch<MmaF16, true> : launch<MmaF16, false>
                   : dtype == DType::bf16 ? pixels ? launch<MmaBF16, true> : launch<MmaBF16, false>
                   : pixels               ? launch<MmaTF32, true>
                                          : launch<MmaTF32, false>;
  run(params, tiles, source, weights, stream);
}

}  // namespace convt2d::cuda::strand
