"""Whether a kernel, as it would be built, is slower than XLA's kernels for the same ops.

group norm gradient, 32 groups of 100,352     8 CTAs on 132 multiprocessors: 2,777 us, and XLA's 341

The gate reckons with bytes and launches before anything is lowered; the latency-evaluator knows CTAs,
registers and rounds, and what is computed again. Products and loops have judges of their own
(judge_chain.py, find_recurrences.py).
"""

from __future__ import annotations

from jstitch.codegen.backend import CannotBuildError
from jstitch.codegen.cuda.homes import NoRoom
from jstitch.codegen.kernel_ir import Kernel
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, Reason
from jstitch.passes.base.row_access import is_reduction
from jstitch.passes.fuse.gate import judge
from jstitch.passes.fuse.hold_together import is_fixed
from jstitch.passes.lower.loop_pattern import loop_of
from jstitch.passes.schedule.latency import kernel_latency

SLOWER = 1.25  # times XLA's, from which on ours is left: both are models
MUCH_SLOWER = 16.0
"""On a CPU, where the evaluator is less sure: of 1,369 draws no kernel that was quick had more than 9, and
those that had 16 took 3 to 7 times as long as XLA's."""
_TEXT = "as built, modelled {found} us, and must be less than {bound} us, {most:g} of XLA's"


def judge_kernel(kernel: Kernel, pattern: FusionPattern, context: Context) -> Reason | None:
    """Why it is left, or None: always for what a user asks for, and on CPUs where a clock decides.

    kernel: scheduled.
    """
    options, profile = context.options, context.profile
    on_cpu = profile.machine.device is None
    if options.tune == "off" or options.template is not None or (on_cpu and options.tune == "measure"):
        return None
    if is_fixed(pattern) or loop_of(pattern.ops) is not None or _multiplies(kernel):
        return None
    if on_cpu and not any(map(is_reduction, pattern.ops)):
        return None  # nothing waits for others, so that nothing is made again
    try:
        ours = kernel_latency(kernel, context).seconds
    except (NoRoom, CannotBuildError):
        return None  # said when it is built
    times = MUCH_SLOWER if on_cpu else SLOWER
    most = times * judge(pattern, profile).xla_seconds
    text = _TEXT.replace("{most:g}", f"{times:g}")
    return Reason("gate", text, ours * 1e6, most * 1e6) if ours > most else None


def _multiplies(kernel: Kernel) -> bool:
    return any(lane.multiplies for phase in kernel.phases for lane in phase.lanes)
