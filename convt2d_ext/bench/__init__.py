"""`python -m convt2d_ext bench`: the op against torch's own, in one run, on real layers."""

from .cli import main

__all__ = ["main"]
