import numpy as np
import pytest
import torch
from PIL import Image

from lmfcn.data.image_form import ImageForm
from lmfcn.export import DisagreementError
from lmfcn.export.agreement import SIZES, compare, generate_textures, sample_batches, user_batches
from random_models import random_images, random_model


def kernel_to_support(model, images):
    latents = torch.from_numpy(model.transform(images)).double()
    return torch.exp(-model.gamma * torch.cdist(latents, model.support_latents.double()).square()).max(dim=1).values


def test_drawn_textures_lie_nearer_to_support_vectors_than_noise(models):
    model = models["two, grey"]
    pixels = generate_textures(model, (32, 32), torch.Generator().manual_seed(0))
    noise = torch.rand(pixels.shape, generator=torch.Generator().manual_seed(0))
    drawn, start = ((255 * part).permute(0, 2, 3, 1).round().to(torch.uint8).numpy() for part in (pixels, noise))
    assert kernel_to_support(model, drawn).median() > 0.5
    assert kernel_to_support(model, drawn).median() > 5 * kernel_to_support(model, start).median()


@pytest.mark.parametrize("pixels", ["uint8", "uint16", "float"])
def test_batches_have_many_sizes_and_the_models_pixels(pixels):
    model = random_model(["x", "y"], ImageForm(2, pixels), ("last",))
    batches = sample_batches(model)
    assert [batch.shape[1:3] for batch in batches] == sorted(SIZES)
    assert {batch.shape[3] for batch in batches} == {2}
    assert {str(batch.dtype) for batch in batches} == {"float32" if pixels == "float" else pixels}
    assert {1, 16} <= {len(batch) for batch in batches}
    assert all(np.array_equal(one, other) for one, other in zip(batches, sample_batches(model), strict=True))


def test_a_fixed_shape_of_rows_is_kept():
    model = random_model(["x", "y"], ImageForm(1, "float", row_shape=(6, 5)), ("last",))
    assert [batch.shape[1:] for batch in sample_batches(model)] == [(6, 5, 1)]


def test_some_of_the_users_images_in_the_models_form(tmp_path, models, random):
    for number in range(70):
        size = (40, 40) if number % 2 else (30, 44)
        Image.fromarray(random.integers(0, 256, size, dtype=np.uint8)).save(tmp_path / f"{number}.png")
    batches = list(user_batches(models["two, grey"], sorted(tmp_path.iterdir())))
    assert sum(map(len, batches)) == 64
    assert {batch.shape[1:] for batch in batches} == {(24, 20, 1)}


@pytest.fixture(scope="module")
def model():
    return random_model(["x", "y", "z"], ImageForm(1, "uint8"), ("last",))


def runner(model, change):
    def run(images):
        predictions = [model.predict(images), model.decision_function(images), model.predict_proba(images)]
        change(predictions)
        return tuple(predictions)

    return run


def batches(model):
    return [random_images(5, (10, 10), model.form), random_images(2, (12, 10), model.form)]


def test_it_counts_and_measures(model):
    def shift(predictions):
        predictions[1] = predictions[1] + 3e-5

    found = compare(model, runner(model, shift), batches(model))
    assert (found.n_images, found.n_sizes) == (7, 2)
    assert found.largest_difference == pytest.approx(3e-5)
    assert found.n_labels == len({*model.predict(batches(model)[0]), *model.predict(batches(model)[1])})


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, np.array(["none"] * 5, dtype=object), "other labels than the model for 5 of 5 images"),
        (1, np.full((5, 3), np.nan), "disagrees with the model by nan"),
        (2, np.full((5, 3), 1 / 3), "disagrees with the model by"),
        (2, np.ones((5, 2)), "does not return one row of numbers per image"),
    ],
    ids=["labels", "nan", "probabilities", "shape"],
)
def test_every_kind_of_disagreement_is_an_error(model, place, value, message):
    def change(predictions):
        predictions[place] = value

    with pytest.raises(DisagreementError, match=message):
        compare(model, runner(model, change), batches(model))
