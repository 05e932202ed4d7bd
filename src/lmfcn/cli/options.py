"""Options that several commands share, and parameter files in TOML."""

import json
import re
import shlex
import tomllib
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args, get_origin, get_type_hints

import typer
from typer import Argument, Context, Option

from lmfcn.util.files import write_text

if TYPE_CHECKING:
    from lmfcn.data.framing import SizeFit


class ConfigError(ValueError):
    """A mistake in a parameter file; its sentence names options as the file does."""


_OPTIONS = {
    "checkpoint_dir": "--checkpoint",
    "random_state": "--seed",
    "n_jobs": "--jobs",
    "validation_fraction": "--holdout",
    "false_alarms": "--none-of-these",
    "group_column": "--groups",
    "coverage": "--set",
    **{name: f"--{name}" for name in ("color", "size", "network", "weights", "epochs", "strategy", "recipe", "device")},
    **{name: f"--{name}" for name in ("augmentation", "passes", "window", "stride", "reject")},
    **{
        name: f"--{name.replace('_', '-')}"
        for name in ("refit_epochs", "latent_dim", "class_weight", "learning_rate", "batch_size", "crop_size")
    },
}
"""Options of the command line by the name of the Python parameter."""

_PHRASES = {
    "call fit again with the same data, parameters and": "run the same command again with",
    " or a lmfcn.Recipe": "",
}
_WITH_VALUE = re.compile(
    r"""(?<![\w.'"/-])(?P<name>[a-z_]+)=(?:'(?P<single>[^']*)'|"(?P<double>[^"]*)"|(?P<plain>[^\s'",;()]*[^\s'",;().]))"""
    r"""(?:\ or\ ['"](?P<other>\w+)['"])?"""
)
_BARE = re.compile(r"""(?<![\w.'"/-])([a-z]+(?:_[a-z]+)+)(?![\w'"/=(])""")
_SUBJECT = re.compile(r"^([a-z]+)(?= must )")
"""A parameter whose name is also an everyday word, at the start of a sentence about it."""


def name_options(text: str, known: Collection[str] = tuple(_OPTIONS.values())) -> str:
    """Return a sentence for Python users as one for users of the command line, with the options that are known there.

    Examples
    --------
    >>> name_options("Give color='grey' or 'rgb', or another checkpoint_dir.")
    'Give --color grey or rgb, or another --checkpoint.'
    """
    for phrase, ours in _PHRASES.items():
        text = text.replace(phrase, ours)

    def with_value(found: re.Match[str]) -> str:
        option = _OPTIONS.get(found["name"])
        if option is None or option not in known:
            return found[0]
        value = next(found[kind] for kind in ("single", "double", "plain") if found[kind] is not None)
        return f"{option} {shlex.quote(value)}" + (f" or {found['other']}" if found["other"] else "")

    def bare(found: re.Match[str]) -> str:
        option = _OPTIONS.get(found[1])
        return option if option is not None and option in known else found[0]

    return _SUBJECT.sub(bare, _BARE.sub(bare, _WITH_VALUE.sub(with_value, text)))


def check_exists(context: Context, path: Path) -> Path:
    """Refuse a missing file at once, before packages are loaded that take seconds."""
    if not context.resilient_parsing and not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    return path


def check_all_exist(context: Context, paths: list[Path]) -> list[Path]:
    """Refuse missing files at once."""
    return [check_exists(context, path) for path in paths]


Data = Annotated[
    Path,
    Argument(
        metavar="DATA",
        callback=check_exists,
        help="Folder of class folders, table (.csv, .tsv), list (.txt) or .npz.",
    ),
]
ModelFile = Annotated[
    Path, Argument(metavar="MODEL", callback=check_exists, help="File that lmfcn train wrote, such as model.lmfcn.")
]
ModelFiles = Annotated[
    list[Path],
    Argument(metavar="MODEL", callback=check_all_exist, help="Files that lmfcn train wrote; the first is the default."),
]
Groups = Annotated[str | None, Option("--groups", metavar="COLUMN", help="Column with groups that stay together.")]
SkipBad = Annotated[bool, Option("--skip-bad", help="Leave out files that cannot be read.")]
Size = Annotated[int | None, Option(min=8, metavar="PIXELS", help="Side of all images; by default as they are.")]
Fit = Annotated[
    str | None, Option(metavar="HOW", help="How --size is reached: crop (cuts the longer side), pad or stretch.")
]
Color = Annotated[str, Option(metavar="KIND", help="keep, grey or rgb: for images of mixed kinds.")]
GalleryFile = Annotated[
    Path | None, Option(metavar="FILE", help="Gallery of training images; by default the one beside MODEL.")
]
NoneOfThese = Annotated[
    float | None,
    Option(
        "--none-of-these",
        metavar="SHARE",
        help="No label for what looks like none of the classes; about this share of the others gets none, too.",
    ),
]
Device = Annotated[str, Option(metavar="NAME", help="Device: auto, cpu, cuda, mps, ...")]
GroupsFrom = Annotated[
    str | None,
    Option(
        "--groups-from",
        metavar="PATTERN",
        help=r"Regular expression for file names; what its brackets hold is the group, as in 'exp\d+_num_(\d+)'.",
    ),
]
SplitDuplicates = Annotated[
    bool,
    Option("--split-duplicates", help="Near-identical images may be on both sides of a split: accuracies flatter."),
]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress and no notes; only results and errors.")]
AsJson = Annotated[bool, Option("--json", help="One JSON object on standard output, and nothing else there.")]


