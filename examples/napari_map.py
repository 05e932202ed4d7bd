"""Show an image and its texture map as layers in napari.

pip install napari pyqt6
lmfcn map model.lmfcn image.tif -o map/ --ome-tiff
python examples/napari_map.py image.tif map/
"""

import json
import sys
from pathlib import Path
from typing import Any

import tifffile

from lmfcn.data.image_files import read_image
from lmfcn.util.class_style import class_color


def map_layers(image: Path, folder: Path) -> list[tuple[Any, dict[str, Any], str]]:
    """Return the layers of an image and its map as napari takes them: data, options, kind."""
    about = json.loads((folder / "map.json").read_text(encoding="utf-8"))
    labels = tifffile.imread(folder / "labels.ome.tif")
    pixels = read_image(image)
    # One pixel of the labels covers so many of the image, whose first pixel has its centre at 0.
    step = [pixels.shape[axis] / labels.shape[axis] for axis in (0, 1)]
    shift = [(side - 1) / 2 for side in step]
    n_classes = len(about["labels"]) - 4  # behind the classes: rejected, glass, unreadable, none of these
    colours = {number + 1: class_color(number) for number in range(n_classes)} | {None: "transparent"}
    options = {"name": "textures", "scale": step, "translate": shift, "opacity": 0.45, "colormap": colours}
    options["features"] = {"texture": ["", *about["labels"]]}
    # 0 is transparent in napari, so numbers start at 1.
    return [(pixels.squeeze(), {"name": image.name}, "image"), (labels.astype(int) + 1, options, "labels")]


def main(image: Path, folder: Path) -> None:
    """Open napari with both layers."""
    import napari

    viewer = napari.Viewer()
    for data, options, kind in map_layers(image, folder):
        if kind == "image":
            viewer.add_image(data, **options)
        else:
            viewer.add_labels(
                data, **(options | {"colormap": napari.utils.DirectLabelColormap(color_dict=options["colormap"])})
            )
    napari.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
