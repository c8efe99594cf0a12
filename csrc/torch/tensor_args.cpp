#include "torch/tensor_args.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <stdexcept>
#include <string>

namespace convt2d {
namespace {

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream out;
  out << "convt2d: ";
  (out << ... << parts);
  throw std::runtime_error(out.str());
}

// Numbers in a string, "2,2,1,-1".
class Pack {
 public:
  explicit Pack(const std::string& text) : text_(text), next_(text.data()) {}

  int64_t integer() {
    const char* end = text_.data() + text_.size();
    int64_t number = 0;
    const auto [rest, error] = std::from_chars(next_, end, number);
    if (error != std::errc() || (rest != end && *rest != ',')) malformed();
    next_ = rest == end ? end : rest + 1;
    return number;
  }
  bool flag() { return integer() != 0; }
  void finish() const {
    if (next_ != text_.data() + text_.size()) malformed();
  }

 private:
  [[noreturn]] void malformed() const { fail("\"", text_, "\" are not the scalars of this op"); }

  const std::string& text_;
  const char* next_;
};

// The scalars that follow the tensors of forward, grad_input and grad_weight.
template <class Source>
Scalars scalars_from(Source& source, bool has_with_bias) {
  Scalars s;
  for (int64_t* pair : {s.stride, s.pad, s.extent, s.dilation}) {
    pair[0] = source.integer();
    pair[1] = source.integer();
  }
  s.groups = source.integer();
  s.channels_last = source.flag();
  if (has_with_bias) s.with_bias = source.flag();
  s.precision = source.integer();
  s.algorithm = source.integer();
  return s;
}

// An argument each, or one that packs them all.
Scalars read_scalars(Stack& stack, bool has_with_bias) {
  if (!stack.one_left()) return scalars_from(stack, has_with_bias);
  const std::string text = stack.text();
  Pack pack(text);
  const Scalars s = scalars_from(pack, has_with_bias);
  pack.finish();
  return s;
}

std::string brackets(const int64_t* sizes, int64_t count) {
  std::ostringstream out;
  for (int64_t i = 0; i < count; ++i) out << (i ? ", " : "[") << sizes[i];
  out << (count ? "]" : "[]");
  return out.str();
}

std::string shape(const View& view) { return brackets(view.size, 4); }

void check_same(const View& a, const View& b) {
  if (a.dtype != b.dtype) {
    fail(a.label, " and ", b.label, " must have the same dtype, got ScalarType ", a.dtype, " and ",
         b.dtype);
  }
  if (a.device_type != b.device_type || a.device_index != b.device_index) {
    fail("expected all tensors to be on the same device, but ", a.label, " is on device ",
         a.device_index, " of type ", a.device_type, " and ", b.label, " on device ",
         b.device_index, " of type ", b.device_type);
  }
}

DType dtype_of(const View& view) {
  if (view.dtype == aoti_torch_dtype_float32()) return DType::f32;
  if (view.dtype == aoti_torch_dtype_float16()) return DType::f16;
  if (view.dtype == aoti_torch_dtype_bfloat16()) return DType::bf16;
  if (view.dtype == aoti_torch_dtype_float64()) return DType::f64;
  fail(view.label, " has ScalarType ", view.dtype,
       "; served are float16, bfloat16, float32, float64");
}

// Strides as torch's empty(memory_format=...) gives them, size-1 and size-0 axes included.
void dense_strides(const int64_t (&size)[4], bool channels_last, int64_t (&stride)[4]) {
  if (channels_last) {
    stride[1] = 1;
    stride[3] = size[1];
    stride[2] = stride[3] * size[3];
    stride[0] = stride[2] * size[2];
  } else {
    const auto at_least_1 = [](int64_t extent) { return extent > 1 ? extent : 1; };
    stride[3] = 1;
    stride[2] = stride[3] * at_least_1(size[3]);
    stride[1] = stride[2] * at_least_1(size[2]);
    stride[0] = stride[1] * at_least_1(size[1]);
  }
}

// Replaces the strides by the canonical ones if they mean the same: those of size-1 axes are noise.
bool canonical(View& view, bool channels_last) {
  if (!view.dense(channels_last)) return false;
  dense_strides(view.size, channels_last, view.stride);
  return true;
}

// A tensor that is dense in both orders (one channel, or one pixel) counts as the order of the result.
// Dense memory that starts off a 16-byte boundary counts as strided: kernels load vectors.
Layout layout_of(View& view, bool channels_last_first) {
  if (reinterpret_cast<uintptr_t>(view.data) % 16 != 0) return Layout::strided;
  for (const bool channels_last : {channels_last_first, !channels_last_first}) {
    if (canonical(view, channels_last)) return channels_last ? Layout::nhwc : Layout::nchw;
  }
  return Layout::strided;
}

bool wide(const View& view) {
  int64_t last = 0;
  for (int i = 0; i < 4; ++i) last += (view.size[i] - 1) * view.stride[i];
  return last > INT32_MAX;
}

TensorRef ref(const View& view) {
  TensorRef ref;
  ref.data = view.data;
  std::copy(view.stride, view.stride + 4, ref.stride);
  return ref;
}

// A new tensor on the device of `like`, filled by the kernel.
Tensor allocate(const View& like, const int64_t* size, const int64_t* stride, int64_t rank) {
  AtenTensorHandle handle = nullptr;
  const AOTITorchError code = aoti_torch_empty_strided(
      rank, size, stride, like.dtype, like.device_type, like.device_index, &handle);
  if (code != TORCH_SUCCESS) throw OutOfMemory({size, size + rank});
  return Tensor(handle);
}

View allocate_result(Call& call, const View& like, const char* label, int64_t n, int64_t c,
                     int64_t h, int64_t w, bool channels_last) {
  const int64_t size[4] = {n, c, h, w};
  for (int64_t extent : size) {
    if (extent < 0) fail(label, " would have sizes ", brackets(size, 4));
  }
  int64_t stride[4];
  dense_strides(size, channels_last, stride);
  call.result = allocate(like, size, stride, 4);
  return view_of(call.result, label, 4);
}

// [C_out], contiguous: bias gradients.
void allocate_grad_bias(Call& call, const View& like, int64_t channels) {
  const int64_t stride = 1;
  call.grad_bias = allocate(like, &channels, &stride, 1);
  checked(aoti_torch_get_data_ptr(call.grad_bias.get(), &call.args.bias), "reading a pointer");
}

// The bias, dense. A strided one is rare and small, so it is copied.
void use_bias(Call& call, Tensor bias, const View& x, int64_t channels) {
  View view = view_of(bias, "bias", 1);
  check_same(x, view);
  if (view.size[0] != channels) {
    fail("bias must have ", channels, " elements, got ", view.size[0]);
  }
  if (view.stride[0] != 1 && view.size[0] > 1) {
    StableIValue stack[2] = {
        torch::stable::detail::from(bias.release()),
        torch::stable::detail::from(aoti_torch_memory_format_contiguous_format())};
    checked(torch_call_dispatcher("aten::contiguous", "", stack, TORCH_ABI_VERSION),
            "copying the bias");
    bias.reset(torch::stable::detail::to<AtenTensorHandle>(stack[0]));
    view = view_of(bias, "bias", 1);
  }
  call.args.bias = view.data;
  call.inputs[2] = std::move(bias);
}

void check_groups(const View& view, int axis, int64_t groups) {
  if (groups < 1 || view.size[axis] % groups != 0) {
    fail("groups ", groups, " must divide dimension ", axis, " of ", view.label, ", sizes ",
         shape(view));
  }
}

void check_channels(const View& a, int64_t channels, const View& b) {
  if (a.size[1] != channels) {
    fail(a.label, " of sizes ", shape(a), " does not match ", b.label, " of sizes ", shape(b), ": ",
         channels, " channels expected");
  }
}

// x, w, y are complete: fill the Problem and the pointers.
void finish(Call& call, Direction direction, const Scalars& s, View x, View w, View y) {
  Problem& p = call.problem;
  p.batch = x.size[0];
  p.in_channels = x.size[1];
  p.out_channels = y.size[1];
  p.groups = s.groups;
  p.h = {x.size[2], y.size[2], w.size[2], s.stride[0], s.pad[0], s.dilation[0]};
  p.w = {x.size[3], y.size[3], w.size[3], s.stride[1], s.pad[1], s.dilation[1]};
  p.direction = direction;
  p.dtype = dtype_of(x);
  p.x_layout = layout_of(x, s.channels_last);
  p.w_layout = layout_of(w, s.channels_last);
  p.y_layout = layout_of(y, s.channels_last);
  p.has_bias = call.args.bias != nullptr;
  p.wide_index = wide(x) || wide(w) || wide(y);
  if (s.precision < 0 || s.precision > 2) fail("precision must be 0, 1 or 2, got ", s.precision);
  p.precision = s.precision == 1 && p.dtype == DType::f32 ? Precision::tf32 : Precision::ieee;
  call.ask_precision = s.precision == 2 && p.dtype == DType::f32;
  call.args.x = ref(x);
  call.args.w = ref(w);
  call.args.y = ref(y);
  call.algorithm = int32_t(s.algorithm);
  call.device_index = x.device_index;

  // No element to write, or nothing to sum: zeros are the answer (a bias implies a non-empty sum,
  // because no legal weight is without input channels).
  call.empty = x.elements() == 0 || w.elements() == 0 || y.elements() == 0;
  if (call.empty) {
    checked(aoti_torch_zero_(call.result.get()), "filling an empty result");
    if (call.grad_bias) checked(aoti_torch_zero_(call.grad_bias.get()), "filling an empty result");
  }
}

}  // namespace

