"""The workloads that the papers evaluate, in plain JAX at the papers' sizes: see `python -m benchmarks
papers`.

Where a paper names a model without its sizes, or a model that nobody else has, the file of the family
says what stands in its place.
"""

from __future__ import annotations

from benchmarks.workloads.papers import crnn, dialog, examples, nmt, recommend, speech, transformers
from benchmarks.workloads.papers.paper import Paper

PAPERS: tuple[Paper, ...] = (
    *examples.PAPERS,
    *nmt.PAPERS,
    *speech.PAPERS,
    *recommend.PAPERS,
    *dialog.PAPERS,
    *transformers.PAPERS,
    *crnn.PAPERS,
)
