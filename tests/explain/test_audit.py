import csv

import numpy as np
import pytest

from lmfcn.data.collection import ImageCollection
from lmfcn.explain.audit import (
    COLUMNS,
    NamedAudit,
    audit,
    describe_accuracy,
    describe_issues,
    latents_for_audit,
    write_audit_table,
)
from lmfcn.util.tensor_files import FileError
from small_trunk import SmallTrunk, trunk_classifier, trunk_images


@pytest.fixture
def clouds(random):
    """Three clouds of 20 latents, with two planted wrong labels, a copy, and a copy with another label."""
    centres = np.array([[0, 0, 0], [4, 0, 0], [0, 4, 0]])
    latents = np.concatenate([random.normal(centre, 0.8, (20, 3)) for centre in centres])
    labels = np.repeat(["a", "b", "c"], 20).astype(object)
    labels[[3, 25]] = ["b", "c"]
    return np.concatenate([latents, latents[[50, 10]]]), np.append(labels, ["c", "b"])


def test_planted_errors_come_first(clouds):
    latents, labels = clouds
    found = audit(latents, labels, near_identical=[(10, 61), (50, 60)])
    assert set(found.order[:4].tolist()) == {3, 25, 10, 61}
    assert {3, 25, 10, 61} <= set(found.disagreeing.tolist())
    assert len(found.disagreeing) < 10
    assert found.classes[found.likeliest[[3, 25]]].tolist() == ["a", "b"]
    assert found.misclassified[[3, 25]].tolist() == [1.0, 1.0]
    assert found.bounded[[3, 25]].all()
    assert found.bounded.mean() < 0.5


def test_copies_are_found_and_those_of_another_class_come_before_all(clouds):
    latents, labels = clouds
    found = audit(latents, labels, near_identical=[(10, 61), (50, 60)])
    assert found.near_identical == [(10, 61), (50, 60)]
    assert np.flatnonzero(found.conflicting).tolist() == [10, 61]
    assert found.near_identical_to[[10, 61, 50, 60, 0]].tolist() == [61, 10, 60, 50, -1]
    assert set(found.order[:2].tolist()) == {10, 61}


def test_probabilities_are_cross_validated(clouds):
    latents, labels = clouds
    found = audit(latents, labels)
    assert np.allclose(found.probabilities.sum(axis=1), 1)
    assert np.array_equal(found.given_probability, found.probabilities[np.arange(62), found.numbers])
    assert (found.given_probability[[3, 25]] < 0.3).all()
    again = audit(latents, labels)
    assert np.array_equal(again.probabilities, found.probabilities)


def test_two_classes(clouds):
    latents, labels = clouds
    two = labels != "c"
    found = audit(latents[two], labels[two])
    names = np.flatnonzero(two)[found.disagreeing]
    assert 3 in names
    assert found.bounded[np.flatnonzero(np.flatnonzero(two) == 3)].all()


def test_groups_are_held_out_together(random):
    # Copies in a group of their own would confirm each other's wrong label.
    latents = np.concatenate([random.normal(0, 1, (20, 4)), random.normal(4, 1, (20, 4)), np.repeat([[4.5] * 4], 3, 0)])
    latents[40:] += random.normal(0, 0.05, (3, 4))
    labels = ["a"] * 20 + ["b"] * 20 + ["a"] * 3
    groups = [*range(40), 40, 40, 40]
    ungrouped, grouped = audit(latents, labels), audit(latents, labels, groups)
    assert grouped.given_probability[40:].max() < ungrouped.given_probability[40:].min()
    assert set(grouped.disagreeing.tolist()) >= {40, 41, 42}


def test_a_class_that_cannot_be_held_out_has_no_probabilities(random):
    latents = random.normal(size=(22, 3))
    groups = [*range(20), 20, 20]
    found = audit(latents, ["a"] * 10 + ["b"] * 10 + ["c"] * 2, groups)
    assert np.isnan(found.given_probability[20:]).all()
    assert found.likeliest[20:].tolist() == [2, 2]
    assert not set(found.disagreeing.tolist()) & {20, 21}
    assert set(found.order[-2:].tolist()) == {20, 21}


def test_the_nearest_near_identical_image_by_hand():
    """Of three near-identical images, one of another class is preferred, then the nearest latent."""
    latents = np.array([[0.0], [5.0], [5.4], [5.1], [9.0], [9.1], [13.0], [1.0]])
    groups = [(1, 2, 3), (4, 5)]
    same = audit(latents, list("aaaabbbb"), near_identical=groups)
    assert same.near_identical_to.tolist() == [-1, 3, 3, 1, 5, 4, -1, -1]
    assert not same.conflicting.any()
    other = audit(latents, list("aababbab"), near_identical=groups)
    assert other.near_identical_to.tolist() == [-1, 2, 3, 2, 5, 4, -1, -1]
    assert np.flatnonzero(other.conflicting).tolist() == [1, 2, 3]


