"""Tables for LaTeX, in the manner of the package booktabs."""

from collections.abc import Sequence
from itertools import groupby

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "±": r"$\pm$",
    "“": "``",
    "”": "''",
}


def escape_latex(text: str) -> str:
    r"""Return text that LaTeX prints as it is, with signs for ± and quotation marks.

    Examples
    --------
    >>> escape_latex("50 % of {A_1} ± 2")
    '50 \\% of \\{A\\_1\\} $\\pm$ 2'
    """
    return "".join(_ESCAPES.get(letter, letter) for letter in text)


def as_latex(rows: Sequence[Sequence[str]], headings: Sequence[str], caption: str, label: str) -> str:
    """Return a table whose first column names groups of rows, each once.

    Parameters
    ----------
    rows : sequence of sequences of str
    headings : sequence of str
        One per column; what follows a comma is set below what stands before it.
    caption, label : str
    """
    lines = [
        r"% Needs \usepackage{booktabs}.",
        r"\begin{table*}",
        r"\centering\scriptsize\setlength{\tabcolsep}{2pt}",
        rf"\caption{{{escape_latex(caption)}}}",
        rf"\label{{{label}}}",
        rf"\begin{{tabular}}{{ll{'r' * (len(headings) - 2)}}}",
        r"\toprule",
        *_headings(headings),
    ]
    for _, group in groupby(rows, key=lambda row: row[0]):
        lines.append(r"\midrule")
        for number, row in enumerate(group):
            lines.append(_line([row[0] if number == 0 else "", *row[1:]]))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table*}"]) + "\n"


def _headings(headings: Sequence[str]) -> list[str]:
    """Return two lines: what neighbouring columns share, once above them, and what each has of its own."""
    upper, ruled, column = [], [], 1
    for shared, group in groupby(headings, key=lambda heading: heading.partition(", ")[0]):
        n = len(list(group))
        title = escape_latex(shared)
        upper.append(rf"\multicolumn{{{n}}}{{c}}{{{title}}}" if n > 1 else title)
        ruled += [rf"\cmidrule(lr){{{column}-{column + n - 1}}}"] if n > 1 else []
        column += n
    lower = [heading.partition(", ")[2] for heading in headings]
    return [" & ".join(upper) + r" \\", "".join(ruled), _line(lower)]


def _line(entries: Sequence[str]) -> str:
    return " & ".join(escape_latex(entry) for entry in entries) + r" \\"
