"""The page and the JSON interface of `lmfcn label`; the session itself is tested in tests/label."""

import csv
import os
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx
import pytest

from labelling import write_textures
from lmfcn.label.labels import TABLE
from lmfcn.label.session import LabellingSession
from lmfcn.serve.labelling import Worker, make_label_app
from serving import running

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
TOKEN = "open sesame"
UNNAMED = """[...document.querySelectorAll("button, input, select, svg, ul, [role=option]")]
  .filter((element) => element.checkVisibility())
  .filter((element) => !element.textContent.trim() && !element.ariaLabel && !element.labels?.length &&
    !element.hasAttribute("aria-labelledby")).map((element) => element.outerHTML)"""


@contextmanager
def served(folder, finish=lambda _order, _announce: ["nothing"], *, works=True):
    """Serve a session on a folder; give its address without the token, and the session."""
    with LabellingSession(folder, network="texture-fcn", device="cpu") as session:
        worker = Worker(session)
        if works:
            worker.start()
        try:
            with running(make_label_app(session, finish, TOKEN)) as address:
                yield address, session
        finally:
            if works:
                worker.stop()


@pytest.fixture
def folder(tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    return images, write_textures(images, 8)


def client_of(address):
    return httpx.Client(base_url=address, timeout=60, headers={"Authorization": f"Bearer {TOKEN}"})


def decisions(folder):
    with (folder / TABLE).open(encoding="utf-8", newline="") as file:
        return [(row["path"], row["label"], row["by"]) for row in csv.DictReader(file)]


def wait_for(client, condition):
    for _ in range(600):
        state = client.get("state").json()
        if condition(state):
            return state
        time.sleep(0.05)
    raise AssertionError(state)


def test_programs_label_and_see_what_is_learnt(folder):
    path, truth = folder
    with served(path) as (address, session), client_of(address) as client:
        wait_for(client, lambda state: state["n_described"] == 24)
        assert client.get("images?start=22").json()["names"] == ["22.png", "23.png"]
        for image in [0, 1, 2, 8, 9, 10, 16, 17, 18]:
            state = client.post("label", json={"images": [image], "label": truth[session.names[image]]}).json()
        assert [entry["count"] for entry in state["classes"]] == [3, 3, 3]
        state = wait_for(client, lambda state: state["curve"] and state["curve"][-1]["n"] == 9)
        names = [entry["name"] for entry in state["classes"]]
        right = [names[state["suggested"][i]] == truth[name] for i, name in enumerate(session.names)]
        assert sum(right) >= 20
        assert sorted(state["order"]) == list(range(24))
        assert client.get(f"state?since={session.version}").json().keys() == {"version", "finish"}
        assert client.get("picture/3").headers["content-type"] == "image/jpeg"
        assert client.post("undo", json={}).json()["labels"][18] == -1
        assert client.post("skip", json={"images": [18]}).json()["labels"][18] == -2


def test_wrong_requests_are_refused_with_a_sentence_and_change_nothing(folder, monkeypatch):
    path, _ = folder
    with served(path, works=False) as (address, session), client_of(address) as client:
        assert httpx.get(f"{address}state").status_code == 401
        assert httpx.post(f"{address}label", json={"images": [0], "label": "a"}).status_code == 401
        assert client.get("state", headers={"Host": "evil.example"}).status_code == 400
        for values, reason in [
            ({"images": [0], "label": "a/b"}, "A class name must have"),
            ({"images": [99], "label": "a"}, "There is no image 99"),
            ({"images": [0, 1], "label": ["a"]}, "Give one label, or one for each of the 2 images, got 1."),
            ({"images": []}, "is wrong"),
        ]:
            answer = client.post("label", json=values)
            assert answer.status_code == 422
            assert reason in answer.json()["detail"]
        assert client.get("picture/99").status_code == 404
        write = os.write

        def full(handle, content):
            if b"hand" in content:
                raise OSError(28, "No space left on device")
            return write(handle, content)

        monkeypatch.setattr(os, "write", full)
        answer = client.post("label", json={"images": [0], "label": "a"})
        assert answer.status_code == 507
        assert answer.json()["detail"].endswith(
            "No space left on device. Nothing was changed; make room on the disk and try again."
        )
        assert session.labels == {}


def test_the_end_is_ordered_once_and_told(folder):
    path, _ = folder
    orders = []

    def finish(order, announce):
        orders.append(order)
        announce("Training")
        time.sleep(0.3)
        if order.folder == "bad":
            raise ValueError("bad is inside the folder with the images; choose a folder beside it.")
        return ["model.lmfcn: the model."]

    with served(path, finish, works=False) as (address, _), client_of(address) as client:
        client.post("finish", json={"folder": "out", "files": "links", "scratch": True})
        assert client.post("finish", json={"folder": "out"}).status_code == 409
        state = wait_for(client, lambda state: not state["finish"]["running"])
        assert state["finish"]["written"] == ["model.lmfcn: the model."]
        client.post("finish", json={"folder": "bad"})
        state = wait_for(client, lambda state: not state["finish"]["running"])
        assert state["finish"]["error"].startswith("bad is inside")
    assert [(order.files, order.train, order.scratch) for order in orders[:1]] == [("links", True, True)]


@contextmanager
def opened(browser, address):
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    context.set_default_timeout(60_000)
    playwright.expect.set_options(timeout=60_000)
    page = context.new_page()
    wrong = []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: request.url.startswith((address, "blob:")) or wrong.append(request.url))
    page.goto(f"{address}#token={TOKEN.replace(' ', '%20')}")
    page.wait_for_selector("#tiles .tile")
    yield page
    context.close()
    assert wrong == []


