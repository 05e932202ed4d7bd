import numpy as np
import pytest
import torch

from lmfcn.algorithm.encode import to_batch
from lmfcn.explain.class_score import ClassScore
from lmfcn.explain.where import score_map, spreading
from small_model import fitted, quick, textures, three


@pytest.fixture(scope="module")
def filters_enough():
    """A model with filters enough to tell the textures apart well; untrained for the most part."""
    return quick(widths=(16, 16), latent_dim=8).fit(*three()).model_


@pytest.mark.parametrize("blur", [None, 0.0, 2.5, 40.0])
def test_the_mean_of_the_map_is_the_decision_value(blur):
    model, X = fitted().model_, three()[0]
    for image in X[::7]:
        values = model.decision_function(image[None])[0]
        for label, value in zip(model.classes, values, strict=True):
            found = score_map(model, image[..., None], label, blur)
            assert found.values.shape == image.shape
            assert found.value == pytest.approx(value, abs=1e-12)
            assert found.values.mean() == pytest.approx(value, abs=2e-5)  # maps are of single precision


def test_one_network_of_one_layer_and_two_classes(textures):
    X, y = textures
    model = quick(keep_untrained=False, widths=(), standardize=False).fit(X, y).model_
    first, second = (score_map(model, X[0][..., None], label) for label in (0, 1))
    assert second.values.mean() == pytest.approx(model.decision_function(X[:1])[0], abs=2e-5)
    assert np.allclose(first.values, -second.values)


def test_a_network_per_class():
    X, y = three()
    model = quick(strategy="one-vs-all").fit(X, y).model_
    assert len(model.members) == 4
    value = model.decision_function(X[:1])[0, 1]
    assert score_map(model, X[0][..., None], model.classes[1]).values.mean() == pytest.approx(value, abs=2e-5)


def test_the_slow_twin_position_by_position():
    model, image = fitted().model_, textures(1, 12, 24)[0][0][..., None]
    score = ClassScore.of(model.decision, 1)
    latent = torch.from_numpy(model.transform(image[None])[0])
    slope = (model.whitening.double() @ score.mean_slope(latent)).tolist()
    expected = np.full((12, 24), score.value(torch.zeros_like(latent)))
    with torch.no_grad():
        layers = [maps[0] for network in model.members for maps in network.maps(to_batch(image[None], model.device))]
    feature = 0
    for maps in layers:
        for one in maps.double().numpy():
            size = 12 // one.shape[0]
            for y, x in np.ndindex(12, 24):
                standard = (one[y // size, x // size] - float(model.mean[feature])) / float(model.std[feature])
                expected[y, x] += slope[feature] * standard
            feature += 1
    assert len(layers) == 4  # three of the untrained network, the last of the trained one
    assert np.allclose(score_map(model, image, model.classes[1], 0.0).values, expected, atol=1e-4)


@pytest.mark.parametrize("left", ["fine", "coarse", "stripes"])
def test_the_map_is_positive_where_the_texture_is_and_negative_elsewhere(filters_enough, left):
    X, y = textures(4, 48, 64, seed=1)
    sides = np.where(np.arange(64) < 32, 1, -1)
    for other in {"fine", "coarse", "stripes"} - {left}:
        right = []
        for first, second in zip(X[y == left], X[y == other], strict=True):
            image = np.concatenate([first[:, :32], second[:, 32:]], axis=1)[..., None]
            right.append((np.sign(score_map(filters_enough, image, left).values) == sides).mean())
        assert np.mean(right) > 0.88


@pytest.mark.parametrize("grey", [0, 255])
def test_a_constant_image_is_explained_too(grey):
    model = fitted().model_
    image = np.full((18, 22, 1), grey, dtype=np.uint8)
    found = score_map(model, image, "fine")
    assert np.isfinite(found.values).all()
    value = model.decision_function(image[None])[0, list(model.classes).index("fine")]
    assert found.values.mean() == pytest.approx(value, abs=1e-3)


@pytest.mark.parametrize(
    ("n_cells", "n_pixels", "blur"), [(3, 3, 0), (3, 7, 0), (5, 18, 2.0), (2, 5, 30.0), (7, 7, 0.4)]
)
def test_spreading_keeps_constants_and_means(n_cells, n_pixels, blur, random):
    matrix = spreading(n_cells, n_pixels, blur)
    assert np.allclose(matrix.sum(axis=1), 1)
    assert np.allclose(matrix.sum(axis=0), n_pixels / n_cells)
    assert (matrix >= 0).all()
    cells = random.normal(size=n_cells)
    assert (matrix @ cells).mean() == pytest.approx(cells.mean())


def test_spreading_without_blur_repeats_cells():
    assert spreading(2, 4).tolist() == [[1, 0], [1, 0], [0, 1], [0, 1]]


def test_unknown_class():
    with pytest.raises(ValueError, match="There is no class 'mud'; the model knows coarse, fine, stripes"):
        score_map(fitted().model_, three()[0][0][..., None], "mud")
