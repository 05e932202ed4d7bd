"""`lmfcn serve` from its arguments on; the real process is started in test_load.py."""

import socket
import sys

import httpx
import pytest

from lmfcn import __main__ as main
from lmfcn.explain.gallery import load_gallery
from lmfcn.serve import server as running
from serving import running as serving


@pytest.fixture
def serve(monkeypatch, capsys):
    """Run the command; return its exit code, what it printed, and what it would have served."""
    served = []

    def serve_nothing(app, listening, *, open_at, announce, **_):
        served.append((app, listening, open_at))
        announce()

    monkeypatch.setattr(running, "run", serve_nothing)
    monkeypatch.setattr(running, "share_threads", lambda limits, _: limits)  # it is for the whole process

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["lmfcn", "serve", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main.main()
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err, served

    return run


def test_the_command_says_where_the_page_is_and_finds_the_gallery(serve, fitted):
    code, out, err, served = serve(fitted.path, "--port", 0, "--open")
    assert (code, err) == (0, "")
    assert out.startswith("32 training images in the gallery.\nnoise.lmfcn is at http://127.0.0.1:")
    ((app, _, opened),) = served
    assert [predictor.name for predictor in app.state.service.models] == ["noise.lmfcn"]
    assert opened in out


def test_a_network_without_a_token_is_warned_of(serve, fitted):
    _, _, err, _ = serve(fitted.path, "--host", "0.0.0.0", "--port", 0)
    assert err.startswith("Warning: everyone who can reach this machine can use the model")
    _, out, err, _ = serve(fitted.path, "--host", "0.0.0.0", "--port", 0, "--token", "open sesame")
    assert err == ""
    assert "The page asks for the token." in out
    assert "open sesame" not in out


def test_a_model_without_a_gallery_is_served_too(serve, fitted, tmp_path):
    (tmp_path / "alone.lmfcn").write_bytes(fitted.path.read_bytes())
    code, out, _, _ = serve(tmp_path / "alone.lmfcn", "--port", 0)
    assert code == 0
    assert "No gallery beside the model: the page shows no training images." in out


def test_what_cannot_be_served_ends_with_one_sentence(serve, fitted, tmp_path):
    (tmp_path / "text.lmfcn").write_text("hello, I am not a model")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for arguments, reason in [
            ([tmp_path / "none.lmfcn"], "none.lmfcn does not exist."),
            ([tmp_path / "text.lmfcn"], "is not in the safetensors format"),
            ([fitted.path, "--gallery", tmp_path / "none.gallery"], "No such file"),
            ([fitted.path, "--gallery", fitted.path], "is not a file of the kind 'lmfcn gallery'"),
            ([fitted.path, "--token", "short"], "A token needs at least 8 printable ASCII characters"),
            ([fitted.path, "--port", port], f"Cannot listen on 127.0.0.1, port {port}: Address already in use"),
            ([fitted.path, "--port", 70000], "--port"),
            ([fitted.path, "--max-files", 0], "--max-files"),
        ]:
            code, _, err, served = serve(*arguments)
            assert (code, served) == (2, [])
            assert reason in err.replace("\n", " "), err


def test_missing_packages_are_named(serve, fitted, monkeypatch):
    monkeypatch.setitem(sys.modules, "python_multipart", None)
    code, _, err, _ = serve(fitted.path)
    assert code == 2
    assert "The web page needs fastapi, uvicorn and python-multipart" in err
    assert "pip install 'lmfcn[serve]'" in err


def test_limits_and_names_reach_the_application(serve, fitted):
    options = ["--max-files", 3, "--max-megabytes", 2, "--max-megapixels", 0.5, "--allow-host", "lab.example"]
    _, _, _, ((app, _, _),) = serve(fitted.path, "--port", 0, *options)
    with serving(app) as address:
        limits = httpx.get(f"{address}model", headers={"Host": "lab.example"}).json()["limits"]
        refused = httpx.get(f"{address}model", headers={"Host": "evil.example"})
    assert limits == {"files": 3, "file_bytes": 2_000_000, "request_bytes": 8_000_000, "pixels": 500_000}
    assert refused.status_code == 400


def test_loopback_is_recognised():
    assert [running.is_loopback(host) for host in ("::1", "127.8.8.8", "LOCALHOST", "example.org", "::")] == [
        True, True, True, False, False,
    ]  # fmt: skip


def test_the_gallery_on_disk_is_that_of_the_model(fitted):
    assert len(load_gallery(fitted.path.with_suffix(".gallery"), fitted.model)) == 32
