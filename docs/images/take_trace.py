"""Make trace.png anew: three training steps of the demo in XProf's trace viewer, in headless Chromium.

    pip install -e '.[demo,browser]' xprof && python -m docs.images.take_trace

Needs Chromium, as take_report.py does.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import jax.numpy as jnp
from playwright.sync_api import Page, sync_playwright

import jstitch
from docs.images.take_report import chromium
from jstitch.demo.corpus import load_corpus
from jstitch.demo.model import ModelConfig
from jstitch.demo.training import TrainingConfig, prepare
from jstitch.inspection.profile_file import find_profiles
from jstitch.inspection.trace_summary import summarize

PICTURE = Path(__file__).with_name("trace.png")
WARM, TRACED = 3, 3
SECONDS = 60
"""That XProf may take to start, and to show the trace."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        take_profile(Path(folder))
        kernel = max(summarize(find_profiles(Path(folder))).kernels, key=lambda kernel: kernel.seconds)
        with served(folder) as address, sync_playwright() as p:
            browser = chromium(p)
            page = browser.new_page(viewport={"width": 1400, "height": 840})
            show(page, address, kernel.kernel)
            page.screenshot(path=PICTURE)
            browser.close()
    print(f"{PICTURE}: {PICTURE.stat().st_size / 1e3:.0f} kB, {kernel.kernel} selected")


def take_profile(folder: Path) -> None:
    config = TrainingConfig(ModelConfig(), steps=WARM + TRACED)
    corpus = load_corpus(config.model.vocabulary, 200_000)
    side = prepare("jstitch.jit", jstitch.jit, config)
    batches = [jnp.asarray(corpus.batch(n, config.batch, config.model.length)) for n in range(config.steps)]
    for n in range(WARM):
        side.advance(batches[n], jax.random.key(n))
    with jax.profiler.trace(folder):
        for n in range(WARM, config.steps):
            side.advance(batches[n], jax.random.key(n))


@contextmanager
def served(folder: str) -> Iterator[str]:
    """The address of an XProf server that shows the folder's profiles, while the block runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = str(Path(sys.executable).with_name("xprof"))
    server = subprocess.Popen([program, "--logdir", folder, "--port", str(port)])
    address = f"http://127.0.0.1:{port}/"
    try:
        wait_for(address)
        yield address
    finally:
        server.terminate()
        server.wait()


def wait_for(address: str) -> None:
    until = time.monotonic() + SECONDS
    while True:
        try:
            urllib.request.urlopen(address).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


def show(page: Page, address: str, kernel: str) -> None:
    """XProf's trace viewer with the kernel's first run selected."""
    page.set_default_timeout(1e3 * SECONDS)
    page.goto(address)
    page.locator("mat-select", has_text="Overview Page").click()
    page.locator("mat-option", has_text="Trace Viewer").click()
    viewer = page.frame_locator("iframe[src*=trace_viewer]")
    viewer.get_by_text("XLAExecute").first.wait_for()
    viewer.get_by_placeholder("Find Events...").press_sequentially(kernel)
    page.wait_for_timeout(1500)  # it searches while one types
    viewer.get_by_text("→").click()
    viewer.get_by_text("Wall Duration").wait_for()
    page.wait_for_timeout(500)


if __name__ == "__main__":
    main()
