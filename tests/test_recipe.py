"""Recipe: its values, the recipes that have a name, its checks, and what it becomes for some data."""

import re
from dataclasses import FrozenInstanceError, asdict, fields, replace
from pathlib import Path

import numpy as np
import pytest

from lmfcn.recipe import RECIPES, Recipe, change, find_recipe, override

ROOT = Path(__file__).parent.parent
NAMES = [field.name for field in fields(Recipe)]


def documented_defaults() -> dict[str, str]:
    """The defaults that the docstring of Recipe states, by name, as they are written."""
    found = {}
    section = Recipe.__doc__.partition("Parameters\n")[2].partition("Examples\n")[0]
    for names, kind in re.findall(r"^    (\w+(?:, \w+)*) : (.+)$", section, flags=re.MULTILINE):
        defaults = kind.partition("default=")[2]
        parts = defaults.split(", ") if ", " in names else [defaults]
        found.update(zip(names.split(", "), parts, strict=True))
    return found


def rows_of_the_tables() -> list[tuple[str, str, str, str]]:
    """Name, addition to the name, LMFCN and LMFCN (paper) of every row of the tables in docs/paper_to_code.md."""
    text = (ROOT / "docs" / "paper_to_code.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)`([^|]*)\|[^|]+\|[^|]+\|([^|]+)\|([^|]+)\|$", text, flags=re.MULTILINE)
    return [tuple(cell.strip() for cell in row) for row in rows]


def as_written(cell: str):
    """The value at the beginning of a cell such as `0 (off)` or "`"adadelta"`, rho 0.65"."""
    code = re.match(r"`([^`]+)`", cell)
    text = code[1] if code else re.match(r"\([^)]*\)|[\d.]+", cell)[0]
    return eval(text, {})


def test_the_defaults_are_the_documented_ones():
    documented = documented_defaults()
    assert list(documented) == NAMES
    for name, text in documented.items():
        assert getattr(Recipe(), name) == eval(text, {}), name


def test_the_default_recipe_by_hand():
    assert asdict(Recipe()) == {
        "latent_dim": 64,
        "widths": (64, 128),
        "first_filters": "decorrelated",
        "fixed_first": True,
        "deviations": "auto",
        "correlations": "auto",
        "scales": 3,
        "crop_size": "auto",
        "keep_untrained": True,
        "strategy": "joint",
        "epochs": "auto",
        "refit_epochs": "auto",
        "epoch_selection": "one-se",
        "sv_close": 5,
        "wr_close": 1,
        "sh_close": 0,
        "fallback_anchors": True,
        "fill_anchors": False,
        "correction_class": "own",
        "C": 10.0,
        "gamma": "scale",
        "gamma_factor": 1.0,
        "standardize": True,
        "balanced": False,
        "prior_shift": 0.5,
        "support_loss": "contrast",
        "contrast_scale": 10.0,
        "anchor_weight": 0.1,
        "distance": "squared",
        "distance_units": "kernel",
        "head_weight": 1.0,
        "head_rate": 10.0,
        "augmentation": "flips",
        "batch_size": 32,
        "step_per": "batch",
        "batch_statistics": "refreshed",
        "passes": "auto",
        "optimizer": "adamw",
        "learning_rate": 0.001,
        "final_rate": 0.1,
        "weight_decay": 0.01,
        "precision": "auto",
        "whiten": True,
        "refit": True,
        "split_duplicates": False,
    }


def test_the_paper_recipe_is_the_paper_with_its_authors_constants():
    differing = {name for name in NAMES if getattr(Recipe.paper(), name) != getattr(Recipe(), name)}
    assert {name: getattr(Recipe.paper(), name) for name in differing} == {
        "refit_epochs": 0,
        "latent_dim": 16,
        "strategy": "one-vs-all",
        "first_filters": "random",
        "fixed_first": False,
        "deviations": False,
        "correlations": False,
        "scales": 1,
        "crop_size": None,
        "keep_untrained": False,
        "C": 1.0,
        "standardize": False,
        "support_loss": "pull",
        "distance_units": "latent",
        "correction_class": "any",
        "anchor_weight": 1.0,
        "head_weight": 0.0,
        "augmentation": "none",
        "fallback_anchors": False,
        "batch_size": "all",
        "passes": 1,
        "epoch_selection": "best",
        "optimizer": "adadelta",
        "learning_rate": 0.1,
        "weight_decay": 0.1,
        "prior_shift": 0.0,
        "precision": "float32",
        "whiten": False,
        "refit": False,
    }
    paper = Recipe.paper()
    assert (paper.sv_close, paper.wr_close, paper.sh_close) == (5, 1, 0)
    assert (paper.distance, paper.gamma, paper.gamma_factor) == ("squared", "scale", 1.0)
    assert paper.for_data(2, 100, has_validation=True).n_epochs == 15


