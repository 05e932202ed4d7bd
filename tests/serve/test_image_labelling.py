"""The page and the JSON interface of `lmfcn label IMAGE`; the session itself is tested in tests/label."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx
import numpy as np
import pytest
from PIL import Image

from labelling import write_mosaic
from lmfcn.label.image_session import ImageSession
from lmfcn.serve.finish import finish_image
from lmfcn.serve.image_labelling import ImageOrder, make_image_app
from lmfcn.serve.labelling import Worker
from serving import running

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
TOKEN = "sesame"
UNNAMED = """[...document.querySelectorAll("button, input, canvas, ul, progress")]
  .filter((element) => element.checkVisibility())
  .filter((element) => !element.textContent.trim() && !element.ariaLabel && !element.labels?.length &&
    !element.hasAttribute("aria-labelledby")).map((element) => element.outerHTML)"""


@pytest.fixture
def path(tmp_path):
    return write_mosaic(tmp_path / "mosaic.png")


@contextmanager
def served(path, finish=lambda _order, _announce: ["nothing"]):
    with ImageSession(path, window=32, network="texture-fcn", device="cpu") as session:
        worker = Worker(session)
        worker.start()
        try:
            with running(make_image_app(session, finish, TOKEN)) as address:
                yield address, session
        finally:
            worker.stop()


def client_of(address):
    return httpx.Client(base_url=address, timeout=60, headers={"Authorization": f"Bearer {TOKEN}"})


def stroke(label, *points, size=16):
    return {"label": label, "size": size, "points": points}


def wait_for(client, condition):
    for _ in range(600):
        state = client.get("state").json()
        if condition(state):
            return state
        time.sleep(0.05)
    raise AssertionError(state)


def test_programs_draw_and_get_the_map(path):
    with served(path) as (address, session), client_of(address) as client:
        assert client.get("image").json() == {"width": 256, "height": 160, "tile": 512, "levels": 1}
        assert client.get("tile/0/0/0").headers["content-type"] == "image/jpeg"
        client.post("stroke", json=stroke("fine", [40, 30], [40, 130]))
        state = client.post("stroke", json=stroke("coarse", [216, 30], [216, 130])).json()
        assert [entry["name"] for entry in state["classes"]] == ["fine", "coarse"]
        assert [entry["class"] for entry in state["strokes"]] == [0, 1]
        state = wait_for(client, lambda state: state["cells"] and state["described"] == state["wanted"])
        right = [cell[4] == (cell[2] > 128) for cell in state["cells"] if cell[2] < 112 or cell[0] > 144]
        assert np.mean(right) > 0.9
        again = client.get("state", params={"since": -1, "changes": state["changes"]}).json()
        assert again["strokes"] is None
        state = client.post("view", json={"top": 0, "left": 0, "bottom": 20, "right": 20}).json()
        assert all(cell[0] < 20 and cell[1] < 20 for cell in state["cells"])
        assert len(client.post("undo", json={}).json()["strokes"]) == 1
        state = wait_for(client, lambda state: not state["cells"])
        assert client.get("state", params={"since": session.version}).json().keys() == {"version", "finish"}


def test_wrong_requests_are_refused_with_a_sentence_and_change_nothing(path, monkeypatch):
    with served(path) as (address, session), client_of(address) as client:
        assert httpx.get(f"{address}state").status_code == 401
        assert httpx.get(f"{address}tile/0/0/0").status_code == 401
        assert httpx.post(f"{address}stroke", json=stroke("a", [1, 1])).status_code == 401
        assert client.get("state", headers={"Host": "evil.example"}).status_code == 400
        for address, values, reason in [
            ("stroke", stroke("a/b", [1, 1]), "A class name must have"),
            ("stroke", stroke("a", [500, 1]), "A stroke must touch the image of 256x160 pixels"),
            ("stroke", stroke("a", [1, 1], size=0), "The size of a brush must be"),
            ("stroke", stroke("a"), "is wrong"),
            ("stroke", stroke("a", [1, 1, 1]), "is wrong"),
            ("view", {"top": 0, "left": 0, "bottom": 0, "right": 0}, "The view must show a part"),
            ("finish", {"folder": ""}, "is wrong"),
            ("finish", {"folder": "x", "reject": 2}, "is wrong"),
        ]:
            answer = client.post(address, json=values)
            assert answer.status_code == 422, answer.text
            assert reason in answer.json()["detail"]
        for tile in ("0/1/0", "0/0/-1", "7/0/0"):
            assert client.get(f"tile/{tile}").status_code == 404
        write = os.write

        def full(handle, content):
            if b"points" in content:
                raise OSError(28, "No space left on device")
            return write(handle, content)

        monkeypatch.setattr(os, "write", full)
        assert client.post("stroke", json=stroke("a", [1, 1])).status_code == 507
        assert session.file.actions == []
        assert not session.file.path.exists()


@contextmanager
def shown(browser, address):
    """Open the page; fail at messages in its console and at requests to other servers."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    context.set_default_timeout(60_000)
    playwright.expect.set_options(timeout=60_000)
    page = context.new_page()
    wrong = []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    origin = address.partition("#")[0]
    page.on("request", lambda request: request.url.startswith((origin, "blob:")) or wrong.append(request.url))
    page.goto(address if "#" in address else f"{address}#token={TOKEN}")
    page.wait_for_selector("#viewer[data-cells]")
    yield Visitor(page)
    context.close()
    assert wrong == []


