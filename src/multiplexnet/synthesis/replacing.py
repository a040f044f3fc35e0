"""A file that is written anew is there as a whole, before and after."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

__all__ = ["in_place_of"]


@contextmanager
def in_place_of(
    path: Path, is_kept: Callable[[], bool] = lambda: False
) -> Iterator[Path]:
    """The draft of a file, which takes its place if all goes well, and else is removed.

    Each has a name of its own: two programs that write the same file do not write into each other's draft.
    Links are followed, and what is no plain file, such as a pipe, is written itself.

    Args:
        path: of the file.
        is_kept: whether the draft takes its place where something goes wrong, too, because what is in it is whole.
    """
    own = Path(os.path.realpath(path))
    if own.exists() and not own.is_file():
        yield own
        return
    draft = own.with_name(f".{own.name}-{uuid4().hex[:8]}.part")
    try:
        try:
            with _named(path, draft):
                yield draft
        except BaseException:
            if is_kept():
                os.replace(draft, own)
            raise
        os.replace(draft, own)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _named(path: Path, draft: Path) -> Iterator[None]:
    """What the system says of the draft, said of the file."""
    try:
        yield
    except OSError as error:
        if error.filename is not None and Path(error.filename) == draft:
            error.filename = str(path)
            if error.errno == errno.ENOENT:
                error.strerror = (
                    f"{error.strerror}: make the folder {path.parent} first"
                )
        raise