def test_near_identical_images_are_held_out_together_with_their_groups(clouds):
    latents, labels = clouds
    together = audit(latents, labels, near_identical=[(50, 60)])
    grouped = audit(latents, labels, [*range(60), 50, 61])
    assert np.array_equal(together.probabilities, grouped.probabilities)
    apart = audit(latents, labels, near_identical=[(50, 60)], split_duplicates=True)
    assert np.array_equal(apart.probabilities, audit(latents, labels).probabilities)
    assert apart.near_identical_to[50] == 60


def test_the_accuracy_is_stated_and_a_low_one_is_warned_of(clouds, random):
    latents, labels = clouds
    found = audit(latents, labels)
    right = found.likeliest == found.numbers
    recalls = [right[found.numbers == number].mean() for number in range(3)]
    assert found.balanced_accuracy == pytest.approx(np.mean(recalls))
    assert not found.is_weak
    assert describe_accuracy(found) == [
        f"Cross-validated balanced accuracy {np.mean(recalls):.3f} with 3 classes, by the labels as they are."
    ]
    noise = audit(random.normal(size=(60, 4)), np.repeat(["a", "b", "c"], 20))
    assert noise.is_weak
    assert (
        "That is low (below 0.9): most of the images below are errors of the classifier" in describe_accuracy(noise)[1]
    )


def test_wrong_use():
    with pytest.raises(ValueError, match="same length, got 3 images and 2 labels"):
        audit(np.zeros((3, 2)), ["a", "b"])
    with pytest.raises(ValueError, match="at least two classes"):
        audit(np.zeros((3, 2)), ["a"] * 3)
    with pytest.raises(ValueError, match="'b' has 1 image; at least 2"):
        audit(np.zeros((3, 2)), ["a", "a", "b"])
    with pytest.raises(ValueError, match="they all coincide"):
        audit(np.zeros((4, 2)), ["a", "a", "b", "b"])


def test_words_and_table(clouds, tmp_path):
    latents, labels = clouds
    names = [f"{i}.png" for i in range(62)]
    audited = NamedAudit(audit(latents, labels, near_identical=[(10, 61), (50, 60)]), names, "")
    (first, *_) = describe_issues(audited, 3)
    assert first.startswith("looks like a (0.")
    assert "violates the margin" in describe_issues(audited, 3)
    assert "near-identical to 61.png, which is labelled b" in describe_issues(audited, 10)
    assert describe_issues(audited, 50) == ["near-identical to 60.png, of the same class"]
    write_audit_table(audited, tmp_path / "audit.csv")
    with (tmp_path / "audit.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert [row["rank"] for row in rows] == [str(rank) for rank in range(1, 63)]
    assert [row["path"] for row in rows] == [names[i] for i in audited.found.order]
    by_name = {row["path"]: row for row in rows}
    assert by_name["10.png"]["twin"] == "61.png"
    assert by_name["10.png"]["twin_label"] == "b"
    assert (by_name["3.png"]["label"], by_name["3.png"]["likeliest"], by_name["3.png"]["disagrees"]) == (
        "b",
        "a",
        "yes",
    )
    assert {row["disagrees"] for row in rows} == {"yes", "no"}
    assert float(by_name["3.png"]["probability"]) == pytest.approx(audited.found.given_probability[3], abs=1e-4)


def test_latents_of_a_model_with_a_trunk_show_a_planted_error(tmp_path):
    X, y = trunk_images()
    labels = y.astype(object)
    labels[4] = "stripes"
    images, path = ImageCollection(X, labels=labels), tmp_path / "model.lmfcn"
    trunk_classifier().save(path)
    latents, origin = latents_for_audit(images, path, device="cpu", network=SmallTrunk())
    assert latents.shape == (30, trunk_classifier().model_.networks.n_latents)
    assert str(path) in origin
    assert audit(latents, labels).disagreeing[0] == 4
    with pytest.raises(FileError, match="needs the frozen network 'SmallTrunk'"):
        latents_for_audit(images, path, device="cpu")


@pytest.mark.slow
def test_an_audit_may_train_behind_a_trunk():
    X, y = trunk_images()
    latents, origin = latents_for_audit(ImageCollection(X, labels=y), device="cpu", network=SmallTrunk())
    n_features = 2 * 14 + 6 * 7 // 2 + 8 * 9 // 2  # moments of 6 and of 8 maps
    assert latents.shape == (30, n_features + 2 * 64)  # the features of the trunk, and the latents that were trained
    assert "trained on them" in origin
