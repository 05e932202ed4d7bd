"""Why a model decides as it does, and which labels to doubt."""
