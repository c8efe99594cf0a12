"""The command line of the bench."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

import torch

from . import charts, first_call, host, layers, memory, provenance, report, suite, train, user_model
from .floors import MORE_PASSES, PASSES, measure_ceilings
from .layers import Layer
from .modes import DEFAULT_MODES, parse_modes
from .results import Document, Measurement, TimedRow
from .timing import Stopwatch

PURPOSE = "The op against torch's own, in one run, on real layers."

# Multiply-adds of a layer on a CPU, where the C++ definition of the operator stands in for kernels.
CPU_MULTIPLY_ADDS = 4_000_000


def main(argv: Sequence[str] | None = None) -> int:
    """0 when everything ran and every error was acceptable, else 1."""
    options = _parser().parse_args(argv)
    if options.report:
        return _report(options)
    if options.charts:
        charts.require_matplotlib()
        if not options.out:
            raise SystemExit("bench: --charts needs --out, a folder for them")
    command = "python -m convt2d_ext bench " + shlex.join(argv or [])
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if options.memory and device.type != "cuda":
        raise SystemExit("--memory reads the CUDA allocator and needs a GPU")
    if device.index is not None:
        torch.cuda.set_device(device)

    try:
        run = Run(options, device)
    except ValueError as error:  # a mode, pass or layer that was written wrongly
        raise SystemExit(f"bench: {error}") from None
    print(run.provenance, flush=True)
    document = run.document(command)
    print("\n" + "\n".join(_for_screen(document)))
    if options.out:
        _save(document, options)
    return 1 if any(not row.error_acceptable for row in document.timed) else 0


class Run:
    """The options, filled in with what the device makes sensible."""

    def __init__(self, options: argparse.Namespace, device: torch.device) -> None:
        gpu = device.type == "cuda"
        self.options = options
        self.device = device
        self.provenance = provenance.collect(device, options.commit)
        self.algorithm = options.algorithm or ("auto" if gpu else "direct")
        default_modes = train.TRAINING_MODES if options.train else DEFAULT_MODES
        self.modes = parse_modes(options.modes or (default_modes if gpu else "fp32:nchw"))
        # A step returns gradients alone, so its own output would pass for extra memory.
        passes = options.passes or ",".join(PASSES[:3] if options.memory else PASSES)
        self.passes = [name for name in passes.split(",") if name]
        if unknown := set(self.passes) - set(known := PASSES + MORE_PASSES):
            raise ValueError(f"passes {', '.join(sorted(unknown))} not in {', '.join(known)}")
        self.layers = [] if options.train or options.host_cost else self._layers(gpu)

    def document(self, command: str) -> Document:
        options = self.options
        timed: list[TimedRow] = []
        measured: list[Measurement] = []
        settings = {"cudnn.benchmark": str(options.benchmark), "algorithm": self.algorithm}
        benchmark = bool(options.benchmark)
        if options.host_cost:
            measured = host.host_cost(self.modes, self.device, self.algorithm, benchmark)
        elif options.train:
            settings = {"cudnn.benchmark": "1"}
            measured = train.train(
                self.modes, self.device, options.steps, options.repeats, options.only
            )
        elif options.memory:
            measured = memory.extra_memory(
                self.layers, self.modes, self.passes, self.algorithm, benchmark
            )
        elif options.first_call:
            measured = first_call.first_calls(
                self.layers, self.modes, self.device, self.algorithm, benchmark
            )
        else:
            watch = Stopwatch(self.device)
            ceilings = None if options.errors else measure_ceilings(watch)
            if ceilings:
                settings["ceilings"] = str(ceilings)
                print(ceilings, flush=True)
            timed = suite.run(self._suite_options(), watch, ceilings)
        return Document(self._section(), command, self.provenance, settings, timed, measured)

    def _suite_options(self) -> suite.SuiteOptions:
        options = self.options
        return suite.SuiteOptions(
            layers=self.layers,
            modes=self.modes,
            passes=self.passes,
            algorithm=self.algorithm,
            cudnn_benchmark=bool(options.benchmark),
            repeats=options.iters,
            budget_s=options.budget_s,
            samples=options.samples,
        )

    def _layers(self, gpu: bool) -> list[Layer]:
        options = self.options
        if options.layer:
            found = [layers.parse(text) for text in options.layer]
        elif options.model:
            if not options.input:
                raise ValueError("--model needs --input, such as 8x3x256x256")
            found = user_model.layers_of(options.model, options.input)
        else:
            found = layers.load("off_list" if options.off_list else "layers")
        found = layers.selected(found, options.only)
        if not found:
            raise ValueError(f"no layer has {options.only} in its name")
        return found if gpu else [layer.scaled(CPU_MULTIPLY_ADDS) for layer in found]

    def _section(self) -> str:
        """Which table of the report these rows belong to."""
        options = self.options
        table = "off-list" if options.off_list else "layers"
        if options.layer or options.model:
            table = "user"
        for name in ("host_cost", "memory", "first_call", "errors", "train"):
            if getattr(options, name):
                kind = name.replace("_", "-")
                return kind if table == "layers" else f"{kind}-{table}"
        return table if options.benchmark else f"{table}-default"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m convt2d_ext bench", description=PURPOSE)
    what = parser.add_argument_group("what to run (default: the layer suite)")
    what.add_argument("--off-list", action="store_true", help="the second suite: other layers")
    what.add_argument(
        "--layer", action="append", help='"N=16 Cin=32 Cout=64 H=128 W=256 k=3x5 s=2"'
    )
    what.add_argument("--model", help="package.module:name, a model or a function that makes one")
    what.add_argument("--input", help="shape of the model's input, such as 8x3x256x256")
    what.add_argument("--errors", action="store_true", help="errors against float64, no times")
    what.add_argument("--host-cost", action="store_true", help="µs of host time a call")
    what.add_argument("--memory", action="store_true", help="bytes beyond the results")
    what.add_argument("--first-call", action="store_true", help="latency of a new shape")
    what.add_argument("--train", action="store_true", help="training steps of four networks")
    what.add_argument("--report", nargs="+", type=Path, metavar="JSON", help="tables from results")

    how = parser.add_argument_group("how")
    how.add_argument("--modes", default="", help=f"such as {DEFAULT_MODES}")
    how.add_argument(
        "--passes", default="", help=f"of {','.join(PASSES + MORE_PASSES)}; default: the first four"
    )
    how.add_argument("--only", default="", help="layers whose name contains one of a,b,c")
    how.add_argument("--algorithm", default="", help="force a family")
    how.add_argument("--device", default="", help="cuda, cuda:1 or cpu")
    how.add_argument("--benchmark", type=int, choices=(0, 1), default=1, help="cudnn.benchmark")
    how.add_argument("--iters", type=int, default=15, help="calls a median is taken over")
    how.add_argument("--budget-s", type=float, default=540, help="stop the suite after this long")
    how.add_argument("--samples", type=int, default=1, help="samples checked in float64; 0: none")
    how.add_argument("--steps", type=int, default=200, help="training: steps of a loss curve")
    how.add_argument("--repeats", type=int, default=4, help="training: runs of torch")

    where = parser.add_argument_group("where results go")
    where.add_argument("--out", type=Path, help="folder for JSON, CSV, markdown (and report files)")
    where.add_argument("--name", default="", help="file name without ending; default: the section")
    where.add_argument("--charts", action="store_true", help="PNG charts as well")
    where.add_argument("--readme", nargs="*", type=Path, default=[], help="--report: files to fill")
    where.add_argument("--commit", default="", help="commit, where the git history is not at hand")
    return parser


def _for_screen(document: Document) -> list[str]:
    content = report.sections([document])
    return [text for name, text in content.items() if not name.endswith("-full")]


def _save(document: Document, options: argparse.Namespace) -> None:
    name = options.name or document.section
    written = document.save(options.out, name)
    markdown = options.out / f"{name}.md"
    markdown.write_text("\n".join(report.sections([document]).values()), encoding="utf-8")
    written.append(markdown)
    if options.charts:
        written += charts.draw(document.timed, options.out, name, str(document.provenance))
    print("wrote " + " ".join(map(str, written)))


def _report(options: argparse.Namespace) -> int:
    documents = [Document.load(path) for path in options.report]
    folder = options.out or options.report[0].parent
    written = report.write_report(documents, folder, options.readme)
    if options.charts:
        for section in dict.fromkeys(document.section for document in documents):
            members = [document for document in documents if document.section == section]
            rows = report.latest(row for document in members for row in document.timed)
            written += charts.draw(rows, folder, section, str(members[-1].provenance))
    print("wrote " + " ".join(map(str, written)))
    return 0
