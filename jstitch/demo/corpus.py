"""Real text that every Python installation carries: its standard library's sources, cut into word pieces.

    'def f(x):' -> pieces 'def', ' f', '(', 'x', '):'[0], ... -> ids

A piece that is not among the most frequent ones is spelled byte by byte: ids 0..255 are the bytes.
Everything is a function of the installation's files: no randomness but the batches' seed.
"""

from __future__ import annotations

import re
import sysconfig
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Ids = np.ndarray[Any, np.dtype[np.int32]]
BYTES = 256
_PIECE = re.compile(r" ?\w+|\n[ ]*| +|[^\w\s]|\s")


@dataclass(frozen=True)
class Corpus:
    """ids: (length,) int32, each below `vocabulary`. files: how many sources they come from."""

    ids: Ids
    vocabulary: int
    files: int

    def batch(self, step: int, size: int, length: int) -> Ids:
        """(size, length + 1) random windows; the same step gives the same ones.

        Raises ValueError when the text is shorter than one window.
        """
        if len(self.ids) <= length + 1:
            raise ValueError(f"Expected more than {length + 1} tokens of text, found {len(self.ids)}.")
        starts = np.random.default_rng(step).integers(0, len(self.ids) - length - 1, size)
        windows: Ids = self.ids[starts[:, None] + np.arange(length + 1)]
        return windows


def load_corpus(vocabulary: int, characters: int = 1_000_000, folder: Path | None = None) -> Corpus:
    """The first `characters` of the top-level modules in `folder` (the standard library), by name.

    Raises FileNotFoundError when there are no sources (a zipped standard library, say).
    """
    folder = folder or Path(sysconfig.get_path("stdlib"))
    text, files = _read(folder, characters)
    if not text:
        raise FileNotFoundError(
            f"Expected Python sources (*.py) in '{folder}', found none."
            " Run the demo with a Python that carries its standard library as files."
        )
    pieces = _PIECE.findall(text)
    ids = _ids_of(pieces, vocabulary)
    return Corpus(np.array([i for piece in pieces for i in _spell(piece, ids)], np.int32), vocabulary, files)


def _read(folder: Path, characters: int) -> tuple[str, int]:
    texts: list[str] = []
    room = characters
    for path in sorted(folder.glob("*.py"), key=lambda path: path.name):
        if room <= 0:
            break
        texts.append(path.read_text(encoding="utf-8", errors="replace")[:room])
        room -= len(texts[-1])
    return "".join(texts), len(texts)


def _ids_of(pieces: list[str], vocabulary: int) -> dict[str, int]:
    """The most frequent pieces of two bytes or more; ties by their text."""
    counts = Counter(piece for piece in pieces if len(piece.encode()) > 1)
    ranked = sorted(counts, key=lambda piece: (-counts[piece], piece))
    return {piece: BYTES + i for i, piece in enumerate(ranked[: vocabulary - BYTES])}


def _spell(piece: str, ids: dict[str, int]) -> tuple[int, ...]:
    return (ids[piece],) if piece in ids else tuple(piece.encode())