class Visitor:
    """Somebody who draws on the page; places are in pixels of the image, all of which is shown."""

    def __init__(self, page, width=256, height=160):
        self.page, self.width, self.height = page, width, height

    def place(self, x, y):
        box = self.page.locator("#viewer").bounding_box()
        scale = min(box["width"] / self.width, box["height"] / self.height)
        left, top = (box["width"] - self.width * scale) / 2, (box["height"] - self.height * scale) / 2
        return box["x"] + left + x * scale, box["y"] + top + y * scale

    def draw(self, *places):
        self.page.mouse.move(*self.place(*places[0]))
        self.page.mouse.down()
        for place in places[1:]:
            self.page.mouse.move(*self.place(*place), steps=6)
        self.page.mouse.up()

    def name(self, label):
        self.page.keyboard.press("n")
        self.page.keyboard.type(label)
        self.page.keyboard.press("Enter")

    def has_text(self, place, text):
        playwright.expect(self.page.locator(place)).to_contain_text(text)

    def sees(self, x, y, text):
        """Wait until the map shows a class at a place."""
        self.page.mouse.move(*self.place(x, y))
        self.has_text("#place", text)

    def is_colored(self, x, y, expected):
        """Wait until the screen shows a colour with red less blue as expected at a place."""
        left, top = self.place(x, y)
        clip = {"x": left - 2, "y": top - 2, "width": 4, "height": 4}
        for _ in range(100):
            picture = Image.open(io.BytesIO(self.page.screenshot(clip=clip))).convert("RGB")
            red, _, blue = np.asarray(picture).astype(float).mean(axis=(0, 1))
            if expected(red - blue):
                return
            time.sleep(0.05)
        raise AssertionError((red, blue))


def test_strokes_make_a_map_that_follows_corrections_and_undo(browser, path):
    with served(path) as (address, session), shown(browser, address) as visitor:
        page = visitor.page
        visitor.name("fine")
        visitor.draw((40, 30), (40, 130))
        visitor.has_text("#about", "1 stroke;")
        visitor.name("coarse")
        visitor.draw((216, 30), (216, 130))
        visitor.sees(70, 80, "fine")
        visitor.sees(180, 80, "coarse")
        page.mouse.move(5, 5)
        # The map is blue on the left and orange on the right, and can be hidden.
        visitor.is_colored(70, 80, lambda redder: redder < -20)
        visitor.is_colored(180, 80, lambda redder: redder > 20)
        page.keyboard.press("m")
        visitor.is_colored(180, 80, lambda redder: abs(redder) < 3)
        page.keyboard.press("m")
        visitor.name("other")
        visitor.draw((160, 20), (160, 140))
        visitor.sees(165, 80, "other")
        page.keyboard.press("z")
        visitor.has_text("#status", "The last stroke is taken back.")
        visitor.sees(165, 80, "coarse")
        page.keyboard.press("e")
        visitor.draw((216, 20), (216, 140))
        playwright.expect(page.locator("#viewer")).to_have_attribute("data-cells", "0")
        page.keyboard.press("z")
        visitor.sees(165, 80, "coarse")
        page.keyboard.press("2")
        visitor.draw((160, 30), (160, 130))
        page.keyboard.press("1")
        visitor.draw((90, 30), (90, 130))
        visitor.has_text("#sentence", "windows of 4 strokes")
        page.fill("#unsure", "99")
        visitor.sees(128, 100, "unsure, perhaps")
        playwright.expect(page.locator("#typical")).to_be_enabled()
        page.check("#typical")
        page.click("summary >> text=Finish")
        assert page.input_value("#out") == f"{path.with_suffix('')}-labelled"
        page.click("#finish button")
        visitor.has_text("#written", "nothing")
        page.click("summary >> text=Keys")
        assert page.evaluate(UNNAMED) == []
        with shown(browser, address) as other:
            other.has_text("#about", "4 strokes;")
    assert [entry.label for entry in session.file.actions] == ["fine", "coarse", "coarse", "fine"]


