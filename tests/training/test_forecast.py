from dataclasses import replace

import numpy as np
import pytest

from lmfcn import LMFCNClassifier, Recipe
from lmfcn.data.collection import ImageCollection
from lmfcn.training.forecast import Costs, Forecast, forecast_collection


def forecast_of(costs, **recipe):
    recipe = Recipe(**{"epochs": 6, "refit_epochs": 3, "passes": 8} | recipe)
    return Forecast(recipe, costs, n_train=100, n_validation=20, n_networks=1, memory=10**9)


def test_the_seconds_of_every_step_are_counted():
    # Each of 120 images once.
    assert forecast_of(Costs(2.0, 0, 0, 0)).seconds == 240
    # 3 and 3 epochs, a last one of each phase that only measures, and twice for the SVM at the end of each phase.
    assert forecast_of(Costs(0, 1.0, 0, 0)).seconds == (4 + 4 + 2 + 2) * 120
    # 3 epochs of 8 passes over 100 images, then over 120.
    assert forecast_of(Costs(0, 0, 0.5, 0)).seconds == 0.5 * (3 * 8 * 100 + 3 * 8 * 120)
    assert forecast_of(Costs(0, 0, 0, 1.0)).seconds == 4 + 4 + 8
    four = replace(forecast_of(Costs(2.0, 0, 0.5, 0)), n_networks=4)
    assert four.seconds == 240 + 4 * 0.5 * 24 * 220


def test_a_budget_takes_passes_first_and_then_epochs():
    expected = forecast_of(Costs(0, 0, 0.1, 0))
    assert expected.within(60) is expected
    half = expected.within(expected.seconds / 2 / 60)
    assert (half.recipe.passes, half.recipe.epochs, half.recipe.refit_epochs) == (4, 6, 3)
    little = expected.within(expected.seconds / 5 / 60)
    assert (little.recipe.passes, little.recipe.epochs) < (3, 6)
    assert little.seconds <= expected.seconds / 5
    least = expected.within(0.001)
    assert (least.recipe.passes, least.recipe.epochs, least.recipe.refit_epochs) == (2, 2, 1)


def test_what_cannot_get_shorter_stays():
    one = forecast_of(Costs(1.0, 1.0, 1.0, 1.0), epochs=1, refit_epochs=0, passes=1)
    assert one.within(0.001).recipe == one.recipe


def test_words_tell_time_and_memory():
    assert forecast_of(Costs(1.0, 0, 0, 0)).describe() == "at most about 2 min 0 s and 1.0 GB of memory"


def test_a_forecast_measures_a_few_images_and_trains_nothing(textures):
    classifier = LMFCNClassifier(epochs=2, latent_dim=4)
    found = classifier.forecast(*textures)
    assert (found.n_train, found.n_validation) == (26, 6)
    assert (found.recipe.n_epochs, found.recipe.n_refit_epochs, found.recipe.n_passes) == (2, 1, 12)
    assert min(vars(found.costs).values()) > 0
    assert found.memory > 10**7
    assert not hasattr(classifier, "model_")


def test_images_of_a_collection_cost_by_their_pixels(random):
    images = [random.integers(0, 255, (side, side + 9), dtype=np.uint8) for side in (16, 24, 32, 48) for _ in range(6)]
    collection = ImageCollection(images, labels=np.arange(24) % 2)
    found = forecast_collection(collection, Recipe(latent_dim=4), None, 0.25)
    assert (found.n_train, found.n_validation) == (18, 6)
    assert found.seconds > 0


def test_images_that_cannot_be_learnt_from_have_no_forecast():
    images = np.zeros((12, 16, 16), dtype=np.uint8)
    assert LMFCNClassifier(recipe=Recipe(split_duplicates=True)).forecast(images, np.arange(12) % 2) is None


@pytest.mark.parametrize("strategy", ["joint", "one-vs-all"])
def test_every_network_is_counted(random, strategy):
    images, labels = random.integers(0, 255, (18, 16, 16), dtype=np.uint8), np.arange(18) % 3
    found = LMFCNClassifier(strategy=strategy, latent_dim=2).forecast(images, labels)
    assert found.n_networks == (3 if strategy == "one-vs-all" else 1)