def size_fit(size: int | None, fit: str | None) -> "SizeFit":
    """Return how images get the size that was asked for; refuse a way without a size."""
    from lmfcn.data.framing import SIZE_FITS
    from lmfcn.util.checks import check_choice

    if fit is None:
        return "crop"
    check_choice("--fit", fit, tuple(SIZE_FITS))
    if size is None:
        raise ValueError("--fit says how images get the size of --size; give --size too.")
    return cast("SizeFit", fit)


Threads = Annotated[
    int | None,
    Option(min=1, metavar="N", help="Threads to compute with; by default as many as there are idle processors."),
]


def compute_with(context: Context, threads: int | None) -> int:
    """Compute with so many threads until the command ends, or with as many as are free; return their number.

    The number is an option of this call from now on, which `save_config` writes: bits depend on it.
    """
    from lmfcn.compute.resources import free_threads, use_threads

    count = free_threads() if threads is None else threads
    context.params["threads"] = count
    context.with_resource(use_threads(count))
    return count


def threads_beside_workers(threads: int | None, jobs: int | None, scheduler: str | None) -> int | None:
    """Return the threads of this process; workers always compute with one each, so that nothing depends on them."""
    if jobs is None and scheduler is None:
        return threads
    if threads is not None:
        raise ValueError("With --jobs or --scheduler every worker has one thread; leave out --threads.")
    return 1


_NOT_IN_FILES = ("config", "save_config_to", "help")


def read_config(path: Path, command: str, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked options of a command from a file.

    Parameters
    ----------
    path : Path
        TOML file. Options are at the top level, or in a table with the name of the command.
    command : str
    kinds : mapping
        Type of each option by name.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a TOML file: {error}.") from error
    tables = {name: value for name, value in content.items() if isinstance(value, dict)}
    found = {name: value for name, value in content.items() if name not in tables} | tables.get(command, {})
    options = {name.replace("-", "_"): value for name, value in found.items()}
    for name, value in options.items():
        if name not in kinds:
            near = get_close_matches(name, kinds, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(kinds))}."
            raise ConfigError(f"{path}: lmfcn {command} has no option {name!r}; {hint}")
        if not _fits(value, kinds[name]):
            raise ConfigError(f"{path}: {name} must be {_kind_name(kinds[name])}, got {value!r}.")
    return options


def write_config(path: Path, command: str, options: Mapping[str, Any]) -> None:
    """Write options as a TOML table, without those that are None."""
    lines = [f"{name} = {_toml(value)}" for name, value in options.items() if value is not None]
    write_text(path, "\n".join([f"[{command}]", *lines, ""]))


def save_config(context: typer.Context, path: Path | None) -> None:
    """Write all options of this call, if a path is given; `--config` of the same command reads them."""
    if path is None:
        return
    names = _names(context)
    options = {name: context.params[parameter] for name, parameter in names.items()}
    write_config(path, str(context.command.name), options)


def _use_config(context: typer.Context, path: Path | None) -> Path | None:
    """Use the options in a file as defaults of the command line."""
    if path is None or context.resilient_parsing:
        return path
    names = _names(context)
    hints = get_type_hints(context.command.callback) if context.command.callback else {}
    kinds = {name: hints[parameter] for name, parameter in names.items()}
    found = read_config(path, str(context.command.name), kinds)
    context.default_map = {names[name]: value for name, value in found.items()}
    return path


def _names(context: typer.Context) -> dict[str, str]:
    """Return the Python parameter of each long option or argument."""
    names = {}
    for parameter in context.command.params:
        long = next((option for option in parameter.opts if option.startswith("--")), str(parameter.name))
        if parameter.name not in _NOT_IN_FILES:
            names[long.removeprefix("--").replace("-", "_")] = str(parameter.name)
    return names


def _fits(value: Any, kind: Any) -> bool:
    if _is_list(kind):
        return isinstance(value, list) and all(isinstance(entry, str) for entry in value)
    kinds = _plain_kinds(kind)
    if bool in kinds or isinstance(value, bool):
        return isinstance(value, bool) and bool in kinds
    if float in kinds:
        return isinstance(value, int | float)
    return isinstance(value, int) if int in kinds else isinstance(value, str)


def _kind_name(kind: Any) -> str:
    if _is_list(kind):
        return "a list of texts"
    kinds = _plain_kinds(kind)
    names = {bool: "true or false", float: "a number", int: "a whole number"}
    return next((name for one, name in names.items() if one in kinds), "a text in quotes")


def _is_list(kind: Any) -> bool:
    return any(get_origin(one) is list for one in (kind, *get_args(kind)))


def _plain_kinds(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) or (kind,)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    # TOML has the same escapes as JSON; JSON only leaves out the last control character.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        is_eager=True,
        callback=_use_config,
        help="TOML file with options of this command; the command line has priority.",
    ),
]
SaveConfig = Annotated[
    Path | None, typer.Option("--save-config", metavar="FILE", help="Also write all options to FILE.")
]