View view_of(const Tensor& tensor, const char* label, int64_t rank) {
  View view{label, nullptr, {1, 1, 1, 1}, {0, 0, 0, 0}, 0, 0, 0};
  int64_t dim, *sizes, *strides;
  checked(aoti_torch_get_dim(tensor.get(), &dim), "reading a rank");
  checked(aoti_torch_get_sizes(tensor.get(), &sizes), "reading sizes");
  if (dim != rank)
    fail(label, " must have ", rank, " dimensions, got sizes ", brackets(sizes, dim));
  checked(aoti_torch_get_strides(tensor.get(), &strides), "reading strides");
  for (int64_t i = 0; i < rank; ++i) {
    view.size[i] = sizes[i];
    view.stride[i] = strides[i];
  }
  const void* data;
  checked(torch_get_const_data_ptr(tensor.get(), &data), "reading a pointer");
  view.data = const_cast<void*>(data);
  checked(aoti_torch_get_dtype(tensor.get(), &view.dtype), "reading a dtype");
  checked(aoti_torch_get_device_type(tensor.get(), &view.device_type), "reading a device");
  checked(aoti_torch_get_device_index(tensor.get(), &view.device_index), "reading a device");
  return view;
}

bool View::dense(bool channels_last) const {
  int64_t dense[4];
  dense_strides(size, channels_last, dense);
  for (int i = 0; i < 4; ++i)
    if (size[i] != 1 && stride[i] != dense[i]) return false;
  return true;
}

