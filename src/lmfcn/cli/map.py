"""`lmfcn map`: what is where in an image of any size."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from lmfcn.cli.console import Teller
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
        int | None, Option(metavar="PIXELS", help="Side of windows; by default the model's, or 64.")
    ] = None,
    stride: Annotated[int, Option(metavar="PIXELS", help="From one window to the next.")] = 16,
    reject: Annotated[float, Option(metavar="PROBABILITY", help="Show no label that is less probable.")] = 0.0,
    level: Annotated[int, Option(help="Resolution in the file; 0 is the finest.")] = 0,
    resolution: Annotated[float | None, Option(metavar="MICROMETRES", help="Per pixel, instead of --level.")] = None,
    scale: Annotated[float, Option(help="Enlarge or reduce the image by this factor.")] = 1.0,
    tissue_mask: Annotated[
        bool | None, Option("--tissue-mask/--no-tissue-mask", help="Pass over glass; in whole slides by default.")
    ] = None,
    reader: Annotated[str, Option(help="auto, plain, tiff or openslide.")] = "auto",
    jobs: Annotated[
        int | None, Option("--jobs", "-j", min=1, help="Processes on this machine, each with one thread.")
    ] = None,
    scheduler: Annotated[str | None, Option(metavar="ADDRESS", help="Of a dask cluster that does the work.")] = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Map which texture is where in an image, and how much there is of each.

    A window slides over the image and gets the label that the model would give to it if it were cut out. Writes
    overlay.png and map.png to look at, labels.png (a pixel per window), probabilities.tif, areas.csv and map.json.
    Images of any size go through in blocks; interrupted, the same command goes on. Ends with code 1 if a part of the
    image could not be mapped.
    """
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
    teller = Teller(quiet)
    outcome = run(request, jobs=jobs, scheduler=scheduler, verbose=not quiet, tell=teller.note)
    _tell(teller, outcome, output)
    raise typer.Exit(1 if outcome.missing else 0)


def _tell(teller: Teller, outcome: "MapOutcome", output: Path) -> None:
    total = sum(outcome.areas.values())
    rows = [[label, f"{area:,}", f"{area / total:.1%}"] for label, area in outcome.areas.items()]
    shown = [row for number, row in enumerate(rows) if number < outcome.n_classes or row[1] != "0"]
    teller.table(["label", "pixels", "share"], shown)
    teller.say(f"Map: {output / 'overlay.png'}, map.png, labels.png, probabilities.tif, areas.csv")
    for sentence in outcome.missing[:_SHOWN]:
        typer.echo(f"Could not be mapped: {sentence}", err=True)
    if len(outcome.missing) > _SHOWN:
        typer.echo(f"... and {len(outcome.missing) - _SHOWN} more", err=True)