def has_text(page, place, text):
    playwright.expect(page.locator(place)).to_contain_text(text)


def test_keys_alone_label_accept_skip_and_undo_and_another_tab_sees_it(browser, folder):
    path, truth = folder
    with (
        served(path) as (address, session),
        opened(browser, address) as page,
        opened(browser, address) as other,
    ):
        playwright.expect(page.locator("#described")).to_be_hidden()
        playwright.expect(page.locator("#grid")).to_be_focused()
        keys = {}
        n_labels = 0
        while n_labels < 12 or len(keys) < 3 or min(session.counts()) < 2:  # which are asked for depends on the time
            label_by_keys(page, truth, session.names, keys)
            n_labels += 1
            has_text(page, "#about", f"{n_labels} of 24 images labelled")
        assert {session.names[position]: label for position, label in session.labels.items()}.items() <= truth.items()
        has_text(page, "#sentence", f"on {n_labels} labels")
        assert "by number of labels: " in page.get_attribute("#curve", "aria-label")
        has_text(page, ".tile.current .caption", "%")
        page.keyboard.press("Enter")
        has_text(page, "#about", f"{n_labels + 1} of 24")
        page.keyboard.press("Space")
        has_text(page, "#status", "skipped.")
        has_text(other, "#about", "13 of 24")
        page.keyboard.press("z")
        page.keyboard.press("z")
        has_text(page, "#about", f"{n_labels} of 24")
        has_text(other, "#about", f"{n_labels} of 24")
        assert [by for _, _, by in decisions(path)[n_labels:]] == ["suggestion", "skip", "undo", "undo"]
        other.select_option("#view", "all")
        other.keyboard.press("Home")
        other.keyboard.press("r")
        columns = other.evaluate("Math.floor(document.querySelector('#grid').clientWidth / 122)")
        assert other.locator(".tile[aria-selected=true]").count() == columns
        other.keyboard.press("1")
        has_text(other, "#status", f"{columns} images: {next(iter(keys))}.")
        page.click("summary >> text=Finish")
        assert page.input_value("#out") == f"{path}-labelled"
        page.click("#finish button")
        has_text(page, "#written", "nothing")
        assert page.evaluate(UNNAMED) == []
    with served(path, works=False) as (address, again), opened(browser, address) as page:
        has_text(page, "#about", f"{len(again.labels)} of 24")
        assert len(again.labels) >= 12


@contextmanager
def started(folder):
    """Run the command in a process of its own; give the process, and the address with its token."""
    command = [
        sys.executable,
        "-m",
        "lmfcn",
        "label",
        str(folder),
        "--port",
        "0",
        "--network",
        "texture-fcn",
        "--quiet",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, process.stdout.readline().split()[4]
        finally:
            process.kill()


def label_by_keys(page, truth, names, keys):
    current = page.get_attribute("#grid", "aria-activedescendant")
    label = truth[names[int(current.removeprefix("image-"))]]
    if label in keys:
        page.keyboard.press(keys[label])
    else:
        page.keyboard.press("n")
        page.keyboard.type(label)
        page.keyboard.press("Enter")
        keys[label] = str(len(keys) + 1)
    playwright.expect(page.locator("#grid")).not_to_have_attribute("aria-activedescendant", current)


def test_after_a_kill_the_page_says_so_and_the_same_command_goes_on(browser, folder):
    path, truth = folder
    names, keys = sorted(truth), {}
    playwright.expect.set_options(timeout=60_000)
    with started(path) as (process, address):
        page = browser.new_page()
        page.goto(address)
        page.wait_for_selector("#tiles .tile")
        for number in range(6):
            label_by_keys(page, truth, names, keys)
            has_text(page, "#about", f"{number + 1} of 24")
        process.kill()
        process.wait()
        has_text(page, "#problem", "The server does not answer")
        page.keyboard.press("1")
        has_text(page, "#about", "6 of 24")
        page.close()
    before = decisions(path)
    assert len(before) == 6
    assert all(truth[name] == label for name, label, _ in before)
    with started(path) as (_, address):
        page = browser.new_page()
        page.goto(address)
        has_text(page, "#about", "6 of 24")
        page.keyboard.press("z")
        has_text(page, "#about", "5 of 24")
        label_by_keys(page, truth, names, keys)
        has_text(page, "#about", "6 of 24")
        page.close()
    assert decisions(path)[:6] == before
    assert [by for _, _, by in decisions(path)[6:]] == ["undo", "hand"]


def test_thousands_of_images_do_not_freeze_the_page(browser, tmp_path):
    write_textures(tmp_path, 1)
    for number in range(5000):
        os.link(tmp_path / "00.png", tmp_path / f"{number:05}.png")
    with served(tmp_path, works=False) as (address, _), opened(browser, address) as page:
        page.select_option("#view", "all")
        page.wait_for_selector(".tile img[src]")
        assert page.locator(".tile").count() < 150
        page.keyboard.press("End")
        page.wait_for_selector("#image-5002 img[src]")
        seconds = page.evaluate("""async () => {
          const grid = document.querySelector("#grid");
          let longest = 0;
          for (let step = 0; step < 40; step += 1) {
            const start = performance.now();
            grid.scrollTop = (grid.scrollHeight * step) / 40;
            await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
            longest = Math.max(longest, performance.now() - start);
          }
          return longest / 1000;
        }""")
        assert seconds < 2  # on a machine that does something else too
        assert page.locator(".tile").count() < 150
