import numpy as np
import pytest

from browser import Visit
from lmfcn.report import comparison_report_writer
from some_comparison import small_outcome

PHONE = {"viewport": {"width": 360, "height": 740}}
A4 = {"viewport": {"width": 794, "height": 1123}}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("comparison")
    comparison_report_writer()(small_outcome(folder, np.random.default_rng(0)), folder / "report.html")
    return folder / "report.html"


def test_nothing_is_asked_of_others_and_nothing_is_complained_about(browser, report):
    with Visit(browser, report) as visit:
        assert [address for address in visit.requests if not address.startswith("data:")] == [report.as_uri()]
        assert visit.complaints == []
        assert visit("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    assert report.stat().st_size < 5_000_000


def test_a_phone_needs_no_sideways_scrolling(browser, report):
    with Visit(browser, report, **PHONE) as visit:
        assert visit("document.documentElement.scrollWidth") == 360
        # What is wider than the screen scrolls by itself, and can be reached by the keyboard.
        hidden = "node => node.scrollWidth > node.clientWidth && node.tabIndex != 0 && node.className == 'wide'"
        assert visit(f"[...document.querySelectorAll('div')].filter({hidden}).length") == 0


def test_everything_has_a_name(browser, report):
    with Visit(browser, report) as visit:
        visit.check_names()
        named = "node => !node.ariaLabel && !node.querySelector('title')"
        assert visit(f"[...document.querySelectorAll('svg')].filter({named}).length") == 0
        assert visit("document.documentElement.lang") == "en"


def test_the_contents_lead_to_every_section(browser, report):
    with Visit(browser, report, **PHONE) as visit:
        links = visit("[...document.querySelectorAll('nav a')].map(link => link.getAttribute('href'))")
        assert links == visit("[...document.querySelectorAll('section[id]')].map(section => '#' + section.id)")
        for link in links:
            visit.page.click(f"nav a[href='{link}']")
            assert visit("location.hash") == link
            top = visit(f"document.querySelector('{link}').getBoundingClientRect().top")
            assert top < 740, link


def test_a_dark_screen_gets_a_dark_page(browser, report):
    colours = {}
    for scheme in ("light", "dark"):
        with Visit(browser, report, color_scheme=scheme) as visit:
            colours[scheme] = brightness(visit("getComputedStyle(document.body).backgroundColor"))
            colours[scheme, "text"] = brightness(visit("getComputedStyle(document.body).color"))
            colours[scheme, "chart"] = brightness(visit(CORNER_OF_THE_FIRST_CHART))
    assert colours["light"] > 200 > 100 > colours["light", "text"]
    assert colours["dark"] < 60 < 180 < colours["dark", "text"]
    assert colours["light", "chart"] > 200
    assert colours["dark", "chart"] < 60


def test_print_is_light_and_whole(browser, report):
    with Visit(browser, report, color_scheme="dark", **A4) as visit:
        visit.page.emulate_media(media="print", color_scheme="dark")
        assert visit("getComputedStyle(document.querySelector('nav')).display") == "none"
        assert visit("document.documentElement.scrollWidth") <= 794
        assert brightness(visit("getComputedStyle(document.body).color")) < 100
        # Parameters are folded away on the screen only.
        assert visit("document.querySelector('details table').checkVisibility({contentVisibilityAuto: true})")
        assert visit("document.querySelector('details table').getBoundingClientRect().height") > 10
        assert visit.page.pdf(format="A4").startswith(b"%PDF")


CORNER_OF_THE_FIRST_CHART = """(() => {
    const canvas = document.createElement('canvas'), chart = document.querySelector('.chart');
    const context = canvas.getContext('2d');
    context.drawImage(chart, 0, 0);
    return 'rgb(' + [...context.getImageData(4, 4, 1, 1).data].slice(0, 3).join(', ') + ')';
})()"""


def brightness(colour):
    """Return the mean of the first three numbers of a colour such as rgb(1, 2, 3)."""
    return np.mean([float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]])
