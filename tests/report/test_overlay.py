import base64
import io

import numpy as np
from PIL import Image

from lmfcn.benchmark.model_summary import HardImage, LabelledPicture
from lmfcn.report.overlay import examples, hard_images

CLASSES = ["bark", "wood"]


def opened(address):
    return Image.open(io.BytesIO(base64.b64decode(address.split(",")[1])))


def test_hard_images_say_both_labels():
    picture = LabelledPicture(np.zeros((4, 4), dtype=np.uint8), "1.png", 0)
    near = LabelledPicture(np.zeros((4, 4), dtype=np.uint8), "2.png", 1)
    wrong, right = hard_images(
        [HardImage(picture, 1, 0.876, [near], [0.5]), HardImage(picture, 0, 0.51, [], [])], CLASSES
    )
    assert wrong[0].lines == ["1.png", "is bark", "predicted wood, 88 % confident"]
    assert wrong[0].alt == "Test image 1.png: bark, predicted wood"
    assert wrong[1][0].lines == ["2.png", "is wood", "similarity 0.50"]
    assert right[0].lines[-1] == "correct, 51 % confident"


def test_examples_of_every_class(random):
    images = random.integers(0, 256, (6, 100, 100, 1), dtype=np.uint8)
    labels = np.array(["b", "a", "b", "a", "b", "b"])
    found = examples(images, labels, 3, 2)
    assert {label: len(pictures) for label, pictures in found.items()} == {"a": 2, "b": 3}
    assert max(opened(found["a"][0]).size) == 48
    assert examples(images, labels, 3, 1) == {}
