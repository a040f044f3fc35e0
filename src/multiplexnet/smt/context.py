"""Where z3's expressions live.

Python collects garbage in whichever thread happens to run, and z3's calls let other threads run meanwhile: a progress
bar or a notebook is enough for an expression to be given back while its context is at work, which ends the process.
Contexts made here take back what other threads give back in their own time.
"""

from __future__ import annotations

from typing import Any

import z3

__all__ = ["new_context"]


def new_context() -> Any:
    """A private context, whose expressions may be collected in any thread."""
    context = z3.Context()
    z3.Z3_enable_concurrent_dec_ref(context.ref())
    return context
