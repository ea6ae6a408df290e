"""The demo's corpus: deterministic, reversible, real text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jstitch.demo.corpus import BYTES, Corpus, load_corpus


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return load_corpus(vocabulary=512, characters=100_000)


def test_two_loads_are_equal(corpus: Corpus) -> None:
    again = load_corpus(vocabulary=512, characters=100_000)
    np.testing.assert_array_equal(corpus.ids, again.ids)
    np.testing.assert_array_equal(corpus.batch(3, 4, 16), again.batch(3, 4, 16))


def test_pieces_shorten_the_text_and_stay_in_the_vocabulary(corpus: Corpus) -> None:
    assert corpus.ids.dtype == np.int32
    assert 10_000 < len(corpus.ids) < 80_000
    assert corpus.ids.min() >= 0
    assert BYTES < corpus.ids.max() < corpus.vocabulary


def test_a_rare_piece_is_spelled_in_bytes(tmp_path: Path) -> None:
    (tmp_path / "b.py").write_text("zz")
    (tmp_path / "a.py").write_text("ab ab ab Ä")
    corpus = load_corpus(vocabulary=BYTES + 1, folder=tmp_path)
    assert corpus.files == 2
    # the most frequent piece is ' ab' (2x); 'ab' at the start is two bytes
    assert corpus.ids.tolist() == [*b"ab", BYTES, BYTES, *" Äzz".encode()]


def test_batches_are_windows_of_the_text(corpus: Corpus) -> None:
    batch = corpus.batch(0, 5, 16)
    assert batch.shape == (5, 17)
    windows = np.lib.stride_tricks.sliding_window_view(corpus.ids, 17)
    assert all((windows == row).all(axis=1).any() for row in batch)


def test_no_sources_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="carries its standard library"):
        load_corpus(512, folder=tmp_path)


def test_a_short_text_is_refused(corpus: Corpus) -> None:
    with pytest.raises(ValueError, match="found 2"):
        Corpus(corpus.ids[:2], 512, 1).batch(0, 1, 16)
