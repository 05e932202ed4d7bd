import math

import numpy as np
import pytest
import torch

from lmfcn.compute import strips
from lmfcn.compute.encode import to_batch
from lmfcn.explain.score_map import (
    ClassScore,
    _mirrored_maps,
    class_number,
    score_map,
    support_classes,
    upsampling_matrix,
)
from lmfcn.method.kernel_svm import Decision, LatentScale
from small_model import fitted, quick, textures, three
from small_trunk import SmallTrunk, trunk_images, with_channels


def some_score(generator, n=8, phi=5, gamma=0.1):
    support = torch.randn(n, phi, dtype=torch.float64, generator=generator)
    return ClassScore(gamma, support, torch.randn(n, dtype=torch.float64, generator=generator), 0.3)


def some_decision(coefficients):
    coefficients = torch.tensor(coefficients, dtype=torch.float64)
    zeros, intercepts = torch.zeros(len(coefficients), 2), torch.arange(1.0, coefficients.shape[1] + 1)
    return Decision(LatentScale(torch.zeros(2), torch.ones(2)), 0.5, zeros, coefficients, intercepts)


def test_three_support_vectors_by_hand():
    support = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]], dtype=torch.float64)
    score = ClassScore(0.1, support, torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64), -0.25)
    weights = score.weights(torch.tensor([0.0, 1.0]))
    expected = [2 * math.exp(-0.1), -math.exp(-0.1 * 18), 0.5]  # squared distances 1, 9 + 9, 0
    assert weights.tolist() == pytest.approx(expected, abs=1e-12)
    assert score.value(torch.tensor([0.0, 1.0])) == pytest.approx(sum(expected) - 0.25, abs=1e-12)


def test_mean_gradient_of_one_support_vector_by_hand():
    # f(x) = exp(-x^2): from 0 to 2 it falls by 1 - exp(-4), over a way of 2.
    score = ClassScore(1.0, torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, dtype=torch.float64), 5.0)
    assert float(score.mean_gradient(torch.tensor([2.0]))) == pytest.approx((math.exp(-4) - 1) / 2, abs=1e-14)


@pytest.mark.parametrize("length", [1e-3, 0.3, 1.0, 10.0])
def test_mean_gradient_is_the_mean_of_gradients_along_the_way(generator, length):
    score = some_score(generator)
    latent = length * torch.randn(5, dtype=torch.float64, generator=generator)
    mean = torch.zeros(5, dtype=torch.float64)
    steps = 500
    for step in range(steps):  # a gradient at every step
        point = latent * (step + 0.5) / steps
        for coefficient, support in zip(score.coefficients, score.support_latents, strict=True):
            apart = point - support
            mean -= 2 * score.gamma * coefficient * math.exp(-score.gamma * float(apart @ apart)) * apart / steps
    assert torch.allclose(score.mean_gradient(latent), mean, atol=1e-4)


@pytest.mark.parametrize("length", [0.0, 1e-9, 1e-4, 1.0, 30.0, 1e4])
def test_mean_gradient_times_latent_is_the_rise_of_the_score(generator, length):
    score = some_score(generator)
    latent = length * torch.randn(5, dtype=torch.float64, generator=generator)
    gradient = score.mean_gradient(latent)
    rise = score.value(latent) - score.value(torch.zeros(5))
    assert float(gradient @ latent) == pytest.approx(rise, abs=1e-12)
    assert bool(torch.isfinite(gradient).all())


def test_at_the_origin_the_mean_gradient_is_the_gradient(generator):
    score = some_score(generator)
    origin = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    squared = (origin - score.support_latents).square().sum(dim=1)
    ((-score.gamma * squared).exp() @ score.coefficients).backward()
    assert torch.allclose(score.mean_gradient(torch.zeros(5)), origin.grad, atol=1e-12)
    assert torch.allclose(score.mean_gradient(torch.full((5,), 1e-5)), origin.grad, atol=1e-4)