def test_keys_alone_draw_zoom_and_hear_what_is_there(browser, path):
    with served(path) as (address, session), shown(browser, address) as visitor:
        page = visitor.page
        playwright.expect(page.locator("#viewer")).to_be_focused()

        def press(*keys):
            for key in keys:
                page.keyboard.press(key)

        press("Space")
        visitor.has_text("#status", "Choose a class or the eraser first.")
        visitor.name("fine")
        press("ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowLeft", "Space")
        visitor.has_text("#status", "The brush is down.")
        press("ArrowDown", "ArrowDown", "Space")
        visitor.has_text("#about", "1 stroke;")
        visitor.name("coarse")
        press("]", *["ArrowRight"] * 9, "Space", "ArrowUp", "ArrowUp", "Escape")  # no stroke
        press("Space", "ArrowUp", "ArrowUp", "Space")
        visitor.has_text("#about", "2 strokes;")
        press("ArrowLeft", "ArrowLeft")
        visitor.has_text("#place", "x 160")
        visitor.has_text("#place", "coarse")
        press("ArrowRight")
        visitor.has_text("#status", "coarse")
        press("+", "+", "Shift+ArrowLeft")
        visitor.has_text("#status", "fine")
        press("0", "z", "z")
        visitor.has_text("#about", "0 strokes;")
        # Points by keys are those of the cross: half a window apart.
    lines = [json.loads(line) for line in session.file.path.read_text().splitlines()]
    assert lines[1]["points"] == [[48.0, 80.0], [48.0, 96.0], [48.0, 112.0]]
    assert lines[2]["size"] > lines[1]["size"] == 32.0
    assert [line.get("undo") for line in lines[3:]] == [True, True]


def test_the_wheel_zooms_around_the_pointer_and_dragging_moves(browser, path):
    with served(path) as (address, _), shown(browser, address) as visitor:
        page = visitor.page
        page.mouse.move(*visitor.place(200, 40))
        visitor.has_text("#place", "x 200, y 40")
        page.mouse.wheel(0, -600)
        page.mouse.move(*(end + 1 for end in visitor.place(200, 40)))
        visitor.has_text("#place", "x 200, y 40")
        left, top = visitor.place(200, 40)
        page.mouse.move(left, top)
        page.mouse.down()
        page.mouse.move(left - 100, top, steps=4)
        page.mouse.up()
        visitor.has_text("#place", "x 200, y 40")  # the image moves with the pointer
        page.mouse.move(left, top)
        playwright.expect(page.locator("#place")).not_to_contain_text("x 200, y 40")


@contextmanager
def command(path):
    """Run the command; give its process and the address of the page."""
    options = ["--port", "0", "--network", "texture-fcn", "--device", "cpu", "--window", "32"]
    arguments = [sys.executable, "-m", "lmfcn", "label", str(path), *options]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            first = process.stdout.readline()
            yield process, re.search(r"http\S+", process.stdout.readline())[0], first
        finally:
            process.kill()


def test_after_a_kill_the_same_command_shows_the_strokes_and_the_map(browser, path):
    with command(path) as (process, address, first), shown(browser, address) as visitor:
        assert "256x160 pixels, 0 strokes so far" in first
        visitor.name("fine")
        visitor.draw((40, 30), (40, 130))
        visitor.has_text("#about", "1 stroke;")
        visitor.name("coarse")
        visitor.draw((216, 30), (216, 130))
        visitor.has_text("#about", "2 strokes;")
        visitor.page.goto("about:blank")  # so that it does not complain of a server that is gone
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
    with command(path) as (_, address, first), shown(browser, address) as visitor:
        assert "2 strokes so far" in first
        visitor.sees(70, 80, "fine")
        visitor.sees(180, 80, "coarse")
        visitor.page.keyboard.press("z")
        visitor.has_text("#about", "1 stroke;")


@pytest.mark.slow
def test_the_end_writes_model_map_areas_and_polygons(path, tmp_path):
    announced, out = [], tmp_path / "out"
    with ImageSession(path, window=50, network="texture-fcn", device="cpu") as session:
        with pytest.raises(ValueError, match="Draw strokes of at least two classes first"):
            list(finish_image(session, ImageOrder(folder=str(out)), print))
        assert not out.exists()
        for label, x in [("fine", 40), ("coarse", 216), ("fine", 80), ("coarse", 180)]:
            session.draw(label, 16, [(x, 30), (x, 130)])
        order = ImageOrder(folder=str(out), reject=0.5, none_of_these=0.01)
        written = list(finish_image(session, order, announced.append))
        assert written[0].startswith(f"{out / 'model.lmfcn'}: the model")
        assert any(line.startswith("The map marks nothing as none of these: With") for line in written)
        with pytest.raises(ValueError, match="exists already; remove it, or choose another folder"):
            list(finish_image(session, order, print))
    assert announced[0] == "Training model.lmfcn on 20 windows of 4 strokes"
    lines = (out / "map" / "areas.csv").read_text().splitlines()
    areas = {line.split(",")[0]: line.split(",")[1:] for line in lines[1:]}
    assert lines[0] == "label,pixels,share"
    assert sum(int(pixels) for pixels, _ in areas.values()) == 160 * 256
    assert 0.35 < float(areas["fine"][1]) < 0.65
    polygons = json.loads((out / "map" / "regions.geojson").read_text())["features"]
    assert {feature["properties"]["classification"]["name"] for feature in polygons} == {"fine", "coarse"}
