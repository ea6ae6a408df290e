"""`python -m examples`."""

from __future__ import annotations

from examples.command import command

if __name__ == "__main__":
    command()