def test_the_first_of_two_classes_has_the_negative_score():
    decision = some_decision([[1.0], [-2.0]])
    first, second = ClassScore.of(decision, 0), ClassScore.of(decision, 1)
    assert first.coefficients.tolist() == [-1.0, 2.0]
    assert second.coefficients.tolist() == [1.0, -2.0]
    assert (first.intercept, second.intercept) == (-1.0, 1.0)


def test_classes_of_support_vectors_as_far_as_coefficients_tell():
    two = some_decision([[0.5], [-0.5]])
    assert support_classes(two).tolist() == [1, 0]
    three = some_decision([[0.5, -0.1, 0.0], [0.0, 0.0, 0.2], [-0.3, 0.0, -0.1], [-0.3, 0.0, 0.0]])
    assert support_classes(three).tolist() == [0, 2, 1, -1]


def test_classes_by_name_or_value():
    assert class_number(np.array(["bark", "wood"]), "wood") == 1
    assert class_number(np.array([2, 7]), 7) == class_number(np.array([2, 7]), "7") == 1
    with pytest.raises(ValueError, match="There is no class 'steel'; the model knows bark, wood"):
        class_number(np.array(["bark", "wood"]), "steel")


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


@pytest.mark.parametrize(
    ("changes", "channels", "pixels"),
    [
        ({}, 1, "uint8"),
        ({"keep_untrained": False}, 3, "uint8"),
        ({"strategy": "one-vs-all"}, 1, "uint8"),
        ({}, 2, "uint16"),
    ],
    ids=["features kept", "trained only", "a network per class", "two channels"],
)
def test_behind_a_trunk_the_mean_of_the_map_is_the_decision_value(changes, channels, pixels):
    X = with_channels(trunk_images()[0], channels, pixels)
    model = quick(network=SmallTrunk(), **changes).fit(X, trunk_images()[1]).model_
    for image in (X[0], X[13, :33], np.tile(X[25], (1, 6, 1))):
        values = model.decision_function(image[None])[0]
        for label, value in zip(model.classes, values, strict=True):
            found = score_map(model, image, label)
            assert found.values.shape == image.shape[:2]
            assert found.value == pytest.approx(value, abs=1e-12)
            assert found.values.mean() == pytest.approx(value, abs=2e-5)


