import base64

import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection, PathCollection

from lmfcn.benchmark.model_summary import Points
from lmfcn.classifier import LMFCNClassifier
from lmfcn.method.anchors import analyse_latents
from lmfcn.method.history import Stopwatch
from lmfcn.recipe import Recipe
from lmfcn.report.curves import comparison_curves, support_curves, training_curves
from lmfcn.report.latent_plots import (
    anchor_figure,
    epoch_frame,
    latent_figure,
    latent_map,
    sample_images,
    shared_limits,
)
from lmfcn.report.style import as_png, as_svg, class_style


def points(random, n, n_classes):
    return Points(random.normal(size=(n, 2)), np.arange(n) % n_classes, np.arange(n) % 4 == 0)


def test_long_names_stand_below_the_latents_and_cover_no_point(random):
    classes = ["bark", "a very long name of a class of defects"]
    numbers = np.arange(20) % 2
    figure = latent_figure(random.normal(size=(20, 5)), numbers, classes, numbers == 0)
    figure.draw_without_rendering()
    (axes,), (legend,) = figure.axes, figure.legends
    assert [text.get_text() for text in legend.get_texts()] == classes
    assert legend.get_window_extent().y1 <= axes.get_window_extent().y0
    edges = [legend.get_window_extent().x0, legend.get_window_extent().x1]
    assert 0 <= edges[0] < edges[1] <= figure.bbox.width


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


@pytest.fixture(scope="module")
def space():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 2
    latents = torch.randn(40, 2, generator=generator) + labels[:, None] * 1.5
    return analyse_latents(latents, labels, Recipe(), Stopwatch()), labels.numpy()


@pytest.fixture(scope="module")
def fitted(textures):
    return LMFCNClassifier(latent_dim=2, widths=(4, 4), epochs=2, recipe=Recipe(passes=1), random_state=0).fit(
        *textures
    )


def test_limits_hold_nearly_all_latents(space):
    left, right, bottom, top = shared_limits([space[0]])
    x, y = space[0].latents.numpy().T
    assert np.mean((x > left) & (x < right) & (y > bottom) & (y < top)) > 0.95


def test_regions_follow_the_decision(space):
    figure = epoch_frame(*space, shared_limits([space[0]]), "epoch 0")
    marks = [collection for collection in figure.axes[0].collections if type(collection) is PathCollection]
    n_drawn = dict.fromkeys((16, 60), 0)
    for collection in marks:
        (size,) = collection.get_sizes()
        n_drawn[size] += len(collection.get_offsets())
    n_support = len(space[0].svm.support)
    assert n_drawn == {16: 40 - n_support, 60: n_support}
    assert figure.axes[0].get_title() == "epoch 0"


def test_anchor_figure_draws_a_line_per_pair(space):
    figure = anchor_figure(*space, shared_limits([space[0]]), k=2)
    assert len(figure.axes) == 3
    n_lines = [
        sum(len(c.get_segments()) for c in axes.collections if type(c) is LineCollection) for axes in figure.axes
    ]
    margin = space[0].svm
    assert n_lines[0] == 2 * len(margin.support)
    assert n_lines[1] == len(margin.misclassified)
    assert n_lines[2] == len(margin.settled)


def test_training_curves_show_the_recorded_values(fitted):
    figure = training_curves(fitted.history_, fitted.best_epoch_)
    drawn = {line.get_label(): list(line.get_ydata()) for axes in figure.axes for line in axes.lines}
    assert drawn["epoch score (validation)"] == fitted.history_.column("validation_balanced_accuracy")
    assert drawn["support vectors"] == fitted.history_.column("n_support")
    assert drawn["support loss"] == fitted.history_.column("support_loss")


def test_refit_epochs_go_on_behind_the_others(fitted):
    refit = fitted.refit_history_
    figure = training_curves(fitted.history_, fitted.best_epoch_, refit=refit)
    accuracies, counts, losses = figure.axes
    assert [list(line.get_xdata()) for line in counts.lines[:2]] == [[0, 1], [2, 3]]
    assert list(counts.lines[1].get_ydata()) == refit.column("n_support")
    for axes in (accuracies, counts, losses):
        assert "all images" in [text.get_text() for text in axes.texts]
    assert [text.get_text() for text in accuracies.get_legend().get_texts()] == ["training", "epoch score (validation)"]


def test_comparison_counts_images_before_each_epoch(fitted):
    figure = comparison_curves({"ours": fitted.history_})
    _, by_images = figure.axes
    counts = fitted.history_.column("n_backpropagated")
    assert list(by_images.lines[0].get_xdata()) == [0, counts[0]]


def test_samples_show_every_class(textures):
    figure = sample_images(*textures, per_class=3)
    assert len(figure.axes) == 6
    shown = [axes.images[0].get_array() for axes in figure.axes]
    assert np.array_equal(shown[0], textures[0][textures[1] == 0][0])
    assert np.array_equal(shown[3], textures[0][textures[1] == 1][0])


def test_pictures_are_inline_addresses(textures):
    figure = sample_images(*textures, per_class=2)
    assert as_svg(figure).startswith("data:image/svg+xml;base64,")
    assert as_png(figure).startswith("data:image/png;base64,")
    assert len({class_style(number)[0] for number in (0, 1)}) == 2


def test_support_vectors_over_the_epochs():
    axes = support_curves({"LMFCN": [[40, 20, 15], [38, 18]], "paper": [[50, 49]]}, {"LMFCN": [1, 0]}).axes[0]
    lines = [line for line in axes.lines if len(line.get_xdata()) > 1]
    assert [list(line.get_ydata()) for line in lines] == [[40, 20, 15], [38, 18], [50, 49]]
    kept = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if len(line.get_xdata()) == 1]
    assert kept == [(1, 20), (0, 38)]


def test_figures_follow_a_dark_screen_and_are_the_same_every_time():
    def drawing(**options):
        return base64.b64decode(as_svg(support_curves({"LMFCN": [[40, 20]]}, {}), **options).split(",")[1]).decode()

    assert "prefers-color-scheme: dark" in drawing()
    assert "prefers-color-scheme" not in drawing(adapts=False)
    assert drawing() == drawing()
