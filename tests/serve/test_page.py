"""The page in a real browser."""

import base64
import csv
import io
import shutil
import signal

import pytest

from lmfcn.serve.app import make_app
from serving import content, copy_model, running, serving_command

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

DROP = """([target, name, data]) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, { type: "image/png" }));
  const options = { bubbles: true, cancelable: true };
  const event = target === "paste" ? new ClipboardEvent("paste", { ...options, clipboardData: transfer })
    : new DragEvent("drop", { ...options, dataTransfer: transfer });
  document.getElementById("drop").dispatchEvent(event);
}"""


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser, address):
    """The page, open; a message on its console or a request to elsewhere fails the test."""
    context = browser.new_context(viewport={"width": 1100, "height": 900})
    context.set_default_timeout(60_000)
    playwright.expect.set_options(timeout=60_000)
    page = context.new_page()
    wrong = []
    # Browsers report every answer with an error status themselves; a file that is refused has one.
    page.on("console", lambda message: "status of 415" in message.text or wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: request.url.startswith((address, "data:", "blob:")) or wrong.append(request.url))
    page.goto(address)
    page.wait_for_selector("#plot path")
    yield page
    context.close()
    assert wrong == []


def hand_over(page, way, name, image):
    page.evaluate(DROP, [way, name, base64.b64encode(content(image)).decode()])


@pytest.mark.parametrize("way", ["drop", "paste"])
def test_a_dropped_or_pasted_image_is_predicted(page, fitted, way):
    hand_over(page, way, "image.png", fitted.images[3])
    page.wait_for_selector("#answer:not([hidden])")
    name = "pasted-1.png" if way == "paste" else "image.png"
    chances = fitted.model.predict_proba(fitted.images[3:4])[0]
    label, share = fitted.model.classes[chances.argmax()], f"{100 * chances.max():.1f} %"
    assert page.inner_text("#answer-name") == name
    assert page.inner_text("#answer-title") == f"{label}, {share}"
    assert page.inner_text("#status") == f"{name}: {label}, {share}."
    assert page.locator("#probabilities dt").all_inner_texts() == fitted.model.classes[chances.argsort()[::-1]].tolist()
    assert "Prediction set: " in page.inner_text("#prediction-set")
    assert page.locator("#in-favour img").count() == 5
    for picture in ("#picture", "#map", "#in-favour img >> nth=0"):
        assert page.locator(picture).evaluate("image => image.naturalWidth") > 0
    assert page.locator("#plot .new").count() == 1
    assert page.locator("#batch").is_hidden()


def test_neighbours_are_shown_by_click_and_by_key(page, fitted):
    page.set_input_files("#files", [{"name": "a.png", "mimeType": "image/png", "buffer": content(fitted.images[0])}])
    nearest = fitted.gallery.nearest(fitted.model.transform(fitted.images[:1])[0], 6).tolist()
    page.wait_for_selector("#neighbours button")
    assert page.get_attribute("#plot", "data-chosen") == str(nearest[0])
    page.locator("#neighbours button").nth(2).click()
    assert fitted.gallery.names[nearest[2]] in page.inner_text("#shown-caption")
    mark = page.locator("#plot path.training").nth(7)
    box = mark.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert page.inner_text("#shown-caption").endswith(fitted.gallery.names[7])
    playwright.expect(page.locator("#shown-picture")).to_have_js_property("naturalWidth", 32)
    page.focus("#plot")
    for key in ("ArrowLeft", "ArrowRight", "ArrowUp"):
        page.keyboard.press(key)
    assert page.get_attribute("#plot", "data-chosen") != "7"


def test_many_images_become_a_table_and_a_csv_file(page, fitted):
    names = [f"{i}.png" for i in range(11)] + ['=odd, "name".png']
    files = [
        {"name": name, "mimeType": "image/png", "buffer": content(fitted.images[i])} for i, name in enumerate(names)
    ]
    page.set_input_files("#files", [*files, {"name": "text.png", "mimeType": "image/png", "buffer": b"hello"}])
    page.wait_for_selector("#download:enabled")
    assert page.locator("#rows tr").count() == 13
    assert page.inner_text("#status") == "12 images predicted, 1 refused."
    assert page.locator("#problems li").all_inner_texts() == ["text.png: is not an image of a known format."]
    with page.expect_download() as download:
        page.click("#download")
    assert download.value.suggested_filename == "predictions.csv"
    with open(download.value.path(), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(io.StringIO(file.read())))
    assert [row["name"] for row in rows] == [*names[:11], '\'=odd, "name".png', "text.png"]
    expected = fitted.model.predict_proba(fitted.images[:12])
    for row, chances in zip(rows, expected, strict=False):
        assert row["label"] == fitted.model.classes[chances.argmax()]
        assert float(row["p(rough)"]) == pytest.approx(chances[0], abs=1e-6)
        assert float(row["probability"]) == pytest.approx(chances.max(), abs=1e-6)
    assert rows[-1]["error"] == "text.png: is not an image of a known format."
    page.locator("#rows button").nth(4).click()
    playwright.expect(page.locator("#answer-name")).to_have_text("4.png")
    playwright.expect(page.locator("#answer")).to_be_focused()
    page.click("#clear")
    assert page.locator("#batch").is_hidden()


