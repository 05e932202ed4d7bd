"""The end of a labelling session: the table, class folders, and models with their galleries and reports."""

from collections.abc import Callable, Iterator
from pathlib import Path

from lmfcn.data.sources import from_table
from lmfcn.explain.gallery import Gallery, gallery_path, save_gallery
from lmfcn.label.result import CLASS_FOLDERS, write_result
from lmfcn.label.session import LabellingSession
from lmfcn.networks.registry import TEXTURE_FCN
from lmfcn.report import training_report_writer
from lmfcn.serve.labelling import FinishOrder
from lmfcn.user_training import Source, TrainedModel, open_split, train_model


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
        yield from _train(table, network, folder / f"{name}.lmfcn", announce)


def _train(table: Path, network: str, path: Path, announce: Callable[[str], None]) -> Iterator[str]:
    announce(f"Training {path.name} with the network {network}")
    parts = open_split(Source(table, color="rgb" if _mixed(table) else "keep"))
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
