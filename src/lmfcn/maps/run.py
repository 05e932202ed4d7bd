"""From a model file and an image file of any size to a folder with its map."""

import errno
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from lmfcn.compute.parallel import LostWorkerError, as_completed
from lmfcn.compute.resources import check_device
from lmfcn.compute.threads import WithThreads
from lmfcn.maps.blocks import BlockMapper, BlockResult, BlockStore, MapSettings, find_tissue, lost_block, made_with
from lmfcn.maps.grid import Box, MapGrid
from lmfcn.maps.large_image import LargeImage
from lmfcn.maps.outputs import LARGEST_PICTURE, N_STEPS, FinishedMap, legend_of, remove_outputs, write_outputs
from lmfcn.maps.readers import View, open_level, open_view, resolve_view
from lmfcn.model import TextureModel
from lmfcn.model_file import load
from lmfcn.util.files import made_folder
from lmfcn.util.progress import item_progress


@dataclass(frozen=True)
class MapRequest:
    """What to map and how.

    Attributes
    ----------
    model, image, output : Path
    window : int, optional
        Side of windows in pixels; chosen by the model if it is left out.
    stride : int
    view : View
        Reader, level and scale.
    resolution : float, optional
        Micrometres per pixel, instead of level and scale.
    tissue : bool, optional
        Whether glass is passed over; only in whole slides if it is left out.
    reject : float
        Least probability of a label that is shown.
    block : int, optional
        Side of the blocks in pixels.
    device : str
        Where to compute; every process that does looks for it itself.
    """

    model: Path
    image: Path
    output: Path
    window: int | None = None
    stride: int = 16
    view: View = field(default_factory=View)
    resolution: float | None = None
    tissue: bool | None = None
    reject: float = 0.0
    block: int | None = None
    device: str = "auto"


@dataclass(frozen=True)
class MapOutcome:
    """What came of it.

    Attributes
    ----------
    areas : dict of int
        Pixels of every label in the model's order, and then of what is rejected, glass and unreadable.
    n_classes : int
        How many of them are labels.
    missing : list of str
        Sentences about parts of the image that could not be mapped.
    """

    areas: dict[str, int]
    n_classes: int
    missing: list[str]


def map_image(
    request: MapRequest,
    *,
    jobs: int | None = None,
    scheduler: str | None = None,
    verbose: bool = False,
    tell: Callable[[str], None] | None = None,
) -> MapOutcome:
    """Map an image block by block into a folder; blocks that are there already are not computed again.

    Parameters
    ----------
    request : MapRequest
    jobs : int, optional
        Processes on this machine, of one thread each; by default this process with all its threads.
    scheduler : str, optional
        Address of a dask scheduler instead, whose workers compute with one thread each too.
    verbose : bool
        Show a progress bar on standard error.
    tell : callable, optional
        Given sentences that are good to know: before the work begins, and when it is stopped.
    """
    tell = tell or (lambda _: None)
    if jobs is None and scheduler is None:
        check_device(request.device)  # other processes look for it themselves
    plan = _plan(request)
    for note in _notes(plan, request):
        tell(f"Note: {note}")
    try:
        with made_folder(request.output):
            _compute(plan, request, jobs, scheduler, verbose=verbose)
            return _write(plan, request, verbose=verbose)
    except KeyboardInterrupt:
        kept, wanted = len(plan.store.blocks) - len(plan.store.unfinished()), len(plan.store.blocks)
        tell(f"Stopped; {kept} of {wanted} blocks are kept, the same command goes on.")
        raise
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(
            f"No space is left for {request.output}; free some and run the same again: finished blocks are kept."
        ) from error


@dataclass(frozen=True)
class _Plan:
    """Everything that is checked and chosen before the first block is computed."""

    model: TextureModel
    image: LargeImage
    overview: LargeImage
    grid: MapGrid
    settings: MapSettings
    store: BlockStore


