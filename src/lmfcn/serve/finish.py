"""The end of a labelling session: the table, class folders, and models with their galleries and reports."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from lmfcn.data.collection import ImageCollection
from lmfcn.data.leaks import find_duplicates
from lmfcn.data.sources import from_table
from lmfcn.explain.gallery import Gallery, gallery_path, save_gallery
from lmfcn.label.image_session import ImageSession
from lmfcn.label.result import CLASS_FOLDERS, write_result
from lmfcn.label.session import LabellingSession
from lmfcn.maps.run import MapRequest, map_image
from lmfcn.model_file import load
from lmfcn.networks.registry import TEXTURE_FCN
from lmfcn.report import training_report_writer
from lmfcn.serve.image_labelling import ImageOrder
from lmfcn.serve.labelling import FinishOrder
from lmfcn.user_training import Source, SplitImages, TrainedModel, open_split, train_model
from lmfcn.util.files import create_folder

MAP = "map"
_SHOWN = 10


def finish(session: LabellingSession, order: FinishOrder, announce: Callable[[str], None]) -> Iterator[str]:
    """Write what was ordered; yield a sentence about each file."""
    folder = Path(order.folder).expanduser()
    table = write_result(session, folder, order.files)
    yield f"{table}: the labels; lmfcn train reads it."
    if order.files != "none":
        yield f"{table.parent / CLASS_FOLDERS}: class folders, {order.files}."
    describer = session.features.describer
    first = TEXTURE_FCN if describer is None else describer.network
    networks = dict.fromkeys([*([first] if order.train else []), *([TEXTURE_FCN] if order.scratch else [])])
    for network in networks:
        name = "model" if network == first else "model-from-scratch"
        path = folder / f"{name}.lmfcn"
        announce(f"Training {path.name} with the network {network}")
        parts = open_split(Source(table, color="rgb" if _mixed(table) else "keep"))
        yield from _train(parts, network, path, announce)


def finish_image(session: ImageSession, order: ImageOrder, announce: Callable[[str], None]) -> Iterator[str]:
    """Write a model that learnt the windows under the strokes, and what it makes of the whole image."""
    folder = Path(order.folder).expanduser()
    target = folder / MAP
    if order.map and target.exists():
        raise ValueError(f"{target} exists already; remove it, or choose another folder.")
    windows, labels, strokes = session.training_windows()
    images = ImageCollection(windows, labels, groups=strokes)
    path = folder / "model.lmfcn"
    announce(f"Training {path.name} on {len(images)} windows of {len(np.unique(strokes))} strokes")
    with create_folder(folder):
        parts = SplitImages(images, None, None, [], [], find_duplicates(images))
        yield from _train(parts, session.network, path, announce)
        if order.map:
            announce("Mapping the whole image")
            yield from _map(session, order, path, target, announce)


def _map(
    session: ImageSession, order: ImageOrder, model: Path, target: Path, announce: Callable[[str], None]
) -> Iterator[str]:
    fitted = load(model, "cpu")
    # Networks without a pretrained one need a multiple of their step.
    window = fitted.mapper().default_window((session.window, session.window))
    none_of_these = order.none_of_these
    if none_of_these is not None:
        try:
            fitted.known_distances().check_rate(none_of_these)
        except ValueError as error:
            yield f"The map marks nothing as none of these: {error}"
            none_of_these = None
    request = MapRequest(
        *(model, session.path, target, window),
        resolution=session.resolution,
        reject=order.reject,
        none_of_these=none_of_these,
        outputs=("geojson",),
        device=session.device,
    )
    outcome = map_image(request, announce=announce)
    yield f"{target / 'overlay.png'}: the map; probabilities.tif, labels.png and map.png are beside it."
    total = sum(outcome.areas.values())
    shares = ", ".join(f"{name} {area / total:.1%}" for name, area in outcome.areas.items() if area)
    yield f"{target / 'areas.csv'}: the area of each class in pixels: {shares}."
    yield f"{target / 'regions.geojson'}: polygons, which QuPath opens."
    yield from (f"Could not be mapped: {sentence}" for sentence in outcome.missing[:_SHOWN])


def _train(parts: SplitImages, network: str, path: Path, announce: Callable[[str], None]) -> Iterator[str]:
    trained = train_model(parts, {"network": network, "random_state": 0}, announce=announce)
    trained.classifier.save(path)
    save_gallery(Gallery.of(trained.classifier, parts.train), gallery_path(path))
    yield _about(trained, path)
    announce("Writing the report")
    yield _report(trained, path)


def _mixed(table: Path) -> bool:
    """Return whether grey and colour images are mixed."""
    images = from_table(table)
    return len({images.info(position).channels for position in range(len(images))}) > 1


def _about(trained: TrainedModel, path: Path) -> str:
    evaluated = trained.best_evaluated
    if evaluated is None:
        return f"{path}: the model."
    found = evaluated.evaluation.balanced_accuracy
    return (
        f"{path}: the model; balanced accuracy {found.value:.3f} ({found.low:.3f} to {found.high:.3f}) on {found.n}"
        f" {evaluated.part} images."
    )


def _report(trained: TrainedModel, path: Path) -> str:
    """Write the report; without the packages for it, say what to install."""
    try:
        write = training_report_writer()
    except ImportError as error:
        return f"No report: {error}"
    page = path.with_suffix(".html")
    write(trained, page, name=path.name)
    return f"{page}: the report."
