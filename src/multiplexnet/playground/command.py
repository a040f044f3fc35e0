"""``multiplexnet playground``: the command that opens the page."""

from __future__ import annotations

from typing import Annotated

import typer

from multiplexnet.errors import install
from multiplexnet.tools.cli import BadInput, answering
from multiplexnet.tools.report_commands import app

__all__ = ["app", "playground"]


@app.command()
def playground(
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, help="Where to listen on this machine; 0: any free."
        ),
    ] = 8399,
    seconds: Annotated[
        float, typer.Option(min=1, help="The most that one question may take.")
    ] = 10.0,
    megabytes: Annotated[
        int, typer.Option(min=256, help="The most memory that one question may take.")
    ] = 2048,
    browser: Annotated[bool, typer.Option(help="Open the page.")] = True,
) -> None:
    """A page on this machine to type rules and see what they mean. Ctrl-C ends it."""
    with answering(False):
        try:
            from multiplexnet.playground.pool import Limits
            from multiplexnet.playground.server import serve
        except ModuleNotFoundError as error:
            missing = (error.name or "").split(".")[0]
            if missing not in ("starlette", "uvicorn"):
                raise
            raise BadInput(
                f"the playground needs {missing}: {install('playground')}"
            ) from None
        serve(
            port,
            limits=Limits(seconds=seconds, megabytes=megabytes),
            browser=browser,
            told=lambda address: print(
                f"playground: {address} (Ctrl-C ends it)", flush=True
            ),
        )
