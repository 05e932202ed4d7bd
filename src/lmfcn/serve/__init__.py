"""The local web page: a fitted model in a browser, and the same as JSON. Needs the extra `serve`."""

from types import ModuleType


def load_server() -> ModuleType:
    """Return the module that runs the page, or say what must be installed for it."""
    try:
        import python_multipart  # noqa: F401  (which FastAPI needs for uploads, but does not import by itself)

        from lmfcn.serve import server
    except ImportError as error:
        raise ImportError(
            f"The web page needs fastapi, uvicorn and python-multipart ({error});"
            " install them with: pip install 'lmfcn[serve]'."
        ) from error
    return server
