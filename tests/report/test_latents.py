import numpy as np

from lmfcn.experiments.exhibit import Points
from lmfcn.report.latents import latent_map


def points(random, n, n_classes):
    return Points(random.normal(size=(n, 2)), np.arange(n) % n_classes, np.arange(n) % 4 == 0)


def test_marked_points_are_larger_and_nothing_is_lost(random):
    learnt, test = points(random, 20, 2), points(random, 12, 2)
    left, right = latent_map(learnt, test, ["bark", "wood"], (0.5, 0.25)).axes
    for axes, shown in ((left, learnt), (right, test)):
        drawn = np.concatenate([marks.get_offsets() for marks in axes.collections])
        assert sorted(map(tuple, drawn)) == sorted(map(tuple, shown.places))
        large = [marks for marks in axes.collections if marks.get_sizes()[0] > 30]
        assert sum(len(marks.get_offsets()) for marks in large) == shown.marked.sum()
    assert left.get_xlabel() == "first principal component (50% of the variance)"
    assert left.get_xlim() == right.get_xlim()


def test_many_classes_and_images_are_thinned_out(random):
    classes = [f"class {number}" for number in range(30)]
    figure = latent_map(points(random, 5000, 30), points(random, 30, 30), classes, (0.5, 0.25))
    assert sum(len(marks.get_offsets()) for marks in figure.axes[0].collections) == 1000
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(named) == 24 + 2
    assert named[-2] == "and 6 more"