def test_the_program_differs_from_the_paper_in_seven_values():
    program, paper = asdict(Recipe.authors_program()), asdict(Recipe.paper())
    assert {name: value for name, value in program.items() if value != paper[name]} == {
        "epoch_selection": "last",
        "fill_anchors": True,
        "correction_class": "settled",
        "distance": "euclidean",
        "batch_size": "image",
        "step_per": "term",
        "batch_statistics": "running",
    }


def test_a_step_per_term_needs_a_loss_without_head():
    assert refused(step_per="term") == (
        'step_per="term" has no step for the head, got head_weight=1.0; set head_weight=0.'
    )


def test_both_recipes_are_those_of_the_tables_beside_the_paper():
    rows = rows_of_the_tables()
    differing = {name for name in NAMES if getattr(Recipe.paper(), name) != getattr(Recipe(), name)}
    assert differing <= {name for name, *_ in rows}
    assert [name for name, *_ in rows].count("epochs") == 2
    for name, addition, *cells in rows:
        n_classes, strategy = (3, "one-vs-all") if "one-vs-all" in addition else (2, None)
        for named, cell in zip(("default", "paper"), cells, strict=True):
            recipe = override(named, {"strategy": strategy})
            if name not in ("strategy", "passes"):
                recipe = recipe.for_data(n_classes, 100, has_validation=True)
            assert getattr(recipe, name) == as_written(cell), (name, addition, cell)


def test_a_recipe_is_a_value():
    assert Recipe() == Recipe()
    assert len({Recipe(), Recipe(), Recipe.paper()}) == 2
    with pytest.raises(FrozenInstanceError):
        Recipe().head_weight = 0.5
    with pytest.raises(TypeError):
        Recipe(64)


def test_recipes_by_name():
    assert find_recipe("default") == Recipe()
    assert find_recipe("paper") == Recipe.paper()
    assert find_recipe("authors-program") == Recipe.authors_program()
    assert set(RECIPES) == {"default", "paper", "authors-program"}
    own = Recipe(passes=3)
    assert find_recipe(own) is own


@pytest.mark.parametrize("recipe", ["papers", "", None, 5, {"passes": 3}, Recipe], ids=repr)
def test_anything_else_is_no_recipe(recipe):
    with pytest.raises(
        ValueError, match=r"^recipe must be 'default', 'paper', 'authors-program' or a lmfcn\.Recipe, got "
    ) as caught:
        find_recipe(recipe)
    assert str(caught.value).endswith(f"got {recipe!r}.")


CHOICES = {
    "strategy": "'joint', 'one-vs-all'",
    "first_filters": "'decorrelated', 'random'",
    "epoch_selection": "'one-se', 'best', 'last'",
    "support_loss": "'contrast', 'pull'",
    "distance": "'squared', 'euclidean'",
    "distance_units": "'kernel', 'latent'",
    "correction_class": "'own', 'any', 'settled'",
    "augmentation": "'none', 'flips', 'dihedral'",
    "step_per": "'batch', 'term'",
    "batch_statistics": "'refreshed', 'running'",
    "optimizer": "'adamw', 'adadelta'",
    "precision": "'auto', 'float32', 'bfloat16'",
    "deviations": "'auto', True, False",
    "correlations": "'auto', True, False",
    **dict.fromkeys(
        (
            "fixed_first",
            *("keep_untrained", "standardize", "balanced", "fallback_anchors", "fill_anchors"),
            *("whiten", "refit", "split_duplicates"),
        ),
        "True, False",
    ),
}
INTEGERS = {
    "latent_dim": 1,
    "passes": 1,
    "batch_size": 1,
    "epochs": 1,
    "scales": 1,
    "sv_close": 0,
    "wr_close": 0,
    "sh_close": 0,
}
POSITIVE = ("C", "gamma", "gamma_factor", "contrast_scale", "learning_rate", "final_rate", "head_rate")
NOT_NEGATIVE = ("anchor_weight", "head_weight", "weight_decay", "prior_shift")


