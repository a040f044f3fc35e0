"""Workers as the server sees them: asked one question at a time, ended when one takes too long, and replaced."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from multiplexnet.playground.worker import LARGEST_ANSWER

__all__ = ["USUAL", "Limits", "Worker"]

STARTING_SECONDS = 60
LATE = (
    f"the process that is asked was not ready within {STARTING_SECONDS} seconds: this machine is busy. "
    "Reload the page to ask again"
)
BROKEN = (
    "memory",
    "unexpected",
)  # after such an error a worker is not trusted any more


@dataclass(frozen=True)
class Limits:
    """What one question may cost.

    Args:
        seconds: of work; the time in which others wait for their turn is not counted.
        megabytes: on top of what the libraries need.
        waiting: the most questions that may wait for one worker.
    """

    seconds: float = 10.0
    megabytes: int = 2048
    waiting: int = 8


USUAL = Limits()


class Worker:
    """One process, and the questions that wait for it.

    Args:
        kind: which questions it answers, a key of ``multiplexnet.playground.questions.ANSWERS``.
        limits: what each may cost.
    """

    def __init__(self, kind: str, limits: Limits) -> None:
        self.kind = kind
        self.limits = limits
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._starting: asyncio.Task[Process] | None = None

    def start(self) -> None:
        """Start the process; it gets ready while others do something else."""
        self._starting = asyncio.create_task(self._started())

    async def stop(self) -> None:
        """End the process, whatever it is doing."""
        starting = self._starting
        self._starting = None
        if starting is None:
            return
        if not starting.done():
            starting.cancel()
        try:
            process = await starting
        except (asyncio.CancelledError, OSError, TimeoutError):
            return
        await _ended(process)

    async def ask(self, question: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The answer; an error as plain data if there is none in time. Who stops waiting ends the work as well."""
        if self._waiting >= self.limits.waiting:
            return _error("busy", "too many questions at a time: wait a moment")
        self._waiting += 1
        try:
            async with self._turn:
                return await self._asked(
                    json.dumps({"question": question, "fields": fields})
                )
        finally:
            self._waiting -= 1

    async def _asked(self, line: str) -> dict[str, Any]:
        answer: dict[str, Any] | None = None
        try:
            try:
                process = await self._ready()
            except TimeoutError:
                return _error("starting", LATE)
            answer = await asyncio.wait_for(
                _exchanged(process, line), self.limits.seconds
            )
            return answer
        except TimeoutError:
            return _error(
                "time",
                f"no answer within {self.limits.seconds:g} seconds: the rules have too many cases for the playground. "
                "Split them, or raise the limit with --seconds",
            )
        except (OSError, ValueError, EOFError):
            return _error(
                "memory",
                "the process that was asked has ended, most likely because it needed more than "
                f"{self.limits.megabytes} MB of memory",
            )
        finally:
            if answer is None or answer.get("error", {}).get("kind") in BROKEN:
                await asyncio.shield(self._replaced())

    async def _ready(self) -> Process:
        if self._starting is None:
            self.start()
        assert self._starting is not None
        return await asyncio.shield(self._starting)

    async def _replaced(self) -> None:
        await self.stop()
        self.start()

    async def _started(self) -> Process:
        command = [
            sys.executable,
            "-m",
            "multiplexnet.playground.worker",
            self.kind,
            str(self.limits.megabytes),
        ]
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, env=environment, limit=2 * LARGEST_ANSWER
        )
        try:
            await asyncio.wait_for(_line(process), STARTING_SECONDS)
        except BaseException:
            await _ended(process)
            raise
        return process


async def _exchanged(process: Process, line: str) -> dict[str, Any]:
    assert process.stdin is not None
    process.stdin.write(line.encode() + b"\n")
    await process.stdin.drain()
    return await _line(process)


async def _line(process: Process) -> dict[str, Any]:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise EOFError
    answer: dict[str, Any] = json.loads(line)
    return answer


async def _ended(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": message}}