def test_the_first_image_can_be_chosen_with_keys_alone(page):
    opened = []
    page.on("filechooser", lambda chooser: opened.append(chooser))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "files"
    for _ in range(20):  # a browser that has much to do may not notice the first
        page.keyboard.press("Enter")
        page.wait_for_timeout(100)
        if opened:
            break
    assert opened


def test_everything_has_a_name_for_screen_readers(page, fitted):
    hand_over(page, "drop", "a.png", fitted.images[3])
    page.wait_for_selector("#neighbours button")
    unnamed = page.evaluate("""() => [...document.querySelectorAll("button, input, img, svg, ul")]
      .filter((element) => element.checkVisibility())
      .filter((element) => !element.textContent.trim() && !element.ariaLabel && !element.labels?.length &&
        !element.hasAttribute("alt") && !element.hasAttribute("aria-labelledby") && element.ariaHidden !== "true")
      .map((element) => element.outerHTML)""")
    assert unnamed == []
    assert page.get_attribute("#status", "aria-live") == "polite"
    assert page.get_attribute("html", "lang") == "en"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(page, scheme):
    page.emulate_media(color_scheme=scheme)
    colours = page.evaluate("""() => {
      const style = getComputedStyle(document.documentElement);
      const names = ["ink", "soft", "card", "page", "bad", "for", "against", "accent", "on-accent"];
      return Object.fromEntries(names.map((name) => [name, style.getPropertyValue("--" + name).trim()]));
    }""")
    for text, ground in [("ink", "card"), ("soft", "card"), ("soft", "page"), ("bad", "card"), ("for", "card"),
                         ("against", "card"), ("accent", "card"), ("on-accent", "accent")]:  # fmt: skip
        assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)


def contrast(first: str, second: str) -> float:
    """Return the ratio of luminances that WCAG defines."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted([luminance(first), luminance(second)])
    return (high + 0.05) / (low + 0.05)


def test_a_phone_needs_no_sideways_scrolling(page, fitted):
    page.set_viewport_size({"width": 360, "height": 740})
    names = ["a-name-that-is-much-too-long-for-any-phone-and-has-no-gaps-at-all-" * 2 + ".png", "b.png"]
    page.set_input_files(
        "#files",
        [{"name": name, "mimeType": "image/png", "buffer": content(fitted.images[i])} for i, name in enumerate(names)],
    )
    page.wait_for_selector("#download:enabled")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_token_is_asked_for_and_stays_in_the_tab(browser, fitted):
    with running(make_app(fitted.model, fitted.gallery, token="open sesame")) as address:
        page = browser.new_page()
        page.goto(address)
        page.wait_for_selector("#token-form:not([hidden])")
        page.fill("#token", "wrong guess")
        page.press("#token", "Enter")
        playwright.expect(page.locator("#token-problem")).to_have_text("The token is wrong.")
        page.fill("#token", "open sesame")
        page.press("#token", "Enter")
        page.wait_for_selector("#plot path")
        page.close()
        other = browser.new_page()
        other.goto(f"{address}#token=open%20sesame")
        other.wait_for_selector("#plot path")
        assert other.url == address
        other.close()


def test_one_of_several_models_is_chosen(browser, fitted, other):
    with serving_command(fitted.path, other.path) as command:
        page = browser.new_page()
        page.goto(command.address)
        page.wait_for_selector("#model-choice:not([hidden])")
        playwright.expect(page.locator("#model-name")).to_have_text("noise.lmfcn")
        page.select_option("#model", "other.lmfcn")
        playwright.expect(page.locator("#model-name")).to_have_text("other.lmfcn")
        assert "predict?model=other.lmfcn" in page.text_content("#curl")
        hand_over(page, "drop", "image.png", fitted.images[3])
        page.wait_for_selector("#answer:not([hidden])")
        assert page.inner_text("#answer-title").endswith(f", {100 * best(other.model, fitted.images[3]):.1f} %")
        page.reload()
        playwright.expect(page.locator("#model-name")).to_have_text("other.lmfcn")
        page.close()


def best(model, image) -> float:
    return model.predict_proba(image[None]).max()


def test_the_page_notes_that_another_model_was_loaded(browser, fitted, other, tmp_path):
    path = copy_model(fitted.path, tmp_path / "model.lmfcn")
    with serving_command(path) as command:
        page = browser.new_page()
        page.goto(command.address)
        page.wait_for_selector("#plot path")
        assert page.locator("#model-choice").is_hidden()
        names = page.locator("#plot title").first.text_content()
        copy_model(other.path, path)
        command.process.send_signal(signal.SIGHUP)
        command.wait_for("is loaded")
        hand_over(page, "drop", "image.png", fitted.images[3])
        playwright.expect(page.locator("#answer-title")).to_contain_text(
            f"{100 * best(other.model, fitted.images[3]):.1f} %"
        )
        assert page.locator("#plot title").first.text_content() != names  # those of the new gallery
        page.close()
