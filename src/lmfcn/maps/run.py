"""Map an image file of any size with a model file, into a folder."""

import errno
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from lmfcn.compute.parallel import LostWorkerError, as_completed
from lmfcn.compute.resources import WithThreads, check_device
from lmfcn.data.framing import describe_fit
from lmfcn.maps.blocks import (
    BlockMapper,
    BlockResult,
    BlockStore,
    MapSettings,
    describe_map,
    find_tissue,
    make_lost_block,
)
from lmfcn.maps.large_image import LargeImage
from lmfcn.maps.outputs import (
    LARGEST_PICTURE,
    N_STEPS,
    FinishedMap,
    make_legend,
    remove_outputs,
    remove_unfinished_outputs,
    write_outputs,
)
from lmfcn.maps.readers import View, open_level, open_view, resolve_view
from lmfcn.maps.texture_map import Box, MapGrid, scale_note
from lmfcn.model import TextureModel
from lmfcn.model_file import load
from lmfcn.util.files import create_folder
from lmfcn.util.progress import item_progress


@dataclass(frozen=True)
class MapRequest:
    """The image to map, and how.

    Attributes
    ----------
    model, image, output : Path
    window : int, optional
        Side of windows in pixels; by default the image size of the model, or 64.
    stride : int, optional
        16 by default, or more if the networks need it.
    view : View
        Reader, level and scale.
    resolution : float, optional
        Micrometres per pixel, instead of level and scale.
    tissue : bool, optional
        Whether to skip glass; by default only in whole slides.
    reject : float
        Smallest probability of a label that is shown.
    none_of_these : float, optional
        Typicality up to which a window is shown as none of the classes.
    outputs : collection of "geojson" and "ome-tiff"
        What to write beside the usual files.
    block : int, optional
        Side of the blocks in pixels.
    device : str
        Name of the device, which each process checks itself.
    """

    model: Path
    image: Path
    output: Path
    window: int | None = None
    stride: int | None = None
    view: View = field(default_factory=View)
    resolution: float | None = None
    tissue: bool | None = None
    reject: float = 0.0
    none_of_these: float | None = None
    outputs: Collection[str] = ()
    block: int | None = None
    device: str = "auto"


