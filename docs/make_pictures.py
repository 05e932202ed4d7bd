"""Draw the pictures of the documentation: python docs/make_pictures.py [NAME ...].

Names are latent_space, mosaic, notebook and label_image; without a name, all are drawn.

The last two need Chromium and playwright.
"""

import io
import runpy
import shutil
import sys
import threading
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import uvicorn
from PIL import Image
from skimage import data

from lmfcn import Callback, LMFCNClassifier, Recipe, displays
from lmfcn.data.arrays import as_generator
from lmfcn.data.gaussians import make_gaussians
from lmfcn.explain.gallery import Gallery
from lmfcn.label.image_session import ImageSession
from lmfcn.method.anchors import LatentSpace
from lmfcn.method.epoch import Training
from lmfcn.method.history import EpochRecord
from lmfcn.report.latent_plots import draw_space, shared_limits
from lmfcn.report.style import new_figure, png_bytes
from lmfcn.serve.image_labelling import make_image_app
from lmfcn.serve.labelling import Worker
from lmfcn.serve.server import browser_address, listen


class Epochs(Callback):
    """Keeps the record and the latent space of every epoch."""

    def __init__(self) -> None:
        self.seen: list[tuple[EpochRecord, LatentSpace]] = []

    def on_epoch_end(self, training: Training, record: EpochRecord, space: LatentSpace) -> None:  # noqa: ARG002
        """Keep the latent space of an epoch."""
        self.seen.append((record, space))