bool View::channels_last() const {
  if (stride[1] == 0) return false;
  int64_t least = 0;
  for (const int axis : {1, 3, 2, 0}) {
    if (size[axis] == 0 || stride[axis] < least) return false;
    if (axis == 0 && least == stride[1]) return false;
    least = stride[axis] * std::max<int64_t>(size[axis], 1);
  }
  return true;
}

void checked(AOTITorchError code, const char* what) {
  if (code != TORCH_SUCCESS) fail(what, " failed inside torch");
}

// _inner.py reads the sizes out of this sentence.
OutOfMemory::OutOfMemory(std::vector<int64_t> shape)
    : std::runtime_error("convt2d: could not allocate a tensor of sizes " +
                         brackets(shape.data(), int64_t(shape.size()))),
      sizes(std::move(shape)) {}

std::vector<uint8_t> Stack::flags() {
  const auto handle = torch::stable::detail::to<StableListHandle>(*next_++);
  const auto free = [](StableListHandle list) { torch_delete_list(list); };
  const std::unique_ptr<StableListOpaque, decltype(free)> list(handle, free);
  size_t size;
  checked(torch_list_size(handle, &size), "reading a list");
  std::vector<uint8_t> flags(size);
  for (size_t i = 0; i < size; ++i) {
    StableIValue flag;
    checked(torch_list_get_item(handle, i, &flag), "reading a list");
    flags[i] = torch::stable::detail::to<bool>(flag);
  }
  return flags;
}

Tensor share(const Tensor& tensor) {
  AtenTensorHandle handle = nullptr;
  checked(aoti_torch_new_tensor_handle(tensor.get(), &handle), "sharing a tensor");
  return Tensor(handle);
}

Call forward_call(Tensor x_tensor, Tensor w_tensor, Tensor bias, const Scalars& s) {
  Call call;
  call.inputs[0] = std::move(x_tensor);
  call.inputs[1] = std::move(w_tensor);
  const View x = view_of(call.inputs[0], "x", 4), w = view_of(call.inputs[1], "w", 4);
  check_same(x, w);
  check_groups(w, 0, s.groups);
  check_channels(x, w.size[0], w);
  const int64_t out_channels = w.size[1] * s.groups;
  if (bias) use_bias(call, std::move(bias), x, out_channels);
  const View y = allocate_result(call, x, "y", x.size[0], out_channels, s.extent[0], s.extent[1],
                                 s.channels_last);
  finish(call, Direction::fwd, s, x, w, y);
  return call;
}

