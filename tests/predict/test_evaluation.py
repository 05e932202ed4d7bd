import numpy as np
import pytest

from lmfcn import LMFCNClassifier, Recipe
from lmfcn.data.collection import ImageCollection
from lmfcn.predict.evaluation import (
    Estimate,
    TrainingCopies,
    accuracy_without,
    balanced_recall,
    class_numbers_of,
    evaluate,
    evaluate_predictions,
    find_training_copies,
)


def test_intervals_are_reproducible_and_shrink_with_more_images():
    few = balanced_recall(np.repeat([0, 1], 10), np.arange(20) % 5 > 0)[0]
    many = balanced_recall(np.repeat([0, 1], 1000), np.arange(2000) % 5 > 0)[0]
    assert few == balanced_recall(np.repeat([0, 1], 10), np.arange(20) % 5 > 0)[0]
    assert few.value == many.value == 0.8
    assert few.low < many.low < 0.8 < many.high < few.high


def test_a_class_without_errors_is_not_certain():
    estimate, recalls = balanced_recall(np.repeat([0, 1], 16), np.full(32, True))
    assert (estimate.value, estimate.high) == (1.0, 1.0)
    assert 0.8 < recalls[0].low < 0.9  # Jeffreys' interval of 16 of 16 begins at 0.857
    assert 0.85 < estimate.low < 0.97


def test_groups_with_equal_predictions_have_wider_intervals():
    numbers, correct = np.repeat([0, 1], 100), np.tile(np.repeat([True, True, True, True, False], 20), 2)
    ungrouped = balanced_recall(numbers, correct)[0]
    one_per_group = balanced_recall(numbers, correct, np.arange(200))[0]
    grouped = balanced_recall(numbers, correct, np.arange(200) // 20)[0]
    assert grouped.value == ungrouped.value
    assert grouped.high - grouped.low > 2 * (ungrouped.high - ungrouped.low)
    assert abs(one_per_group.low - ungrouped.low) < 0.01
    assert abs(one_per_group.high - ungrouped.high) < 0.01


def test_intervals_hold_the_truth_as_often_as_they_say():
    random = np.random.default_rng(0)
    numbers = np.repeat([0, 1], 40)
    held = []
    for _ in range(200):
        correct = random.random(80) < np.where(numbers == 0, 0.95, 0.7)
        found = balanced_recall(numbers, correct)[0]
        held.append(found.low <= 0.825 <= found.high)
    assert 0.9 <= np.mean(held) <= 0.99


@pytest.fixture(scope="module")
def fitted(textures):
    return LMFCNClassifier(epochs=1, latent_dim=2, widths=(4,), recipe=Recipe(passes=1), random_state=0).fit(*textures)


def test_everything_by_hand(fitted):
    numbers = np.array([0, 0, 0, 1])
    predicted = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.1, 0.9]])
    found = evaluate_predictions(fitted.model_, numbers, predicted)
    assert found.confusion.tolist() == [[2, 1], [0, 1]]
    assert found.accuracy == 0.75
    assert found.balanced_accuracy.value == pytest.approx((2 / 3 + 1) / 2)
    assert found.recalls["0"].n == 3
    assert found.log_loss == pytest.approx(-np.log([0.9, 0.6, 0.2, 0.9]).mean())
    assert found.brier_score == pytest.approx(2 * np.mean([0.01, 0.16, 0.64, 0.01]))
    assert [row.target for row in found.coverage] == [0.8, 0.9, 0.95]
    assert all(1 <= row.mean_size <= 2 for row in found.coverage)


def test_a_class_that_does_not_occur_is_left_out_of_the_mean(fitted):
    found = evaluate_predictions(fitted.model_, np.zeros(3, dtype=int), np.array([[0.9, 0.1]] * 3))
    assert list(found.recalls) == ["0"]
    assert found.balanced_accuracy.value == 1.0


def test_held_out_images_tell_what_the_record_says(fitted, textures):
    held_out = fitted.held_out_
    assert np.array_equal(textures[1][held_out.positions], held_out.numbers)
    assert not held_out.seen
    assert fitted.model_.record["held_out"]["balanced_accuracy"] == held_out.balanced_accuracy
    found = evaluate_predictions(fitted.model_, held_out.numbers, held_out.probabilities)
    assert found.balanced_accuracy.value == held_out.balanced_accuracy
    own = np.sort(held_out.probabilities[np.arange(len(held_out.numbers)), held_out.numbers])
    assert np.allclose(own, fitted.model_.calibration.true_probabilities)


def test_training_images_are_recognised(fitted, textures):
    darker, new = textures[0][5:7] // 2, 255 - textures[0][:3]
    images = ImageCollection(np.concatenate([textures[0][:5], darker, new]))
    found = find_training_copies(fitted.model_, images)
    assert found.exact.tolist() == [True] * 5 + [False] * 5
    assert found.near.tolist() == [True] * 7 + [False] * 3
    record = dict(fitted.model_.record)
    del fitted.model_.record["image_hashes"]  # as in a file of an earlier version
    old = find_training_copies(fitted.model_, images)
    assert (old.complete, old.near.tolist()) == (False, found.exact.tolist())
    fitted.model_.record["image_digests"] = "no digests"
    assert find_training_copies(fitted.model_, images) is None
    fitted.model_.record.update(record)


def test_accuracy_without_some_images_by_hand():
    predicted = np.eye(2)[[0, 0, 1, 1]]  # right, right, wrong, right
    numbers = np.array([0, 0, 0, 1])
    found = accuracy_without(np.array([True, False, False, False]), numbers, predicted)
    assert (found.value, found.n) == (0.75, 3)
    assert accuracy_without(np.full(4, False), numbers, predicted) is None
    assert accuracy_without(np.full(4, True), numbers, predicted) is None


@pytest.mark.parametrize(
    ("exact", "near", "without", "sentence"),
    [
        (0, 0, None, "None of the 4 images has a near-identical training image."),
        (0, 1, Estimate(0.75, 0.5, 1, 3), "1 of the 4 images has a near-identical training image; without them the"),
        (
            1,
            2,
            Estimate(0.5, 0.25, 1, 2),
            "an exact copy; without them the balanced accuracy is 0.500 (0.250 to 1.000)",
        ),
        (4, 4, None, "4 of the 4 images have a near-identical training image, 4 of them an exact copy; on new images"),
    ],
)
def test_copies_of_training_images_in_words(exact, near, without, sentence):
    copies = TrainingCopies(np.arange(4) < exact, np.arange(4) < near)
    assert sentence in copies.sentence(without)


def test_training_images_are_recognised_in_a_collection_with_a_color(random):
    pixels = random.integers(0, 256, (12, 20, 20, 3), dtype=np.uint8)
    train = ImageCollection(pixels, np.arange(12) % 2, color="rgb").resized(12)
    model = (
        LMFCNClassifier(epochs=1, latent_dim=2, widths=(4,), recipe=Recipe(passes=1), random_state=0).fit(train).model_
    )
    found = find_training_copies(model, ImageCollection(pixels[:5], color="rgb"))
    assert found.exact.sum() == found.near.sum() == 5


def test_labels_are_compared_as_text(fitted, textures):
    labels = textures[1].astype(str)
    found = evaluate(fitted.model_, ImageCollection(textures[0], labels))
    assert found.accuracy == fitted.score(*textures)
    with pytest.raises(ValueError, match="does not know: '2', 'x'; it knows '0', '1'"):
        class_numbers_of(fitted.model_, ["0", "x", 2])
    with pytest.raises(ValueError, match="have no labels"):
        class_numbers_of(fitted.model_, None)
