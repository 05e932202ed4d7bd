"""`lmfcn map`: map the textures in an image of any size."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from lmfcn.cli.console import CommandConsole
from lmfcn.cli.options import Device, ModelFile, Quiet

if TYPE_CHECKING:
    from lmfcn.maps.run import MapOutcome

_SHOWN = 20


def map_image(
    model: ModelFile,
    image: Annotated[
        Path, typer.Argument(metavar="IMAGE", help="Plain image, tiled or pyramidal TIFF, or whole slide.")
    ],
    output: Annotated[Path, Option("--output", "-o", help="Folder for the map.")] = Path("map"),
    window: Annotated[
        int | None, Option(metavar="PIXELS", help="Side of a window; by default the model's image size, or 64.")
    ] = None,
    stride: Annotated[
        int | None,
        Option(metavar="PIXELS", help="Distance from one window to the next; 16, or more if the model needs it."),
    ] = None,
    reject: Annotated[float, Option(metavar="PROBABILITY", help="Show no label below this probability.")] = 0.0,
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
    if resolution is not None and (level != 0 or scale != 1.0):
        raise ValueError("--resolution chooses level and scale itself; leave out --level and --scale.")
    request = MapRequest(
        model, image, output, window, stride, View(reader, level, scale), resolution, tissue_mask, reject, device=device
    )
    console = CommandConsole(quiet)
    outcome = run(request, jobs=jobs, scheduler=scheduler, verbose=not quiet, announce=console.note)
    _print_result(console, outcome, output)
    raise typer.Exit(1 if outcome.missing else 0)


def _print_result(console: CommandConsole, outcome: "MapOutcome", output: Path) -> None:
    total = sum(outcome.areas.values())
    rows = [[label, f"{area:,}", f"{area / total:.1%}"] for label, area in outcome.areas.items()]
    shown = [row for number, row in enumerate(rows) if number < outcome.n_classes or row[1] != "0"]
    console.print_table(["label", "pixels", "share"], shown)
    console.print_result(f"Map: {output / 'overlay.png'}, map.png, labels.png, probabilities.tif, areas.csv")
    for sentence in outcome.missing[:_SHOWN]:
        typer.echo(f"Could not be mapped: {sentence}", err=True)
    if len(outcome.missing) > _SHOWN:
        typer.echo(f"... and {len(outcome.missing) - _SHOWN} more", err=True)
