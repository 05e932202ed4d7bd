"""A web server for one model: a page in the browser and a JSON interface. Needs the extra `serve`."""

from types import ModuleType


def load_server() -> ModuleType:
    """Return the module that runs the server; raise ImportError with advice if packages are missing."""
    try:
        import python_multipart  # noqa: F401  (FastAPI needs it for uploads, but imports it late)

        from lmfcn.serve import server
    except ImportError as error:
        raise ImportError(
            f"The web page needs fastapi, uvicorn and python-multipart ({error});"
            " install them with: pip install 'lmfcn[serve]'."
        ) from error
    return server
