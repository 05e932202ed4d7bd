def test_the_card_is_printed_or_written(command, model, tmp_path):
    code, out, err = command("card", model)
    assert code == 0, err
    assert out.startswith("---\nlibrary_name: lmfcn\n")
    code, printed, _ = command("card", model, "-o", tmp_path / "README.md", "--license", "mit")
    assert (code, printed) == (0, f"Card: {tmp_path / 'README.md'}\n")
    written = (tmp_path / "README.md").read_text()
    assert 'license: "mit"\n' in written
    assert written.replace('license: "mit"\n', "") == out