Call grad_input_call(Tensor grad_y, Tensor w_tensor, const Scalars& s) {
  Call call;
  call.inputs[0] = std::move(grad_y);
  call.inputs[1] = std::move(w_tensor);
  const View y = view_of(call.inputs[0], "grad_y", 4), w = view_of(call.inputs[1], "w", 4);
  check_same(y, w);
  check_groups(w, 0, s.groups);
  check_channels(y, w.size[1] * s.groups, w);
  const View x = allocate_result(call, y, "grad_input", y.size[0], w.size[0], s.extent[0],
                                 s.extent[1], s.channels_last);
  finish(call, Direction::grad_input, s, x, w, y);
  return call;
}

Call grad_weight_call(Tensor grad_y, Tensor x_tensor, const Scalars& s) {
  Call call;
  call.inputs[0] = std::move(grad_y);
  call.inputs[1] = std::move(x_tensor);
  const View y = view_of(call.inputs[0], "grad_y", 4), x = view_of(call.inputs[1], "x", 4);
  check_same(y, x);
  check_groups(y, 1, s.groups);
  check_groups(x, 1, s.groups);
  if (y.size[0] != x.size[0]) fail("grad_y has batch ", y.size[0], " and x has ", x.size[0]);
  const View w = allocate_result(call, y, "grad_weight", x.size[1], y.size[1] / s.groups,
                                 s.extent[0], s.extent[1], s.channels_last);
  if (s.with_bias) allocate_grad_bias(call, y, y.size[1]);
  finish(call, Direction::grad_weight, s, x, w, y);
  return call;
}

// A sum over y alone; everything else of the Problem is one pixel of one channel.
Call grad_bias_call(Tensor grad_y) {
  Call call;
  call.inputs[0] = std::move(grad_y);
  View y = view_of(call.inputs[0], "grad_y", 4);
  allocate_grad_bias(call, y, y.size[1]);
  Problem& p = call.problem;
  p.batch = y.size[0];
  p.in_channels = p.groups = 1;
  p.out_channels = y.size[1];
  p.h = {1, y.size[2], 1, 1, 0, 1};
  p.w = {1, y.size[3], 1, 1, 0, 1};
  p.direction = Direction::grad_weight;
  p.dtype = dtype_of(y);
  p.y_layout = layout_of(y, false);
  p.has_bias = 1;
  p.wide_index = wide(y);
  call.args.y = ref(y);
  call.device_index = y.device_index;
  call.empty = y.elements() == 0;
  if (call.empty) checked(aoti_torch_zero_(call.grad_bias.get()), "filling an empty result");
  return call;
}

Call forward_call(StableIValue* arguments, uint64_t count, uint64_t) {
  Stack stack(arguments, count);
  Tensor x = stack.tensor(), w = stack.tensor(), bias = stack.optional_tensor();
  const Scalars s = read_scalars(stack, false);
  return forward_call(std::move(x), std::move(w), std::move(bias), s);
}

Call grad_input_call(StableIValue* arguments, uint64_t count, uint64_t) {
  Stack stack(arguments, count);
  Tensor grad_y = stack.tensor(), w = stack.tensor();
  const Scalars s = read_scalars(stack, false);
  return grad_input_call(std::move(grad_y), std::move(w), s);
}

Call grad_weight_call(StableIValue* arguments, uint64_t count, uint64_t results) {
  Stack stack(arguments, count);
  Tensor grad_y = stack.tensor(), x = stack.tensor();
  const Scalars s = read_scalars(stack, true);
  if (s.with_bias && results != 2) fail("with_bias asks for two results of an op that has one");
  Call call = grad_weight_call(std::move(grad_y), std::move(x), s);
  if (results == 2 && !s.with_bias) {
    allocate_grad_bias(call, view_of(call.inputs[0], "grad_y", 4), 0);
    call.args.bias = nullptr;
  }
  return call;
}

Call grad_bias_call(StableIValue* arguments, uint64_t count, uint64_t) {
  Stack stack(arguments, count);
  return grad_bias_call(stack.tensor());
}

void allocate_workspace(Call& call, int64_t bytes) {
  if (bytes == 0) return;
  View like = view_of(call.inputs[0], "input", 4);
  like.dtype = aoti_torch_dtype_uint8();
  const int64_t stride = 1;
  call.workspace = allocate(like, &bytes, &stride, 1);
  checked(aoti_torch_get_data_ptr(call.workspace.get(), &call.args.workspace), "reading a pointer");
}

void return_results(Call& call, StableIValue* stack) {
  for (Tensor* tensor : {&call.result, &call.grad_bias}) {
    if (*tensor) *stack++ = torch::stable::detail::from(tensor->release());
  }
}

}  // namespace convt2d
