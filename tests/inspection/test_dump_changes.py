"""What changed between two stages: values' numbers do not matter, what they stand for does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jstitch.inspection.dump_changes import compare

BEFORE = """graph(%arg0: tensor<8xf32>, %arg1: tensor<8xf32>) -> (%3) {
  %0 = stablehlo.constant {value = dense<1.0>} : tensor<8xf32>
  %1 = stablehlo.constant {value = dense<1.0>} : tensor<8xf32>
  %2 = stablehlo.subtract %arg0, %1 : tensor<8xf32>
  %3 = stablehlo.subtract %2, %arg1 : tensor<8xf32>
}"""


def test_renumbered_values_are_no_change() -> None:
    after = BEFORE.replace("%3", "%13").replace("%2", "%12").replace("%1 ", "%11 ").replace("%1:", "%11:")
    after = after.replace("%1\n", "%11\n").replace(", %1 ", ", %11 ")
    assert compare(BEFORE, after).is_empty
    assert not compare(BEFORE, after, exact=True).is_empty
    assert list(compare(BEFORE, after).unified("a", "b")) == []


def test_an_op_that_went() -> None:
    after = BEFORE.replace("  %0 = stablehlo.constant {value = dense<1.0>} : tensor<8xf32>\n", "", 1)
    after = after.replace("%1 ", "%0 ").replace("%2", "%1").replace("%3", "%2")
    ops = compare(BEFORE, after).ops
    assert dict(ops.went) == {"stablehlo.constant": 1}
    assert not ops.came
    assert str(ops).startswith("-1")


@pytest.mark.parametrize(
    ("old", "new"),
    [("%arg0, %1", "%1, %arg0"), ("%2, %arg1", "%arg0, %arg1"), ("%2, %arg1", "%2, %2")],
)
def test_other_operands_of_the_same_type_are_a_change(old: str, new: str) -> None:
    changes = compare(BEFORE, BEFORE.replace(old, new))
    assert dict(changes.ops.changed) == {"stablehlo.subtract": 1}
    assert changes.ops.total == 1
    lines = [
        line for line in changes.unified("a", "b") if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    assert [line[0] for line in lines] == ["-", "+"]
    assert new in lines[1]


def test_another_type_is_a_change_and_another_name_is_not() -> None:
    assert str(compare(BEFORE, BEFORE.replace("dense<1.0>", "dense<2.0>")).ops) == "~2"
    found = compare(BEFORE, BEFORE.replace("stablehlo.subtract %2", "stablehlo.add %2")).ops
    assert (dict(found.went), dict(found.came)) == ({"stablehlo.subtract": 1}, {"stablehlo.add": 1})


LINES = st.lists(
    st.builds(
        "  %{} = stablehlo.{} %{} : tensor<8xf32>".format,
        st.integers(0, 5),
        st.sampled_from(["add", "exp"]),
        st.integers(0, 5),
    ),
    max_size=12,
)


@given(LINES, LINES, st.booleans())
def test_the_blocks_cover_both_texts(before: list[str], after: list[str], exact: bool) -> None:
    """In order and without gaps; blocks that are called equal are, up to names."""
    changes = compare("\n".join(before), "\n".join(after), exact)
    i = k = 0
    for tag, start, end, first, last in changes.opcodes:
        assert (start, first) == (i, k)
        i, k = end, last
        if tag == "equal":
            assert [x.split()[2] for x in before[start:end]] == [x.split()[2] for x in after[first:last]]
    assert (i, k) == (len(before), len(after))
    assert changes.is_empty or list(changes.unified("a", "b"))
