"""What the how-to guides, the method and the gallery of examples show runs, on small images."""

import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image

from commands import check_command, shown_commands
from lmfcn.data import datasets

ROOT = Path(__file__).parent.parent
GUIDES = [ROOT / "docs/first_model.md", ROOT / "docs/method.md", *sorted(ROOT.glob("docs/howto/*.md"))]
WITH_COMMANDS = [ROOT / "docs/index.md", *GUIDES]
LONG = pytest.mark.thorough  # a pretrained network over all test tiles
EXAMPLES = [
    pytest.param(path, id=path.stem, marks=LONG if path.stem == "plot_pretrained" else ())
    for path in sorted(ROOT.glob("examples/gallery/plot_*.py"))
]
PER_CLASS = 8
# Classes with few images, one epoch: warnings are right, and not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore")


def page_name(page):
    """Return a page's name, with its folder for those of one name."""
    return "/".join(page.with_suffix("").parts[-2:])


def quick(code):
    """Return code that trains small networks for one epoch."""
    code = re.sub(r"\bepochs=\d+", "epochs=1", code)
    code = re.sub(r"n_per_class=\d+", f"n_per_class={PER_CLASS}", code)
    small = "widths=(6, 8)" if "epochs=" in code or "latent_dim=" in code else "widths=(6, 8), epochs=1, latent_dim=4"
    return code.replace("LMFCNClassifier(", f"LMFCNClassifier({small}, ")


@pytest.fixture(scope="module")
def images():
    """Images (n, 32, 64) of three grains, and their labels."""
    random = np.random.default_rng(0)
    grains = np.repeat([1, 4, 8], PER_CLASS)
    noise = [random.integers(0, 256, (32 // grain, 64 // grain), dtype=np.uint8) for grain in grains]
    return np.stack(
        [np.kron(part, np.ones((grain, grain), np.uint8)) for part, grain in zip(noise, grains, strict=True)]
    ), grains


@pytest.fixture
def place(tmp_path, monkeypatch, images):
    """A working folder with own images in class folders, and new images."""
    for number, (pixels, label) in enumerate(zip(*images, strict=True)):
        for folder in (tmp_path / "my_images" / f"grain {label}", tmp_path / "new_images"):
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / f"{number // 2}_{number}.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", GUIDES, ids=page_name)
def test_the_code_of_a_guide_runs(page, place, images):
    code = "".join(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL))
    if not code:
        assert page.name == "index.md"
        return
    X, y = (part[: 2 * PER_CLASS] for part in images)
    exec(compile(quick(code), page.name, "exec"), {"X": X, "y": y, "X_new": X})
    assert (place / "my_images").is_dir()


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=page_name)
def test_the_commands_of_a_guide_exist(page):
    commands = shown_commands(page.read_text())
    assert commands or page.name in ("method.md", "index.md", "deployment.md")
    for command in commands:
        check_command(command)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_gallery_draws_something(example, monkeypatch, capsys):
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    tiles, shown = datasets.load_photographed_textures(64)[::4], []
    monkeypatch.setattr(datasets, "load_photographed_textures", lambda _: tiles)
    monkeypatch.setattr(plt, "show", lambda: shown.extend(plt.get_fignums()))
    exec(compile(quick(example.read_text()), example.name, "exec"), {"__name__": "__main__"})
    plt.close("all")
    assert len(shown) == 1
    assert capsys.readouterr().out
