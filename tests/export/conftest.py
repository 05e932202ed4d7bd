import numpy as np
import pytest

from lmfcn import LMFCNClassifier, Recipe
from lmfcn.data.framing import Preprocessing
from lmfcn.data.image_form import ImageForm
from lmfcn.export import export_onnx
from random_models import random_model


@pytest.fixture(scope="session")
def models(textures):
    """Every kind of labels, pixels, channels, framing and number of networks, in as few models as possible."""
    fitted = LMFCNClassifier(
        latent_dim=4, widths=(6, 8), epochs=1, recipe=Recipe(passes=1), random_state=0, device="cpu"
    )
    fitted.fit(textures[0], np.array(["coarse", "fine; größer"])[textures[1]])
    fitted.model_.form = ImageForm(1, "uint8", Preprocessing("grey", "crop", (24, 20)))
    rgb = ImageForm(3, "uint8", Preprocessing("rgb", "resize", (40, 32)))
    deep = ImageForm(1, "uint16", Preprocessing("keep", "resize", (30, 30)))
    return {
        "two, grey": fitted.model_,
        "five, RGB": random_model([-7, 0, 3, 4, 9], rgb, ("last",), deviations=True),
        "one-vs-all, 16-bit": random_model([1.0, 2.0, 5.0], deep, ("all", "last", "last"), reductions=(1, 2, 4)),
        "boolean, 6-channel": random_model(
            [False, True], ImageForm(6, "float"), ("all",), deviations=True, correlations=True, reductions=(2,)
        ),
    }


@pytest.fixture(scope="session")
def files(models, tmp_path_factory):
    """The path of the ONNX file of every model, and what was found when it was written."""
    folder = tmp_path_factory.mktemp("onnx")
    paths = {name: folder / f"{number}.onnx" for number, name in enumerate(models)}
    return {name: (paths[name], export_onnx(model, paths[name])) for name, model in models.items()}