@dataclass(frozen=True)
class MapOutcome:
    """The result of mapping an image.

    Attributes
    ----------
    areas : dict of int
        Pixels of every label in the model's order, then of rejected, glass and unreadable windows.
    n_classes : int
        How many of the areas belong to labels.
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
    announce: Callable[[str], None] | None = None,
) -> MapOutcome:
    """Map an image block by block into a folder; finished blocks in it are not computed again.

    Parameters
    ----------
    request : MapRequest
    jobs : int, optional
        Worker processes on this machine, one thread each; by default this process with all its threads.
    scheduler : str, optional
        Address of a dask scheduler instead; its workers also compute with one thread each.
    verbose : bool
        Show a progress bar on standard error.
    announce : callable, optional
        Called with remarks for the user, before the work starts and when it is interrupted.
    """
    announce = announce or (lambda _: None)
    if jobs is None and scheduler is None:
        check_device(request.device)  # worker processes check it themselves
    plan = _make_plan(request)
    for note in _notes(plan, request):
        announce(f"Note: {note}")
    try:
        with create_folder(request.output):
            remove_unfinished_outputs(request.output)
            _compute(plan, request, jobs, scheduler, verbose=verbose)
            return _write(plan, request, verbose=verbose)
    except KeyboardInterrupt:
        n_finished, n_blocks = len(plan.store.blocks) - len(plan.store.unfinished()), len(plan.store.blocks)
        announce(f"Stopped; {n_finished} of {n_blocks} blocks are finished, the same command continues.")
        raise
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(
            f"No space is left for {request.output}; free some and run the same command again: finished blocks are"
            " kept."
        ) from error


@dataclass(frozen=True)
class _Plan:
    """Everything that is checked and opened before the first block is computed."""

    model: TextureModel
    image: LargeImage
    overview: LargeImage
    grid: MapGrid
    settings: MapSettings
    store: BlockStore


def _make_plan(request: MapRequest) -> _Plan:
    if not 0 <= request.reject <= 1:
        raise ValueError(f"reject must be a probability between 0 and 1, got {request.reject}.")
    if not 0 < request.view.scale < math.inf:
        raise ValueError(f"scale must be positive, got {request.view.scale}.")
    model = load(request.model, "cpu")
    make_legend(model.classes)  # refuses too many classes
    if request.none_of_these is not None:
        model.known_distances().check_rate(request.none_of_these)
    view = resolve_view(request.image, request.view, request.resolution)
    image = open_view(request.image, view, model.form)
    mapper = model.mapper()
    window = mapper.default_window(model.form.preprocessing.size) if request.window is None else request.window
    stride = mapper.default_stride() if request.stride is None else request.stride
    grid = mapper.grid((image.size.height, image.size.width), window, stride)
    overview = _overview(request.image, view, image.size.levels)
    with_tissue = view.reader == "openslide" if request.tissue is None else request.tissue
    tissue = find_tissue(overview) if with_tissue else None
    settings = MapSettings(window, stride, view, tissue, request.none_of_these is not None)
    blocks = grid.blocks(mapper.n_latents, request.block)
    description = describe_map(request.model, request.image, settings, blocks)
    return _Plan(model, image, overview, grid, settings, BlockStore(request.output / "blocks", blocks, description))


def _compute(plan: _Plan, request: MapRequest, jobs: int | None, scheduler: str | None, *, verbose: bool) -> None:
    function: Callable[[Box], BlockResult] = BlockMapper(
        plan.model, request.image.resolve(), plan.settings, request.device
    )
    if jobs is not None or scheduler is not None:
        # One thread each: then results do not depend on the number of workers or on their cores.
        function = WithThreads(function, 1)
    store, unfinished = plan.store, plan.store.unfinished()
    found = as_completed(function, unfinished, jobs=jobs or 1, scheduler=scheduler, catch=LostWorkerError)
    title, n_before = f"Mapping {request.image.name}", len(store.blocks) - len(unfinished)
    with item_progress(title, len(store.blocks), n_before=n_before, visible=verbose) as advance:
        for block, result in found:
            if store.is_new:  # not earlier, so that a map that fails at the start removes nothing
                remove_outputs(request.output)
                store.begin()
            if isinstance(result, LostWorkerError):
                result = make_lost_block(plan.grid, block, len(plan.model.classes) + plan.settings.typicality)
            store.add(block, result)
            advance()


def _write(plan: _Plan, request: MapRequest, *, verbose: bool) -> MapOutcome:
    legend, shown = make_legend(plan.model.classes), (request.reject, request.none_of_these)
    finished = FinishedMap(plan.store, plan.grid, legend, plan.settings.tissue, *shown)
    view = plan.settings.view
    about = {"level": view.level, "scale": view.scale, "image": str(request.image), "model": str(request.model)}
    with item_progress("Writing files", N_STEPS, visible=verbose) as advance:
        areas = write_outputs(finished, (plan.image, plan.overview), request.output, about, advance, request.outputs)
    missing = [sentence for block in plan.store.blocks for sentence in plan.store.missing(block)]
    area_by_name = dict(zip(finished.legend.names, areas.tolist(), strict=True))
    return MapOutcome(area_by_name, finished.legend.n_classes, list(dict.fromkeys(missing)))


def _overview(path: Path, view: View, sizes: list[tuple[int, int]]) -> LargeImage:
    """Open the coarsest level that is large enough for the pictures, in its own colours."""
    large_enough = [level for level, size in enumerate(sizes) if max(size) >= LARGEST_PICTURE]
    return open_level(path, replace(view, level=max(large_enough, default=0)))


def _notes(plan: _Plan, request: MapRequest) -> list[str]:
    many_scales = scale_note(plan.model)
    notes = [] if many_scales is None else [many_scales]
    frame, scale = plan.model.form.preprocessing, plan.settings.view.scale
    if not many_scales and frame.scales and frame.size is not None and scale == 1:
        notes.append(
            f"The model was trained on images that had been {describe_fit(frame)} to {frame.size[0]}x{frame.size[1]}"
            " pixels; if they had another size before, give the factor as --scale; otherwise textures appear coarser"
            " or finer."
        )
    if request.resolution is not None and scale > 1:
        notes.append(
            f"The finest pixels in the file are {request.resolution * scale:.4g} micrometres wide; for a resolution of"
            f" {request.resolution:g} the image is enlarged {scale:.3g} times, which adds no detail."
        )
    return notes
