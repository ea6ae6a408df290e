"""Find out early that a loop would compute too many values: a few of the rows that it writes out tell.

    175 rows written out, 20 values for the first and 14 for each of the next ten        2,456: refused

To write all of them takes half a second, and a search for kernels meets such rows several times.
"""

from __future__ import annotations

from jstitch.passes.lower import build_nest

SAMPLE = 4  # rows, or a 16th of them


class ExpectedValues:
    """Of a nest that writes out so many rows."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.of_first = 0

    def look(self, done: int, count: int) -> None:
        """`count` values are computed by the rows that are done.

        Raises CannotLowerError where all would be more than a loop may compute, if they go on so.
        """
        if done == 1:
            self.of_first = count
        elif done == max(SAMPLE, self.rows // 16):
            each = (count - self.of_first) / (done - 1)
            if self.of_first + each * (self.rows - 1) > build_nest.MOST_VALUES:
                raise build_nest.too_many()