def test_the_map_agrees_with_a_loop_over_positions():
    model, image = fitted().model_, textures(1, 12, 24)[0][0][..., None]
    score = ClassScore.of(model.decision, 1)
    latent = torch.from_numpy(model.transform(image[None])[0])
    gradient = (model.whitening.double() @ score.mean_gradient(latent)).tolist()
    expected = np.full((12, 24), score.value(torch.zeros_like(latent)))
    mirrored = np.pad(image, ((16, 16), (16, 16), (0, 0)), mode="reflect")
    with torch.no_grad():
        layers = [maps[0] for network in model.members for maps in network.maps(to_batch(mirrored[None], model.device))]
    feature = 0
    for maps in layers:
        for one in maps.double().numpy():
            size = (12 + 32) // one.shape[0]
            for y, x in np.ndindex(12, 24):
                cell = one[(y + 16) // size, (x + 16) // size]
                expected[y, x] += gradient[feature] * (cell - float(model.mean[feature])) / float(model.std[feature])
            feature += 1
    assert len(layers) == 4  # three of the untrained network, the last of the trained one
    found = score_map(model, image, model.classes[1], 0.0)
    assert np.allclose(found.values - found.border, expected, atol=1e-4)
    assert found.border == pytest.approx(score.value(latent) - expected.mean(), abs=1e-4)


@pytest.mark.parametrize("shape", [(36, 44), (37, 90)])
def test_the_map_of_a_constant_image_is_constant(shape):
    found = score_map(fitted().model_, np.full((*shape, 1), 170, dtype=np.uint8), "fine")
    assert abs(found.border) > 0.01  # zeros beyond the border do change the decision value ...
    assert np.ptp(found.values) < 1e-4  # ... but this is nowhere in the map


def test_behind_a_trunk_fine_stages_are_mirrored_and_coarse_ones_are_not():
    model = quick(network=SmallTrunk(), correlations=False).fit(*trunk_images()).model_
    image = np.full((48, 96, 1), 170, dtype=np.uint8)
    (fine, fine_margins), _, (coarse, coarse_margins), _, *of_trained = _mirrored_maps(model, image)
    (trained, trained_margins), _ = of_trained  # maps, and their standard deviations
    assert (coarse.shape[1:], coarse_margins) == ((4, 8), (0, 0))  # brought to 32x64 pixels
    assert fine.shape[1:] == ((32 + 16) // 2, (64 + 16) // 2)  # and 8 pixels on each side, 12 of the image
    assert fine_margins == trained_margins == (12, 12)
    inside = fine[:, 4:-4, 4:-4]
    assert torch.allclose(inside, inside[:, :1, :1].expand_as(inside), atol=1e-6)
    alone = model.trunk(to_batch(image[None], model.device))[1][0]
    assert torch.allclose(coarse, alone, atol=1e-6)
    assert len(trained) == 4


def test_noise_has_no_border(filters_enough):
    X = textures(40, 36, 48, seed=3)[0][:40]
    mean = np.mean([score_map(filters_enough, image[..., None], "coarse", 0.0).values for image in X], axis=0)
    inside = np.zeros(mean.shape, dtype=bool)
    inside[8:-8, 8:-8] = True
    # Without mirroring it is six times as much, 0.13.
    assert abs(mean[inside].mean() - mean[~inside].mean()) < 0.05


def test_an_image_smaller_than_the_margin_is_mirrored_again_and_again():
    model, image = fitted().model_, three()[0][0][:8, :9, None]
    found = score_map(model, image, "stripes")
    value = model.decision_function(image[None])[0, list(model.classes).index("stripes")]
    assert found.values.shape == (8, 9)
    assert found.values.mean() == pytest.approx(value, abs=2e-5)


@pytest.mark.parametrize("left", ["fine", "coarse", "stripes"])
def test_the_map_is_positive_where_the_texture_is_and_negative_elsewhere(filters_enough, left):
    X, y = textures(4, 48, 64, seed=1)
    expected_signs = np.where(np.arange(64) < 32, 1, -1)
    for other in {"fine", "coarse", "stripes"} - {left}:
        right = []
        for first, second in zip(X[y == left], X[y == other], strict=True):
            image = np.concatenate([first[:, :32], second[:, 32:]], axis=1)[..., None]
            right.append((np.sign(score_map(filters_enough, image, left).values) == expected_signs).mean())
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
def test_upsampling_keeps_constants_and_means(n_cells, n_pixels, blur, random):
    matrix = upsampling_matrix(n_cells, n_pixels, blur)
    assert np.allclose(matrix.sum(axis=1), 1)
    assert np.allclose(matrix.sum(axis=0), n_pixels / n_cells)
    assert (matrix >= 0).all()
    cells = random.normal(size=n_cells)
    assert (matrix @ cells).mean() == pytest.approx(cells.mean())


def test_upsampling_without_blur_repeats_cells():
    assert upsampling_matrix(2, 4).tolist() == [[1, 0], [1, 0], [0, 1], [0, 1]]


def test_upsampling_with_a_margin_leaves_out_what_is_beyond_the_row():
    with_margin = upsampling_matrix(6, 8, margin=2)  # cells of two pixels, the first and the last in the margin
    assert np.array_equal(with_margin[:, 1:-1], upsampling_matrix(4, 8))
    assert not with_margin[:, [0, -1]].any()


def test_unknown_class():
    with pytest.raises(ValueError, match="There is no class 'mud'; the model knows coarse, fine, stripes"):
        score_map(fitted().model_, three()[0][0][..., None], "mud")


def test_a_very_large_image_has_the_same_map_in_strips(monkeypatch):
    model, image = fitted().model_, textures(1, 120, 90)[0][0][..., None]
    whole = score_map(model, image, "fine")
    monkeypatch.setattr(strips, "LARGEST_WHOLE", 500)
    monkeypatch.setattr(strips, "_STRIP_PIXELS", 600)
    found = score_map(model, image, "fine")
    np.testing.assert_allclose(found.values, whole.values, atol=1e-4)
    assert found.value == pytest.approx(whole.value, abs=1e-6)
