"""Folders of small images for tests of labelling."""

from PIL import Image

from small_model import textures


def write_textures(folder, n=10, by_class=False, seed=0):
    """Write n images of each of three easy textures; return their names and classes."""
    images, labels = textures(n, 18, 22, seed)
    truth = {}
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        name = f"{label}/{number:02}.png" if by_class else f"{number:02}.png"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / name)
        truth[name] = str(label)
    return truth
