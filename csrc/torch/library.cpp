// The schemas of the inner ops, and the module that Python imports to load them. Nothing else.
//
// The inner ops are what the Python layer is built from: 4-D tensors, scalars instead of lists (cheaper
// to unpack), no default values (the dispatcher drops trailing defaults before fake kernels see them).
// `pad` is the near pad; together with the extent of the result it stands in for padding,
// output_padding and output_size. `channels_last` is the memory format of the result. `precision` is
// 0 ieee, 1 tf32, 2 ask convt2d::ambient_precision when the op runs. `algorithm` indexes families();
// -1 lets the planner choose.
//
// torch asks every argument of a call from Python whether it is a tensor, and slowly: a dozen scalars
// take longer than the rest of a small op. So each of these ops has an overload that takes its scalars
// in one string, "2,2,1,1,8,8,...". It is for plain eager calls; graphs get the scalars, which may be
// symbolic (_inner.py).

#include <Python.h>
#include <torch/csrc/stable/library.h>

#include <string>

// Only an interpreter has this symbol, and only an interpreter needs it.
#pragma weak PyModule_Create2

STABLE_TORCH_LIBRARY(convt2d, library) {
  library.def(
      "forward(Tensor x, Tensor w, Tensor? bias, int stride_h, int stride_w, int pad_h, int pad_w, "
      "SymInt out_h, SymInt out_w, int dilation_h, int dilation_w, int groups, bool channels_last, "
      "int precision, int algorithm) -> Tensor");
  library.def("forward.packed(Tensor x, Tensor w, Tensor? bias, str scalars) -> Tensor");
  library.def(
      "grad_input(Tensor grad_y, Tensor w, int stride_h, int stride_w, int pad_h, int pad_w, "
      "SymInt in_h, SymInt in_w, int dilation_h, int dilation_w, int groups, bool channels_last, "
      "int precision, int algorithm) -> Tensor");
  library.def("grad_input.packed(Tensor grad_y, Tensor w, str scalars) -> Tensor");
  // The second result is the bias gradient [C_out], or an empty tensor when with_bias is false.
  library.def(
      "grad_weight(Tensor grad_y, Tensor x, int stride_h, int stride_w, int pad_h, int pad_w, "
      "SymInt kernel_h, SymInt kernel_w, int dilation_h, int dilation_w, int groups, "
      "bool channels_last, bool with_bias, int precision, int algorithm) -> (Tensor, Tensor)");
  library.def("grad_weight.packed(Tensor grad_y, Tensor x, str scalars) -> Tensor");
  library.def(
      "grad_weight.packed_with_bias(Tensor grad_y, Tensor x, str scalars) -> (Tensor, Tensor)");
  library.def("grad_bias(Tensor grad_y) -> Tensor");
  // Gradients of x, w and bias, those that are `wanted`: what torch's node of convolution_overrideable
  // comes to (overrideable.h). The second is Python's, and differentiable.
  for (const std::string name : {"backward", "gradients"}) {
    library.def(
        (name +
         "(Tensor grad_y, Tensor x, Tensor w, int stride_h, int stride_w, int pad_h, int pad_w, "
         "int dilation_h, int dilation_w, int groups, bool want_x, bool want_w, bool want_bias) "
         "-> (Tensor, Tensor, Tensor)")
            .c_str());
  }
  // Torch's own error, once the backward pass that ran out of memory is over.
  library.def("out_of_memory(Tensor like, int[] sizes) -> ()");
  // Implemented in Python, which alone can read torch.backends.
  library.def("ambient_precision() -> int");
  // sizes: batch, in_channels, out_channels, groups, then in, out, kernel, stride, near_pad, dilation
  // of h and of w. layouts: of x, w, y. device: "cpu", "cuda:0", or the name of a GPU such as "h200".
  library.def(
      "explain(int direction, int dtype, int precision, int[] sizes, int[] layouts, int has_bias, "
      "str device, int algorithm) -> str");
  // The names that `algorithm` indexes, separated by commas.
  library.def("families(str device) -> str");
}

extern "C" PyMODINIT_FUNC PyInit__C() {
  static PyModuleDef module = [] {
    PyModuleDef empty{};
    empty.m_base = PyModuleDef_HEAD_INIT;
    empty.m_name = "_C";
    empty.m_size = -1;
    return empty;
  }();
  return PyModule_Create(&module);
}
