#include "torch/precision_flag.h"

#include <Python.h>
#include <torch/csrc/stable/library.h>

// Only an interpreter has these.
#pragma weak PyErr_Clear
#pragma weak PyGILState_Ensure
#pragma weak PyGILState_Release
#pragma weak PyImport_ImportModule
#pragma weak PyLong_AsLong
#pragma weak PyObject_CallObject
#pragma weak PyObject_GetAttrString
#pragma weak Py_DecRef
#pragma weak Py_IsInitialized

namespace convt2d {
namespace {

// Of the function of that name in _precision.py; -1 where it cannot be asked. Through the dispatcher the same takes ten
// times as long, which every backward in fp32 would feel.
long answer_of_python() {
  static PyObject* function = nullptr;  // guarded by the interpreter's lock
  if (function == nullptr) {
    PyObject* module = PyImport_ImportModule("convt2d_ext._precision");
    if (module != nullptr) {
      function = PyObject_GetAttrString(module, "ambient_precision");
      Py_DecRef(module);
    }
  }
  PyObject* result = function != nullptr ? PyObject_CallObject(function, nullptr) : nullptr;
  if (result == nullptr) {
    PyErr_Clear();
    return -1;
  }
  const long answer = PyLong_AsLong(result);
  Py_DecRef(result);
  return answer;
}

}  // namespace

Precision ambient_precision() {
  if (Py_IsInitialized != nullptr && Py_IsInitialized()) {
    const PyGILState_STATE state = PyGILState_Ensure();
    const long answer = answer_of_python();
    PyGILState_Release(state);
    if (answer >= 0) return answer == 1 ? Precision::tf32 : Precision::ieee;
  }
  StableIValue stack[1] = {0};
  const AOTITorchError code =
      torch_call_dispatcher("convt2d::ambient_precision", "", stack, TORCH_ABI_VERSION);
  if (code != TORCH_SUCCESS) return Precision::ieee;
  return torch::stable::detail::to<int64_t>(stack[0]) == 1 ? Precision::tf32 : Precision::ieee;
}

}  // namespace convt2d
