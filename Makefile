# make demo       set everything up, then the op beside torch's own on real layers
# make test       set everything up, then the whole test suite (REQUIRE_CUDA=1: GPU skips fail)
# make lint       ruff, mypy, clang-format; `make format` rewrites
# make wheel      the release wheel, all GPU targets, in dist/; then `make check-wheel`, `make sdist`
# make matrix     that wheel under every Python x torch of tools/matrix.py
# make oldest     compile and test from source against the oldest torch
# make budgets    build time, wheel size and kernel count against their limits
# make emulators  builds those of benchmarks/kernels and runs them on small cases; compiles the bench beside them
#
# PYTHON=...      which Python makes the environment; the newest suitable one otherwise
# VENV=none       use PYTHON (python3) as it is, torch included: no network, nothing installed in it
# TORCH_CUDA_ARCH_LIST, CONVT2D_CUDA, CONVT2D_LINEINFO, MAX_JOBS: see setup.py. Without the first,
# local builds are for this machine's GPUs (9.0a if there are none), and release builds for all.

VENV ?= .venv
MAX_JOBS ?= $(shell nproc)
export MAX_JOBS
export PIP_DISABLE_PIP_VERSION_CHECK = 1

SOURCES := $(shell find csrc convt2d_ext -type f ! -name '*.pyc' ! -name '*.so') \
           setup.py pyproject.toml MANIFEST.in README.md LICENSE
LOCAL_ARCHS := $(or $(TORCH_CUDA_ARCH_LIST),$(shell sh tools/local_archs.sh))
CXX_FILES = $(shell find csrc -name '*.h' -o -name '*.cpp' -o -name '*.cuh' -o -name '*.cu')

ifeq ($(VENV),none)
  PYTHON ?= python3
  PY = $(PYTHON)
  READY =
  # The wheel goes into a folder of its own, so that the environment stays as it was.
  INSTALL = rm -rf build/site && $(PY) -m pip install --quiet --no-deps --no-index --target build/site
  export PYTHONPATH := $(CURDIR)/build/site$(if $(PYTHONPATH),:$(PYTHONPATH))
else
  PY = $(abspath $(VENV))/bin/python
  READY = $(VENV)/ready
  INSTALL = $(PY) -m pip install --quiet --no-deps --no-index --force-reinstall
