import io
import re

import numpy as np
import pytest
from PIL import Image

from lmfcn.data.collection import ImageCollection
from lmfcn.explain.audit import NamedAudit, audit
from lmfcn.explain.explanation import explain
from lmfcn.report import audit_report_writer, explanation_report_writer
from lmfcn.report.overlay import Explained, color_limit, overlay
from small_model import fitted, gallery, three


def pixels_of(content):
    with Image.open(io.BytesIO(content)) as picture:
        assert (picture.format, picture.mode) == ("PNG", "RGB")
        return np.asarray(picture).astype(int)


def test_orange_is_for_and_blue_against():
    values = np.repeat([[2.0, 2.0, 0.0, -2.0, -2.0]], 4, axis=0)
    image = np.full((4, 5, 1), 100, dtype=np.uint8)
    pixels = pixels_of(overlay(image, values))
    assert pixels.shape == (256, 320, 3)
    left, middle, right = pixels[128, 10], pixels[128, 160], pixels[128, 310]
    assert left.tolist() == np.rint(0.3 * 100 + 0.7 * np.array([0xD5, 0x5E, 0x00])).tolist()
    assert right.tolist() == np.rint(0.3 * 100 + 0.7 * np.array([0x00, 0x72, 0xB2])).tolist()
    assert np.abs(middle - 100).max() <= 3


def test_a_map_of_zeros_leaves_a_grey_image():
    image = np.zeros((300, 10, 3), dtype=np.uint8)
    image[..., 0] = 255
    pixels = pixels_of(overlay(image, np.zeros((300, 10))))
    assert pixels.shape == (3 * 300, 30, 3)
    assert (pixels == pixels[..., :1]).all()
    assert color_limit(np.zeros((2, 2))) > 0


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "explanation.html"
    model, image = fitted().model_, three()[0][0][..., None]
    with_pictures = Explained.of("<dir>/a.png", image, explain(model, image, gallery(), top=3))
    without = Explained.of("b.png", image, explain(model, image, None, "stripes", 3))
    explanation_report_writer()([with_pictures, without], path)
    return path.read_text(), with_pictures.found


def test_the_page_shows_the_sum(page):
    text, found = page
    for value in (found.value, found.rest, found.intercept, sum(entry.weight for entry in found.supporting)):
        assert f"<td>{value:+.4f}</td>" in text
    for entry in found.supporting + found.opposing:
        assert f"<strong>{entry.weight:+.3f}</strong> {entry.label}" in text
        assert entry.name.split("/")[1] in text
    assert text.count('<div class="none">no picture</div>') >= 2


def check_page(text):
    assert "<dir>" not in text
    without_pictures = re.sub(r"data:image/[a-z+]+;base64,[A-Za-z0-9+/=]+", "", text)
    assert not re.findall(r"(?:https?:)?//[a-z]", without_pictures)
    assert "<script" not in text
    assert len(re.findall(r"<img [^>]*alt=\"[^\"]", without_pictures)) == text.count("<img ")
    assert 'name="viewport"' in text


def test_the_page_is_self_contained_and_accessible(page):
    check_page(page[0])
    assert page[0].count("<img ") == 4 + len(page[1].supporting) + len(page[1].opposing)


def test_the_page_of_an_audit(tmp_path, random):
    images = random.integers(0, 256, (24, 16, 16), dtype=np.uint8)
    latents = np.concatenate([random.normal(0, 1, (12, 2)), random.normal(5, 1, (12, 2))])
    latents[20] = latents[19]
    labels = ["a & o"] * 12 + ["b"] * 11 + ["a & o"]
    names = [f"<dir>/{i}.png" for i in range(24)]
    audited = NamedAudit(audit(latents, labels, near_identical=[(19, 20)]), names, "By hand.")
    audit_report_writer()(audited, ImageCollection(images, labels), "lmfcn audit cloth", tmp_path / "audit.html")
    text = (tmp_path / "audit.html").read_text()
    check_page(text)
    assert "1 of 24 training images look like another class" in text
    assert "labelled <b>a &amp; o</b>" in text
    assert "looks like b (" in text
    assert "1 pair." in text
    assert "<code>lmfcn audit cloth</code>" in text
    assert text.count("<img ") == 1 + 2


def test_the_page_of_an_audit_without_findings(tmp_path, random):
    latents = np.concatenate([random.normal(0, 1, (12, 2)), random.normal(9, 1, (12, 2))])
    labels = ["a"] * 12 + ["b"] * 12
    collection = ImageCollection(np.zeros((24, 8, 8), dtype=np.uint8), labels)
    audited = NamedAudit(audit(latents, labels), collection.paths, "By hand.")
    audit_report_writer()(audited, collection, "lmfcn audit", tmp_path / "audit.html")
    text = (tmp_path / "audit.html").read_text()
    assert "None of the 24 training images looks like another class" in text
    assert "<img" not in text