def _plan(request: MapRequest) -> _Plan:
    if not 0 <= request.reject <= 1:
        raise ValueError(f"reject must be a probability between 0 and 1, got {request.reject}.")
    if not 0 < request.view.scale < math.inf:
        raise ValueError(f"scale must be positive, got {request.view.scale}.")
    model = load(request.model, "cpu")
    legend_of(model.classes)  # refuses what cannot be shown
    view = resolve_view(request.image, request.view, request.resolution)
    image = open_view(request.image, view, model.form)
    mapper = model.mapper()
    window = mapper.window(model.form.preprocessing.size) if request.window is None else request.window
    grid = mapper.grid((image.size.height, image.size.width), window, request.stride)
    overview = _overview(request.image, view, image.size.levels)
    with_tissue = view.reader == "openslide" if request.tissue is None else request.tissue
    settings = MapSettings(window, request.stride, view, find_tissue(overview) if with_tissue else None)
    blocks = grid.blocks(mapper.n_latents, request.block)
    known = made_with(request.model, request.image, settings, blocks)
    return _Plan(model, image, overview, grid, settings, BlockStore(request.output / "blocks", blocks, known))


def _compute(plan: _Plan, request: MapRequest, jobs: int | None, scheduler: str | None, *, verbose: bool) -> None:
    function: Callable[[Box], BlockResult] = BlockMapper(
        plan.model, request.image.resolve(), plan.settings, request.device
    )
    if jobs is not None or scheduler is not None:
        # Of one thread each, so that not a bit depends on how many there are, nor on their machines' cores.
        function = WithThreads(function, 1)
    store, unfinished = plan.store, plan.store.unfinished()
    found = as_completed(function, unfinished, jobs=jobs or 1, scheduler=scheduler, catch=LostWorkerError)
    title, n_before = f"Mapping {request.image.name}", len(store.blocks) - len(unfinished)
    with item_progress(title, len(store.blocks), n_before=n_before, visible=verbose) as advance:
        for block, result in found:
            if store.is_new:  # not earlier, so that a map that cannot begin costs nothing
                remove_outputs(request.output)
                store.begin()
            if isinstance(result, LostWorkerError):
                result = lost_block(plan.grid, block, len(plan.model.classes))
            store.add(block, result)
            advance()


def _write(plan: _Plan, request: MapRequest, *, verbose: bool) -> MapOutcome:
    finished = FinishedMap(plan.store, plan.grid, legend_of(plan.model.classes), plan.settings.tissue, request.reject)
    view = plan.settings.view
    about = {"level": view.level, "scale": view.scale, "image": str(request.image), "model": str(request.model)}
    with item_progress("Writing files", N_STEPS, visible=verbose) as advance:
        areas = write_outputs(finished, (plan.image, plan.overview), request.output, about, advance)
    missing = [sentence for block in plan.store.blocks for sentence in plan.store.missing(block)]
    named = dict(zip(finished.legend.names, areas.tolist(), strict=True))
    return MapOutcome(named, finished.legend.n_classes, list(dict.fromkeys(missing)))


def _overview(path: Path, view: View, sizes: list[tuple[int, int]]) -> LargeImage:
    """Open the coarsest level that is still good enough for pictures, in its own colours."""
    good_enough = [level for level, size in enumerate(sizes) if max(size) >= LARGEST_PICTURE]
    return open_level(path, replace(view, level=max(good_enough, default=0)))


def _notes(plan: _Plan, request: MapRequest) -> list[str]:
    notes = []
    frame, scale = plan.model.form.preprocessing, plan.settings.view.scale
    if frame.fit == "resize" and frame.size is not None and scale == 1:
        notes.append(
            f"The model was trained on images that had been resized to {frame.size[0]}x{frame.size[1]} pixels; if they"
            " had another size before, give the factor as --scale, or textures look coarser or finer to it here."
        )
    if request.resolution is not None and scale > 1:
        notes.append(
            f"The finest pixels in the file are {request.resolution * scale:.4g} micrometres wide; for a resolution of"
            f" {request.resolution:g} the image is enlarged {scale:.3g} times, which adds no detail."
        )
    return notes
