import re

from lmfcn.benchmark.paper.reproduced_tables import as_latex, escape_latex


def test_every_letter_with_a_meaning_is_escaped():
    assert escape_latex(r"a\b") == r"a\textbackslash{}b"
    assert escape_latex("5 % & $x_1^2$ #{~}") == (r"5 \% \& \$x\_1\textasciicircum{}2\$ \#\{\textasciitilde{}\}")
    assert escape_latex("0.9 ± 0.1 “so”") == r"0.9 $\pm$ 0.1 ``so''"


def test_a_table_is_well_formed_and_names_each_group_once():
    rows = [["A & B", "x_1", "1", "2"], ["A & B", "y", "3", "4"], ["C", "z", "5", "50 %"]]
    text = as_latex(rows, ["images", "method", "test, paper", "test, ours"], "Half & half.", "tab:one")
    lines = text.splitlines()
    assert r"\caption{Half \& half.}" in lines
    assert r"\label{tab:one}" in lines
    assert r"\begin{tabular}{llrr}" in lines
    assert r"images & method & \multicolumn{2}{c}{test} \\" in lines
    assert r"\cmidrule(lr){3-4}" in lines
    assert r" &  & paper & ours \\" in lines
    assert r"A \& B & x\_1 & 1 & 2 \\" in lines
    assert r" & y & 3 & 4 \\" in lines
    assert r"C & z & 5 & 50 \% \\" in lines
    assert [lines.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 2, 1]
    begun, ended = re.findall(r"\\begin\{(.+?)\}", text), re.findall(r"\\end\{(.+?)\}", text)
    assert begun == ended[::-1] == ["table*", "tabular"]
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
