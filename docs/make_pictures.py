"""Draw the picture of the README: python docs/make_pictures.py."""

from pathlib import Path

from lmfcn import LMFCNClassifier
from lmfcn.algorithm.history import EpochRecord
from lmfcn.algorithm.latent_space import LatentSpace
from lmfcn.data.seeds import as_generator
from lmfcn.data.synthetic import make_gaussians
from lmfcn.report.space import draw_space, shared_limits
from lmfcn.report.style import new_figure


def main() -> None:
    """Train the two-dimensional network of the demonstration and draw three of its epochs."""
    random = as_generator(0)
    train, validation = make_gaussians(60, 64, random), make_gaussians(60, 64, random)
    seen: list[tuple[EpochRecord, LatentSpace]] = []
    classifier = LMFCNClassifier(
        latent_dim=2, random_state=0, verbose=True, on_epoch=lambda record, space: seen.append((record, space))
    )
    classifier.fit(*train, validation=validation)
    last = classifier.best_epoch_
    shown = [seen[epoch] for epoch in (0, max(1, last // 3), last)]
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
    path = Path(__file__).parent / "images" / "latent_space.png"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
