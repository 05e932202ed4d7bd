"""What a notebook shows."""

import re
import xml.etree.ElementTree as ElementTree

import lmfcn
from lmfcn.data.image_form import ImageForm
from lmfcn.model_html import confusion_svg, model_html
from random_models import random_model
from small_model import fitted, quick


def cells(html):
    return dict(re.findall(r'<th scope="row"[^>]*>(.*?)</th><td[^>]*>(.*?)</td>', html))


def test_a_fitted_classifier_shows_its_model():
    classifier = fitted()
    shown = classifier._repr_mimebundle_()["text/html"]
    found = cells(shown)
    score = classifier.held_out_.balanced_accuracy
    assert found["classes"] == "3: coarse, fine, stripes"
    assert found["accuracy"] == f"{score:.3f} balanced, on {len(classifier.held_out_.numbers)} held-out images"
    assert found["network"].startswith("from scratch; ")
    assert re.search(r"\d+ s$", found["fit"])
    assert "<svg" in shown
    assert "<summary>Parameters</summary>" in shown
    assert cells(classifier._repr_html_()) == found


def test_an_unfitted_classifier_shows_its_parameters():
    shown = quick()._repr_html_()
    assert "<svg" not in shown.partition("sk-")[0]
    assert "latent_dim" in shown


def test_a_model_from_a_file_shows_the_same(tmp_path):
    fitted().model_.save(tmp_path / "model.lmfcn")
    found = cells(lmfcn.load(tmp_path / "model.lmfcn")._repr_html_())
    expected = cells(fitted()._repr_html_())
    assert "fit" not in found
    assert {name: text for name, text in expected.items() if name != "fit"} == found


def test_names_cannot_bring_markup_in():
    model = random_model(["<script>alert(1)</script>", "b"], ImageForm(1, "uint8"))
    model.record["held_out"] = {
        "n_images": 3,
        "balanced_accuracy": 0.5,
        "seen_in_training": False,
        "confusion": [[1, 1], [0, 1]],
    }
    assert "<script" not in model_html(model, title="<script>")


def test_the_picture_tells_the_shares_of_each_row():
    root = ElementTree.fromstring(confusion_svg([[3, 1], [0, 0]], ["a", "b"]))
    opacities = [cell.attrib["fill-opacity"] for cell in root.iter("rect")]
    assert opacities == ["0.75", "0.25", "0.00", "0.00"]
    assert [text.text for text in root.iter("text")] == ["3", "1", "a", "a", "b", "b"]
    assert confusion_svg([[1] * 31] * 31, [str(i) for i in range(31)]) == ""


def test_reprs_are_short():
    from lmfcn.explain.explanation import explain
    from small_model import gallery, three

    images, _ = three()
    found = explain(fitted().model_, images[0], gallery())
    for thing in (found, found.map, found.supporting, gallery(), fitted().held_out_):
        assert len(repr(thing)) < 400
        assert "array(" not in repr(thing)
    assert re.fullmatch(r"HeldOut\(\d+ images, balanced accuracy [01]\.\d{3}\)", repr(fitted().held_out_))
