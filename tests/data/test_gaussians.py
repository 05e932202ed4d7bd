import numpy as np
import pytest
from PIL import Image

from lmfcn import make_gaussians
from lmfcn.data.arrays import as_generator
from lmfcn.data.training_data import fingerprint


def test_shapes_types_and_counts():
    images, labels = make_gaussians(5, 20, random_state=0)
    assert images.shape == (10, 20, 20)
    assert images.dtype == np.uint8
    assert np.bincount(labels).tolist() == [5, 5]
    colour, _ = make_gaussians(2, (16, 24), random_state=0, channels=3)
    assert colour.shape == (4, 16, 24, 3)


def test_same_seed_same_images_and_other_seed_other_images():
    one, same, other = (make_gaussians(3, 16, random_state=seed)[0] for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_stripes_by_hand():
    # No turn and no noise: bands of 0.4, 0.7, 1.0, 0.7 times 256, whatever the offset.
    images, _ = make_gaussians(1, 8, random_state=0, max_angle=0, noise_weight=0.0)
    row = images[0, 0].tolist()
    assert set(row) == {102, 179, 255}
    assert row[:4] == row[4:]
    start = row.index(102)
    assert [row[(start + i) % 8] for i in range(4)] == [102, 179, 255, 179]
    assert (images[0] == images[0, 0]).all()


def test_noise_has_the_mean_and_deviation_of_its_class():
    images, labels = make_gaussians(20, 64, random_state=0, noise_weight=1.0)
    for label, (mean, std) in enumerate([(128, 30), (125, 35)]):
        pixels = images[labels == label].astype(float)
        assert pixels.mean() == pytest.approx(mean, abs=0.7)  # cut off to whole grey levels: half a level less
        assert pixels.std() == pytest.approx(std, abs=0.7)


def test_noise_has_a_quarter_of_the_weight():
    flat, _ = make_gaussians(10, 64, random_state=0, pattern=(0.5,), stds=(30, 30), means=(128, 128))
    assert flat.mean() == pytest.approx(0.75 * 128 + 0.25 * 128 - 0.5, abs=0.2)
    assert flat.std() == pytest.approx(0.25 * 30, abs=0.2)


def test_stripes_turn_without_empty_corners():
    images, _ = make_gaussians(50, 32, random_state=0, noise_weight=0.0)
    assert images.min() >= 102
    turned = [not (image == image[0]).all() for image in images]
    assert np.mean(turned) > 0.9


def test_more_classes_by_more_means():
    _, labels = make_gaussians(2, 8, random_state=0, means=(100, 120, 140), stds=(10, 10, 10))
    assert np.bincount(labels).tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_per_class": 0}, "n_per_class must be a whole number of at least 1, got 0"),
        ({"n_per_class": 2.5}, "n_per_class must be a whole number of at least 1, got 2.5"),
        ({"size": 0}, "positive number of pixels, or height and width, got 0"),
        ({"size": (8,)}, "positive number of pixels, or height and width"),
        ({"kind": "papers"}, "kind must be one of 'default', 'paper', got 'papers'"),
        ({"channels": 0}, "channels must be a whole number of at least 1, got 0"),
        ({"max_angle": float("nan")}, "max_angle must be between 0 and 180"),
        ({"means": (1, 2, 3)}, "one entry per class each, got 3 and 2"),
        ({"stds": (1, -2)}, "stds not negative, got"),
        ({"pattern": ()}, "at least one band"),
        ({"noise_weight": 1.5}, "between 0 and 1, got 1.5"),
        ({"random_state": "x"}, "random_state must be None"),
        ({"random_state": -1}, "random_state must be None, a non-negative int"),
    ],
)
def test_bad_arguments_are_refused_with_a_reason(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_gaussians(**{"n_per_class": 2, "size": 8, **arguments})


def test_generators_pass_through_and_global_state_is_left_alone():
    before = np.random.get_state()[1].copy()
    generator = np.random.default_rng(0)
    assert as_generator(generator) is generator
    as_generator(None).random()
    assert as_generator(np.random.RandomState(3)).random() == as_generator(np.random.RandomState(3)).random()
    assert np.array_equal(np.random.get_state()[1], before)


def test_the_papers_images_have_its_numbers_by_default():
    images, labels = make_gaussians(random_state=0, kind="paper", n_per_class=1)
    assert images.shape == (2, 200, 200, 3)
    _, labels = make_gaussians(random_state=0, kind="paper", size=8)
    assert np.bincount(labels).tolist() == [200, 200]


def test_the_papers_stripes_begin_at_the_left_edge_and_leave_out_the_last_row():
    (image,), _ = make_gaussians(
        1, 8, 0, kind="paper", max_angle=0, noise_weight=0.0, means=(128,), stds=(30,), pattern=(0.0, 0.5, 0.25)
    )
    # A turn by less than a third of a degree moves no pixel of so small an image.
    assert image[:-1, :, 0].tolist() == [[0, 128, 64, 0, 128, 64, 0, 128]] * 7
    assert not image[-1].any()
    assert (image == image[..., :1]).all()  # the channels share the stripes


def test_the_papers_channels_have_independent_noise_and_the_deviation_of_their_class():
    images, labels = make_gaussians(20, 64, 0, kind="paper", max_angle=0, pattern=(0.5,))
    for label, (mean, std) in enumerate([(128, 30), (125, 35)]):
        pixels = images[labels == label][:, 2:-2, 2:-2].astype(float)
        assert pixels.mean() == pytest.approx(0.75 * 128 + 0.25 * mean - 0.5, abs=0.1)
        assert pixels.std() == pytest.approx(0.25 * std, abs=0.1)
        first, second, third = (pixels[..., channel].ravel() for channel in range(3))
        assert abs(np.corrcoef(first, second)[0, 1]) < 0.02
        assert abs(np.corrcoef(second, third)[0, 1]) < 0.02


def test_the_papers_levels_start_again_behind_white():
    images, labels = make_gaussians(4, 64, 0, kind="paper", max_angle=0, pattern=(1.0,), stds=(0, 60))
    assert images[labels == 0][:, 2:-2, 2:-2].min() == 224  # 192 + 32, and no noise
    noisy = images[labels == 1][:, 2:-2, 2:-2]
    assert (noisy < 20).any()
    assert (noisy < 20).mean() < 0.1


def test_the_papers_images_are_turned_as_pillow_turns_them():
    upright = np.uint8(0.75 * 256 * np.resize((0.4, 0.7, 1.0, 0.7), 40) * np.ones((40, 1)))
    upright[-1] = 0
    images, labels = make_gaussians(6, 40, 0, kind="paper", means=(0, 0), stds=(0, 0), channels=1)
    whole_degrees = set()
    for image, label in zip(images[..., 0], labels, strict=True):
        small = (np.arange(-15, 16) + (-18, 18)[label]) / 100  # -0.18 or 0.18 degrees, plus up to 0.15
        fitting = [
            whole
            for whole in range(-15, 16)
            if any((np.asarray(Image.fromarray(upright).rotate(whole + part)) == image).all() for part in small)
        ]
        assert fitting
        assert (image[[0, 0, -1, -1], [0, -1, 0, -1]] == 0).any()  # a black corner
        whole_degrees.update(fitting)
    assert min(whole_degrees) < -5
    assert max(whole_degrees) > 5


def test_the_papers_images_are_the_same_for_the_same_seed():
    one, same, other = (make_gaussians(3, 16, seed, kind="paper") for seed in (1, 1, 2))
    assert fingerprint(*one) == fingerprint(*same)
    assert not np.array_equal(one[0], other[0])
    assert make_gaussians(2, (16, 24), 0, kind="paper", channels=5)[0].shape == (4, 16, 24, 5)
