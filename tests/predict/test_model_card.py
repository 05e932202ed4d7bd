import numpy as np
import pytest

from lmfcn.predict.evaluation import balanced_recall
from lmfcn.predict.model_card import model_card
from random_models import random_model
from small_model import fitted

yaml = pytest.importorskip("yaml")


def parts(card):
    _, header, body = card.split("---\n", 2)
    return yaml.safe_load(header), body


def test_the_header_is_what_hugging_face_reads():
    classifier = fitted()
    header, body = parts(model_card(classifier.model_, "noise.lmfcn", licence="cc-by-4.0"))
    assert (header["library_name"], header["pipeline_tag"], header["license"]) == (
        "lmfcn",
        "image-classification",
        "cc-by-4.0",
    )
    (index,) = header["model-index"]
    (result,) = index["results"]
    assert index["name"] == "noise.lmfcn"
    assert result["task"]["type"] == "image-classification"
    assert result["dataset"]["name"] == "own images, held-out images"
    assert result["metrics"][0]["value"] == pytest.approx(classifier.held_out_.balanced_accuracy, abs=1e-4)
    assert 'model = lmfcn.load("noise.lmfcn")' in body


def test_the_interval_is_that_of_the_held_out_images():
    held_out = fitted().held_out_
    right = held_out.probabilities.argmax(axis=1) == held_out.numbers
    expected, _ = balanced_recall(held_out.numbers, right)
    _, body = parts(model_card(fitted().model_, "a"))
    row = f"| held-out images | {len(right)} | {expected.value:.3f} | {expected.low:.3f} to {expected.high:.3f} |"
    assert row in body
    assert "Fewer than 20 training images: coarse, fine, stripes" in body


def test_a_model_without_a_record_says_what_is_unknown():
    from lmfcn.data.image_form import ImageForm

    header, body = parts(model_card(random_model(np.array(["a|b", "c"]), ImageForm(1, "uint8")), "x"))
    assert "model-index" not in header
    assert "license" not in header
    assert "The accuracy of this model is unknown".lower() in body.lower()
    assert "It cannot tell images that belong to none of them" in body
