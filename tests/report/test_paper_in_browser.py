import pytest

from browser import Visit
from lmfcn.report import reproduction_report_writer
from some_reproduction import outcome_of

PHONE = {"viewport": {"width": 390, "height": 740}}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduction")
    reproduction_report_writer()(outcome_of(folder, only=["LMFCN,CNN-CE,LBP"]), folder)
    return folder / "report.html"


def test_nothing_is_asked_of_others_and_nothing_is_complained_about(browser, report):
    with Visit(browser, report) as visit:
        assert [address for address in visit.requests if not address.startswith("data:")] == [report.as_uri()]
        assert visit.complaints == []
        assert visit("[...document.images].every(image => image.complete && image.naturalWidth > 0)")


def test_a_phone_needs_no_sideways_scrolling(browser, report):
    with Visit(browser, report, **PHONE) as visit:
        assert visit("document.documentElement.scrollWidth") == 390
        # What is wider than the screen scrolls by itself, and can be reached by the keyboard.
        assert visit("[...document.querySelectorAll('.wide')].filter(node => node.tabIndex != 0).length") == 0
        assert visit("[...document.querySelectorAll('.wide')].filter(node => !node.ariaLabel).length") == 0


def test_everything_has_a_name(browser, report):
    with Visit(browser, report) as visit:
        visit.check_names()


def test_the_contents_lead_to_every_section(browser, report):
    with Visit(browser, report, **PHONE) as visit:
        links = visit("[...document.querySelectorAll('nav a')].map(link => link.getAttribute('href'))")
        assert links == visit("[...document.querySelectorAll('section[id]')].map(section => '#' + section.id)")
        assert links == [
            *("#short", "#table2", "#table3", "#training", "#support", "#confusions", "#calibration", "#images"),
            *("#parameters", "#again"),
        ]
