"""The report of a training in a real browser."""

from itertools import pairwise

import pytest
from PIL import Image

from browser import Visit, chromium
from lmfcn.report.training_page import write_training_report
from lmfcn.user_training import Source, open_split, train_model

LONG = "a_very_long_name_of_a_class_of_defects_without_any_space"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wide")
    for number in range(20):
        path = folder / "data" / (LONG if number % 2 else "bark") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((64, 32), 20 + 60 * (number % 2)).save(path)
    parameters = {"epochs": 1, "latent_dim": 2, "random_state": 0, "network": "texture-fcn"}
    trained = train_model(
        open_split(Source(folder / "data", size=16, fit="stretch")), parameters, announce=lambda _: None
    )
    write_training_report(trained, folder / "report.html", name="model")
    return folder / "report.html"


def test_captions_do_not_overlap_and_pictures_keep_their_shape(report):
    with chromium() as browser, Visit(browser, report) as visit:
        boxes = visit(
            "[...document.querySelectorAll('.tile')].map(tile => {const box = tile.getBoundingClientRect();"
            " return [box.left, box.top, box.right, box.bottom, tile.scrollWidth - tile.clientWidth]})"
        )
        assert len(boxes) == 4
        assert all(overflow == 0 for *_, overflow in boxes)
        for (_, top, right, *_), (left, next_top, *_) in pairwise(boxes):
            assert right <= left or next_top > top
        ratios = visit("[...document.querySelectorAll('.tile img')].map(image => image.width / image.height)")
        assert ratios == pytest.approx([2.0] * 4, abs=0.05)
        assert visit.complaints == []


def test_a_click_enlarges_a_picture_and_another_one_ends_it(report):
    with chromium() as browser, Visit(browser, report, viewport={"width": 800, "height": 600}) as visit:
        picture = visit.page.locator(".tile img").first
        small = picture.bounding_box()["width"]
        picture.click()
        assert picture.bounding_box() == {"x": 0, "y": 0, "width": 800, "height": 600}
        picture.click()
        assert picture.bounding_box()["width"] == small
        visit.page.locator(".tile input").first.focus()
        visit.page.keyboard.press("Space")
        assert picture.bounding_box()["width"] == 800