endif
RELEASE_TOOLS = build/release-tools/bin
# setuptools never empties build/lib: a module that is gone from the sources would stay in the wheel.
EMPTY = rm -rf build/lib* build/bdist*
BUILD_WHEEL = $(PY) -m pip wheel --quiet --no-deps --no-index --no-build-isolation
# The newest wheel there is, for the targets that look at one.
WHEEL = $$(ls -t dist/*.whl build/wheel/*.whl 2>/dev/null | head -n 1)
FIND_PYTHON = $(or $(PYTHON),$$(sh tools/find_python.sh))

.PHONY: demo test lint format wheel check-wheel check-config sdist matrix oldest budgets emulators \
        clean FORCE

# From build/ and tests/, so that `import convt2d_ext` finds the installed wheel, not the sources.
demo: build/installed
	cd build && $(PY) -m convt2d_ext demo

test: build/installed
	cd tests && $(PY) -m pytest $(PYTEST_ARGS)

lint: $(READY)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	@$(dir $(PY))clang-format --dry-run --Werror $(CXX_FILES)

format: $(READY)
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .
	$(dir $(PY))clang-format -i $(CXX_FILES)

# ---- the environment, the local wheel

$(VENV)/ready: tools/requirements-build.txt tools/requirements-test.txt tools/requirements-dev.txt
	@echo "making $(VENV); torch is a download of several GB, some minutes"
	python=$(FIND_PYTHON) && "$$python" -m venv $(VENV)
	$(PY) -m pip install --quiet -r tools/requirements-dev.txt
	touch $@

# What a built wheel depends on besides its sources; the file changes only when that does.
build/settings: FORCE
	@mkdir -p build
	@echo '$(PY) $(LOCAL_ARCHS) $(CONVT2D_CUDA) $(CONVT2D_LINEINFO)' > $@.new
	@cmp --quiet $@.new $@ && rm $@.new || mv $@.new $@

build/installed: build/settings $(READY) $(SOURCES)
	$(EMPTY) build/wheel
	@echo "building: CONVT2D_CUDA=$(or $(CONVT2D_CUDA),auto), GPU targets $(LOCAL_ARCHS), $(MAX_JOBS) jobs"
	TORCH_CUDA_ARCH_LIST="$(LOCAL_ARCHS)" $(BUILD_WHEEL) --wheel-dir build/wheel .
	$(INSTALL) build/wheel/convt2d_ext-*.whl
	touch $@

# ---- the release

$(RELEASE_TOOLS)/ready: tools/requirements-release.txt $(READY)
	$(PY) -m venv --clear build/release-tools
	$(RELEASE_TOOLS)/python -m pip install --quiet -r tools/requirements-release.txt
	touch $@

# Compiled here, so for a glibc as new as this machine's; wheels.yml makes the one to publish.
wheel: $(READY) $(RELEASE_TOOLS)/ready
	$(EMPTY) build/release dist/*.whl
	$(BUILD_WHEEL) --wheel-dir build/release .
	PATH="$(CURDIR)/$(RELEASE_TOOLS):$$PATH" auditwheel repair --wheel-dir dist \
		--exclude 'libtorch*.so' --exclude 'libc10*.so' build/release/convt2d_ext-*.whl

sdist: $(READY) $(RELEASE_TOOLS)/ready
	$(PY) setup.py --quiet sdist
	$(RELEASE_TOOLS)/twine check --strict dist/*.tar.gz

check-wheel: $(RELEASE_TOOLS)/ready
	$(RELEASE_TOOLS)/twine check --strict $(WHEEL)
	$(RELEASE_TOOLS)/check-wheel-contents $(WHEEL)
	$(RELEASE_TOOLS)/abi3audit --strict --summary $(WHEEL)
	$(RELEASE_TOOLS)/auditwheel show $(WHEEL)
	rm -rf build/unpacked && $(RELEASE_TOOLS)/python -m zipfile -e $(WHEEL) build/unpacked
	$(RELEASE_TOOLS)/torch-abi-audit --check both --verbose build/unpacked/convt2d_ext/_C.abi3.so

check-config: $(RELEASE_TOOLS)/ready
	$(RELEASE_TOOLS)/validate-pyproject pyproject.toml
	$(RELEASE_TOOLS)/cibuildwheel --platform linux --archs x86_64 --print-build-identifiers
	$(RELEASE_TOOLS)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml

budgets: $(READY)
	$(PY) tools/budgets.py $(WHEEL)

# With the CUDA toolkit of the newest build: where that had none, there are no kernels to emulate.
emulators:
	@toolkit=$$(cat "$$(ls -t build/objects/*/toolkit 2>/dev/null | head -n 1)" 2>/dev/null); \
	if [ -z "$$toolkit" ]; then echo "no build with a CUDA toolkit: nothing to emulate"; exit 0; fi; \
	CUDA_HOME="$$toolkit" OPTIMIZE=0 JOBS=$(MAX_JOBS) benchmarks/kernels/emulate_all.sh && \
	"$$toolkit/bin/nvcc" -std=c++17 -Icsrc -arch=sm_90a -c -o build/kernels/kernel_bench.cu.o \
	  benchmarks/kernels/kernel_bench.cu

matrix:
	$(FIND_PYTHON) tools/matrix.py $(WHEEL) $(MATRIX_ARGS)

oldest:
	TORCH_CUDA_ARCH_LIST="$(LOCAL_ARCHS)" $(FIND_PYTHON) tools/matrix.py \
		--source --only torch2.10 --name oldest $(MATRIX_ARGS)

clean:
	rm -rf build dist *.egg-info
