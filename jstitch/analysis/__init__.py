"""What a program costs on a GPU that is not here: kernels, bytes, modelled time, by XLA:GPU's own compiler.

HLO text -> Module       thunk list -> Thunks       both -> Launches       plain and stitched -> Analysis
"""

from jstitch.analysis.analyze import analyze, analyze_each
from jstitch.analysis.report import Analysis, Side
from jstitch.xla.compile import AnalysisError

__all__ = ["Analysis", "AnalysisError", "Side", "analyze", "analyze_each"]
