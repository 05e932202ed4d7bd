"""Pictures by scikit-learn's convention."""

import matplotlib as mpl
import numpy as np
import pytest

from lmfcn import displays
from lmfcn.explain.score_map import support_classes
from small_model import fitted, gallery, three

mpl.use("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    displays.pyplot.close("all")


def test_curves_end_with_what_the_history_holds():
    display = displays.TrainingCurvesDisplay.from_estimator(fitted()).plot()
    line, *_ = display.axes_[1].lines
    assert line.get_ydata().tolist() == fitted().history_.column("n_support")
    assert display.figure_ is display.axes_[0].figure


def test_the_latent_space_shows_all_support_vectors_and_the_given_images():
    images, labels = three()
    classifier = fitted()
    display = displays.LatentSpaceDisplay.from_estimator(classifier.model_, images[:5], labels[:5]).plot()
    assert display.support.sum() == len(classifier.support_)
    assert (~display.support).sum() == 5
    assert (display.numbers[~display.support] == 1).sum() == 0 + (labels[:5] == "fine").sum()
    drawn = sum(len(marks.get_offsets()) for marks in display.ax_.collections)
    assert drawn == len(display.points)
    known = support_classes(classifier.model_.decision)
    assert (
        display.numbers[display.support].tolist()
        == np.where(known < 0, display.numbers[display.support], known).tolist()
    )
    assert set(display.numbers) == {0, 1, 2}
    assert len(displays.LatentSpaceDisplay.from_estimator(classifier).points) == len(classifier.support_)


def test_confusions_and_reliability_are_those_of_the_held_out_images():
    classifier = fitted()
    confusion = displays.ConfusionDisplay.from_estimator(classifier).plot()
    np.testing.assert_array_equal(confusion.counts, classifier.held_out_.confusion)
    reliability = displays.ReliabilityDisplay.from_estimator(classifier).plot()
    assert len(reliability.correct) == confusion.counts.sum()
    with pytest.raises(ValueError, match="keeps no held-out predictions; give X and y"):
        displays.ConfusionDisplay.from_estimator(classifier.model_)


def test_confusions_of_given_images_on_given_axes():
    images, labels = three()
    ax = displays.pyplot.subplots()[1]
    display = displays.ConfusionDisplay.from_estimator(fitted().model_, images, labels).plot(ax)
    assert display.ax_ is ax
    right = (fitted().predict(images) == labels).sum()
    assert (np.trace(display.counts), display.counts.sum()) == (right, len(images))


def test_deciding_images_have_their_weights_and_pictures():
    images, _ = three()
    display = displays.DecidingImagesDisplay.from_estimator(fitted(), images[0], gallery(), top=2).plot()
    first = display.found.supporting[0]
    assert display.axes_[0, 1].get_title() == f"{first.weight:+.2f}  {first.label}"
    assert len(display.axes_[0, 1].images) == 1
    without = displays.DecidingImagesDisplay.from_estimator(fitted(), images[0], top=2).plot()
    assert without.axes_[0, 1].texts[0].get_text() == "no picture"


def test_a_map_lies_over_its_image():
    image = np.concatenate([three()[0][0].repeat(3, 0).repeat(3, 1)] * 2, axis=1)
    display = displays.MapDisplay.from_estimator(fitted(), image, window=32, stride=8).plot()
    shown, *_ = display.ax_.images
    assert shown.get_array().shape == (*image.shape, 3)
    texts = [text.get_text() for text in display.figure_.legends[0].get_texts()]
    shares = [float(text.split()[-1].rstrip("%")) for text in texts]
    assert [text.split()[0] for text in texts] == ["coarse", "fine", "stripes"]
    assert sum(shares) == pytest.approx(100, abs=0.2)