def draw_latent_space(folder: Path) -> None:
    """Train the two-dimensional network of the demonstration and draw three of its epochs."""
    random = as_generator(0)
    train, validation = make_gaussians(60, 64, random), make_gaussians(60, 64, random)
    epochs = Epochs()
    recipe = Recipe(keep_untrained=False, deviations=False, whiten=False, refit_epochs=0)
    classifier = LMFCNClassifier(latent_dim=2, recipe=recipe, random_state=0, verbose=True)
    classifier.fit(*train, validation=validation, callbacks=[epochs])
    last = classifier.best_epoch_
    shown = [epochs.seen[epoch] for epoch in (0, max(1, last // 3), last)]
    figure = new_figure(11, 3.7)
    limits = shared_limits([space for _, space in shown])
    for axes, (record, space) in zip(figure.subplots(1, 3, sharey=True), shown, strict=True):
        draw_space(axes, space, train[1], limits)
        axes.set_title(
            f"epoch {record.epoch}: {record.n_support} support vectors,"
            f" validation {record.validation_balanced_accuracy:.2f}",
            fontsize=10,
        )
        axes.label_outer()
    figure.savefig(folder / "latent_space.png", dpi=110)


def draw_mosaic(folder: Path) -> None:
    """Put the mosaic of the example beside its map."""
    with TemporaryDirectory() as work:
        example = runpy.run_path(str(Path(__file__).parent.parent / "examples" / "map_mosaic.py"))
        example["main"](Path(work))
        write_pair(Path(work), folder / "mosaic.png")


def write_pair(work: Path, path: Path) -> None:
    """Write image and map side by side."""
    with Image.open(work / "mosaic.png") as mosaic, Image.open(work / "map" / "map.png") as shown:
        image = mosaic.convert("RGB").resize((shown.height, shown.height))
        pair = Image.new("RGB", (image.width + 16 + shown.width, shown.height), "white")
        pair.paste(image, (0, 0))
        pair.paste(shown, (image.width + 16, 0))
    pair.resize((pair.width * 3 // 4, pair.height * 3 // 4)).save(path, optimize=True)


def photographs() -> tuple[np.ndarray, np.ndarray]:
    """Return tiles of 64 pixels of scikit-image's photographs of brick, grass and gravel, with their names."""
    names = ("brick", "grass", "gravel")
    tiles = [
        getattr(data, name)()[:512, :512].reshape(8, 64, 8, 64).swapaxes(1, 2).reshape(64, 64, 64) for name in names
    ]
    return np.concatenate(tiles), np.repeat(names, 64)


def draw_notebook(folder: Path) -> None:
    """Draw what a notebook shows of a classifier, and one picture of every display."""
    X, y = photographs()
    learnt = np.arange(len(X)) % 2 == 0
    classifier = LMFCNClassifier(epochs=6, random_state=0, verbose=True).fit(X[learnt], y[learnt])
    screenshot(classifier._repr_html_(), folder / "notebook.png")
    image = np.concatenate([photograph()[:256, :256] for photograph in (data.brick, data.grass, data.gravel)], axis=1)
    gallery = Gallery.of(classifier, X[learnt], y[learnt])
    # Half grass and half brick.
    mixed = np.concatenate([X[64 + 9][:, :32], X[9][:, 32:]], axis=1)
    drawn = [
        displays.TrainingCurvesDisplay.from_estimator(classifier).plot(),
        displays.LatentSpaceDisplay.from_estimator(classifier, X[~learnt], y[~learnt]).plot(),
        displays.ConfusionDisplay.from_estimator(classifier, X[~learnt], y[~learnt]).plot(),
        displays.ReliabilityDisplay.from_estimator(classifier, X[~learnt], y[~learnt]).plot(),
        displays.DecidingImagesDisplay.from_estimator(classifier, mixed, gallery, top=4).plot(),
        displays.MapDisplay.from_estimator(classifier, image, stride=16).plot(),
    ]
    pictures = [Image.open(io.BytesIO(png_bytes(display.figure_, 90))).convert("RGB") for display in drawn]
    curves, space, confusion, reliability, deciding, map_ = pictures
    rows = [[curves], [space, confusion, reliability], [deciding], [map_]]
    stacked(rows).save(folder / "displays.png", optimize=True)


def stacked(rows: list[list[Image.Image]]) -> Image.Image:
    """Return pictures in rows on one white picture."""
    width = max(sum(picture.width for picture in row) for row in rows)
    heights = [max(picture.height for picture in row) for row in rows]
    canvas, top = Image.new("RGB", (width, sum(heights)), "white"), 0
    for row, height in zip(rows, heights, strict=True):
        left = 0
        for picture in row:
            canvas.paste(picture, (left, top))
            left += picture.width
        top += height
    return canvas


def screenshot(html: str, path: Path) -> None:
    """Save what Chromium shows of an HTML fragment."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 900, "height": 400}, device_scale_factor=1.5)
        page.set_content(f"<!doctype html><body style='margin:12px;background:white'>{html}</body>")
        page.locator("body > div").screenshot(path=str(path))
        browser.close()


def draw_label_image(folder: Path) -> None:
    """Draw strokes on a mosaic on the page of `lmfcn label IMAGE`: the whole of it, and a border."""
    benchmark = runpy.run_path(str(Path(__file__).parent.parent / "benchmarks" / "label_image.py"))
    folder = folder.resolve()
    with TemporaryDirectory() as work, chdir(work):  # the page shows where the image is
        image = Path("mosaic.png")
        Image.fromarray(benchmark["mosaic"](2400)).save(image)
        session = ImageSession(image, device="cpu")
        app = make_image_app(session, lambda _order, _announce: [], "token")
        with session, listen("127.0.0.1", 0) as listening:
            for stroke in benchmark["STROKES"]:
                benchmark["draw"](session, stroke)
            session.work()
            server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))
            worker, thread = Worker(session), threading.Thread(target=server.run, kwargs={"sockets": [listening]})
            worker.start()
            thread.start()
            try:
                photograph_page(f"{browser_address(listening)}#token=token", session, folder)
            finally:
                server.should_exit = True
                thread.join()
                worker.stop()


def photograph_page(address: str, session: ImageSession, folder: Path) -> None:
    """Save what the page shows of a session, and what it shows after zooming in."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1060, "height": 760})
        page.goto(address)
        page.wait_for_selector("#viewer:not([data-cells='0'])")
        page.keyboard.press("1")
        box = page.locator("#viewer").bounding_box()
        middle = box["x"] + 0.47 * box["width"], box["y"] + 0.5 * box["height"]
        page.mouse.move(*middle)
        for name, zoom in (("label_image", 0), ("label_image_border", -480)):
            page.mouse.wheel(0, zoom)
            page.mouse.move(middle[0] + 12, middle[1])
            page.wait_for_timeout(2000)  # until the server knows what is shown
            while session.progress()[0] < session.progress()[1]:
                page.wait_for_timeout(500)
            page.wait_for_timeout(1000)
            shown = page.screenshot() if zoom == 0 else page.locator("#frame").screenshot()
            picture = Image.open(io.BytesIO(shown)).convert("RGB")
            picture.quantize(64, dither=Image.Dither.NONE).save(folder / f"{name}.png", optimize=True)
        browser.close()


PICTURES = {
    "latent_space": draw_latent_space,
    "mosaic": draw_mosaic,
    "notebook": draw_notebook,
    "label_image": draw_label_image,
}


def main() -> None:
    """Draw the pictures that were asked for, by default all of them."""
    folder = Path(__file__).parent / "images"
    folder.mkdir(exist_ok=True)
    for name in sys.argv[1:] or PICTURES:
        PICTURES[name](folder)


if __name__ == "__main__":
    main()