def refused(**values) -> str:
    """The message of a recipe that cannot be made."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011, the message is what is returned
        Recipe(**values)
    return str(caught.value)


def test_every_value_has_a_check():
    assert {*CHOICES, *INTEGERS, *POSITIVE, *NOT_NEGATIVE, "widths", "refit_epochs", "crop_size"} == set(NAMES)


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("wrong", ["other", 1.5, None, 1], ids=repr)
def test_choices(name, wrong):
    assert refused(**{name: wrong}) == f"{name} must be one of {CHOICES[name]}, got {wrong!r}."


@pytest.mark.parametrize("name", INTEGERS)
def test_whole_numbers(name):
    for wrong in (2.5, True, "many", None):
        assert refused(**{name: wrong}) == f"{name} must be a whole number, got {wrong!r}."
    below = INTEGERS[name] - 1
    assert refused(**{name: below}) == f"{name} must be at least {INTEGERS[name]}, got {below}."


@pytest.mark.parametrize("name", POSITIVE)
def test_positive_numbers(name):
    for wrong in ("large", True, None):
        assert refused(**{name: wrong}) == f"{name} must be a number greater than 0, got {wrong!r}."
    for wrong in (0, -0.5, float("inf"), float("nan")):
        assert refused(**{name: wrong}) == f"{name} must be greater than 0 and finite, got {wrong}."


@pytest.mark.parametrize("name", NOT_NEGATIVE)
def test_numbers_that_may_be_0(name):
    for wrong in ("large", True, None):
        assert refused(**{name: wrong}) == f"{name} must be a number at least 0, got {wrong!r}."
    for wrong in (-0.5, float("inf"), float("nan")):
        assert refused(**{name: wrong}) == f"{name} must be at least 0 and finite, got {wrong}."
    assert getattr(Recipe(**{name: 0}), name) == 0


@pytest.mark.parametrize("wrong", [8, "8", None, {8}], ids=repr)
def test_widths_are_a_sequence(wrong):
    assert refused(widths=wrong) == f"widths must be a sequence of whole numbers such as (64, 128), got {wrong!r}."


def test_widths_are_numbers_of_filters():
    assert refused(widths=(4, 0)) == "widths must be at least 1, got 0."
    assert refused(widths=(4, 2.5)) == "widths must be a whole number, got 2.5."
    assert Recipe(widths=()).widths == ()


def test_refit_epochs_are_a_part_of_the_epochs_and_need_refit():
    assert refused(refit_epochs=-1) == "refit_epochs must be at least 0, got -1."
    assert refused(refit_epochs=1.5) == "refit_epochs must be a whole number, got 1.5."
    for n_refit in (4, 5):
        assert refused(epochs=4, refit_epochs=n_refit) == (
            f"refit_epochs must be less than epochs, 4, of which they are a part, got {n_refit}."
        )
    assert refused(refit=False, refit_epochs=2) == (
        "refit_epochs=2 learn from validation images, which refit=False excludes;"
        " set refit=True, or leave refit_epochs at its default."
    )
    assert Recipe(epochs=4, refit_epochs=3).n_refit_epochs == 3
    assert Recipe(refit=False, refit_epochs=0).n_refit_epochs == 0


@pytest.mark.parametrize("terms", [{"sv_close": 0, "wr_close": 0, "sh_close": 0}, {"anchor_weight": 0}], ids=str)
def test_a_loss_has_a_term(terms):
    assert refused(head_weight=0, **terms) == (
        "sv_close, wr_close and sh_close are all 0, or anchor_weight is, and so is head_weight; at least one term"
        " of the loss must be positive to learn anything."
    )
    assert Recipe(**terms).head_weight == 1  # the head alone can learn
    for term in ("sv_close", "wr_close", "sh_close"):
        only = {"sv_close": 0, "wr_close": 0, "sh_close": 0, term: 1}
        assert getattr(Recipe(head_weight=0, **only), term) == 1


def test_numbers_of_numpy_are_numbers():
    recipe = Recipe(
        latent_dim=np.int64(8), C=np.float32(2), epochs=np.int8(3), widths=[np.int32(4)], batch_size=np.int64(5)
    )
    assert recipe.for_data(2, 100, has_validation=True).n_epochs == 3


@pytest.mark.parametrize(
    ("values", "n_classes", "has_validation", "expected"),
    [
        ({}, 2, True, ("joint", 6, 3)),
        ({}, 3, True, ("joint", 6, 3)),
        ({}, 2, False, ("joint", 6, 0)),
        ({"strategy": "one-vs-all"}, 2, True, ("joint", 6, 3)),
        ({"strategy": "one-vs-all"}, 3, True, ("one-vs-all", 6, 3)),
        ({"batch_size": "all"}, 2, True, ("joint", 15, 7)),
        ({"batch_size": "all", "strategy": "one-vs-all"}, 3, True, ("one-vs-all", 10, 5)),
        ({"batch_size": "all", "strategy": "one-vs-all"}, 3, False, ("one-vs-all", 10, 0)),
        ({"epochs": 4}, 2, True, ("joint", 4, 2)),
        ({"epochs": 1}, 2, True, ("joint", 1, 0)),
        ({"strategy": "one-vs-all", "epochs": 4}, 3, True, ("one-vs-all", 4, 2)),
        ({"refit_epochs": 2}, 2, True, ("joint", 6, 2)),
        ({"refit_epochs": 2}, 2, False, ("joint", 6, 0)),
        ({"refit": False}, 2, True, ("joint", 6, 0)),
    ],
    ids=str,
)
def test_what_auto_is_for_some_data(values, n_classes, has_validation, expected):
    recipe = Recipe(**values)
    resolved = recipe.for_data(n_classes, 100, has_validation=has_validation)
    assert (resolved.strategy, resolved.n_epochs, resolved.n_refit_epochs) == expected
    assert resolved == replace(recipe, strategy=expected[0], epochs=expected[1], refit_epochs=expected[2], passes=12)
    assert resolved.for_data(n_classes, 100, has_validation=has_validation) == resolved


@pytest.mark.parametrize(
    ("n_images", "passes"), [(1, 12), (125, 12), (126, 12), (150, 10), (375, 4), (400, 4), (9999, 4)]
)
def test_passes_by_the_number_of_images(n_images, passes):
    assert Recipe().for_data(2, n_images, has_validation=True).n_passes == passes
    assert Recipe(passes=2).for_data(2, n_images, has_validation=True).n_passes == 2


def test_sizes_of_crops():
    assert refused(crop_size=15) == "crop_size must be at least 16, got 15."
    for wrong in (2.5, True, "many"):
        assert refused(crop_size=wrong) == f"crop_size must be a whole number, got {wrong!r}."
    assert [Recipe(crop_size=size).crop_size for size in (None, "auto", 16)] == [None, "auto", 16]


def test_the_paper_for_some_data():
    for n_classes, expected in ((2, ("joint", 15, 0)), (3, ("one-vs-all", 10, 0))):
        resolved = Recipe.paper().for_data(n_classes, 100, has_validation=True)
        assert (resolved.strategy, resolved.epochs, resolved.refit_epochs) == expected


def test_refit_epochs_must_fit_into_the_epochs_that_auto_is():
    recipe = Recipe(strategy="one-vs-all", refit_epochs=12, batch_size="all")
    assert recipe.for_data(2, 100, has_validation=True).n_refit_epochs == 12
    with pytest.raises(ValueError, match="refit_epochs must be less than epochs, 10, of which they are a part, got 12"):
        recipe.for_data(3, 100, has_validation=True)
    assert recipe.for_data(3, 100, has_validation=False).n_refit_epochs == 0


def test_auto_is_no_number():
    for name in ("epochs", "refit_epochs", "passes"):
        with pytest.raises(ValueError, match=rf"^{name} is 'auto'; Recipe\.for_data gives a recipe with numbers\.$"):
            getattr(Recipe(), f"n_{name}")


def test_override_replaces_what_is_given():
    assert override("paper", {"C": 10.0, "epochs": None}) == replace(Recipe.paper(), C=10.0)
    own = Recipe(passes=3)
    assert override(own, {"latent_dim": 8}) == Recipe(passes=3, latent_dim=8)
    assert own == Recipe(passes=3)
    assert override("default", {}) == Recipe()
    with pytest.raises(ValueError, match="C must be greater than 0 and finite, got 0"):
        override("default", {"C": 0})
    with pytest.raises(ValueError, match="recipe must be"):
        override("papers", {})
    with pytest.raises(TypeError, match="weight"):
        override("default", {"weight": 1})


def test_change_refuses_unknown_values_by_name():
    assert change("paper", {"head_weight": 0.5}) == replace(Recipe.paper(), head_weight=0.5)
    assert change(Recipe(passes=3), {"refit": False, "refit_epochs": 0}) == Recipe(
        passes=3, refit=False, refit_epochs=0
    )
    with pytest.raises(ValueError, match=r"^A Recipe has no value 'view'; see lmfcn\.Recipe for those it has\.$"):
        change("default", {"view": "none", "weight": 1})
    with pytest.raises(ValueError, match="head_weight must be a number at least 0, got None"):
        change("default", {"head_weight": None})


def test_correlations_need_deviations():
    assert refused(correlations=True, deviations=False) == (
        "correlations=True needs the standard deviations too, got deviations=False; leave one of them out."
    )


@pytest.mark.parametrize(
    ("deviations", "correlations", "expected"),
    [
        ("auto", "auto", [1, 0]),
        ("auto", False, [1, 0]),
        ("auto", True, [2]),
        (True, "auto", [1]),
        (True, False, [1]),
        (True, True, [2]),
        (False, "auto", [0]),
        (False, False, [0]),
    ],
)
def test_which_moments_may_describe_an_image(deviations, correlations, expected):
    assert Recipe(deviations=deviations, correlations=correlations).moment_orders == expected
