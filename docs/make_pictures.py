"""Draw the pictures of the documentation: python docs/make_pictures.py."""

import runpy
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from lmfcn import Callback, LMFCNClassifier, Recipe
from lmfcn.data.arrays import as_generator
from lmfcn.data.gaussians import make_gaussians
from lmfcn.method.anchors import LatentSpace
from lmfcn.method.epoch import Training
from lmfcn.method.history import EpochRecord
from lmfcn.report.latent_plots import draw_space, shared_limits
from lmfcn.report.style import new_figure


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
    recipe = Recipe(keep_untrained=False, whiten=False, refit_epochs=0)
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


def main() -> None:
    """Draw all of them."""
    folder = Path(__file__).parent / "images"
    folder.mkdir(exist_ok=True)
    draw_latent_space(folder)
    draw_mosaic(folder)


if __name__ == "__main__":
    main()
