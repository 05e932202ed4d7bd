"""`lmfcn map`: map the textures in an image of any size."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from lmfcn.cli.console import CommandConsole
from lmfcn.cli.options import (
    Device,
    ModelFile,
    NoneOfThese,
    Quiet,
    Threads,
    compute_with,
    threads_beside_workers,
)

if TYPE_CHECKING:
    from lmfcn.maps.run import MapOutcome

_SHOWN = 20


def map_image(
    context: typer.Context,
    model: ModelFile,
    image: Annotated[
        Path, typer.Argument(metavar="IMAGE", help="Plain image, tiled or pyramidal TIFF, or whole slide.")
    ],
    output: Annotated[Path, Option("--output", "-o", help="Folder for the map.")] = Path("map"),
    window: Annotated[
        int | None, Option(metavar="PIXELS", help="Side of a window; by default the model's image size, or 64.")
    ] = None,
    stride: Annotated[int, Option(metavar="PIXELS", help="Distance from one window to the next.")] = 16,
    reject: Annotated[float, Option(metavar="PROBABILITY", help="Show no label below this probability.")] = 0.0,
    none_of_these: NoneOfThese = None,
    geojson: Annotated[
        bool, Option("--geojson", help="Also write regions.geojson: polygons of every label, which QuPath imports.")
    ] = False,
    ome_tiff: Annotated[
        bool, Option("--ome-tiff", help="Also write labels.ome.tif: the labels as an OME-TIFF over the whole image.")
    ] = False,
    level: Annotated[int, Option(help="Resolution level in the file; 0 is the finest.")] = 0,
    resolution: Annotated[
        float | None, Option(metavar="MICROMETRES", help="Pixel size to map at, instead of --level.")
    ] = None,
    scale: Annotated[float, Option(help="Enlarge or reduce the image by this factor.")] = 1.0,
    tissue_mask: Annotated[
        bool | None, Option("--tissue-mask/--no-tissue-mask", help="Skip glass; by default in whole slides.")
    ] = None,
    reader: Annotated[str, Option(help="auto, plain, tiff or openslide.")] = "auto",
    jobs: Annotated[
        int | None, Option("--jobs", "-j", min=1, help="Worker processes on this machine, one thread each.")
    ] = None,
    scheduler: Annotated[
        str | None, Option(metavar="ADDRESS", help="Dask scheduler whose workers do the work.")
    ] = None,
    threads: Threads = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Map the textures in an image, and measure the area of each.

    A window slides over the image and gets the label that the model predicts for it as an image of its own. Writes
    overlay.png and map.png (pictures), labels.png (a pixel per window), probabilities.tif, areas.csv and map.json.
    Images of any size are mapped in blocks; after an interruption the same command continues. The exit code is 1 if a
    part of the image could not be mapped.
    """
    CommandConsole(quiet).load_libraries()
    from lmfcn.maps.readers import READERS, View
    from lmfcn.maps.run import MapRequest
    from lmfcn.maps.run import map_image as run
    from lmfcn.util.checks import check_choice

    check_choice("--reader", reader, READERS)
    compute_with(context, threads_beside_workers(threads, jobs, scheduler))
    if resolution is not None and (level != 0 or scale != 1.0):
        raise ValueError("--resolution chooses level and scale itself; leave out --level and --scale.")
    others = [name for name, wanted in (("geojson", geojson), ("ome-tiff", ome_tiff)) if wanted]
    request = MapRequest(
        *(model, image, output, window, stride, View(reader, level, scale), resolution, tissue_mask, reject),
        *(none_of_these, others),
        device=device,
    )
    console = CommandConsole(quiet)
    outcome = run(request, jobs=jobs, scheduler=scheduler, verbose=not quiet, announce=console.note)
    _print_result(console, outcome, output, others)
    raise typer.Exit(1 if outcome.missing else 0)


def _print_result(console: CommandConsole, outcome: "MapOutcome", output: Path, others: list[str]) -> None:
    total = sum(outcome.areas.values())
    rows = [[label, f"{area:,}", f"{area / total:.1%}"] for label, area in outcome.areas.items()]
    shown = [row for number, row in enumerate(rows) if number < outcome.n_classes or row[1] != "0"]
    console.print_table(["label", "pixels", "share"], shown)
    files = ["map.png", "labels.png", "probabilities.tif", "areas.csv"]
    files += [{"geojson": "regions.geojson", "ome-tiff": "labels.ome.tif"}[name] for name in others]
    console.print_result(f"Map: {output / 'overlay.png'}, {', '.join(files)}")
    for sentence in outcome.missing[:_SHOWN]:
        typer.echo(f"Could not be mapped: {sentence}", err=True)
    if len(outcome.missing) > _SHOWN:
        typer.echo(f"... and {len(outcome.missing) - _SHOWN} more", err=True)
