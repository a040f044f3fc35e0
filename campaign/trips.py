"""Layers that went through memory, files and other hands: the same bits afterwards, or an exception of our own."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from campaign.subject import Finding, Given, Subject
from multiplexnet.errors import MultiplexError
from multiplexnet.layer.multiplexer import Multiplexer

__all__ = ["round_trips"]

COMBINATIONS = 4
EACH = 6
Trip = Callable[[Subject], Multiplexer]


def round_trips(subject: Subject) -> Iterator[Finding]:
    """Every trip, each with the same rows."""
    given = subject.extreme_inputs(COMBINATIONS, EACH)
    if subject.sentence.inputs and not given:
        return
    expected = list(
        subject.answers(subject.best, subject.raw(COMBINATIONS * EACH), given)
    )
    for name, trip in TRIPS.items():
        check = f"round trip: {name}"
        if name == "pickle" and subject.sentence.calls:
            continue  # the campaign's functions are lambdas
        try:
            mux = trip(subject).eval()
            found = [_answer(mux, raw, known) for _, raw, known in expected]
        except MultiplexError:
            yield Finding(check)
            continue
        except Exception as error:
            yield Finding(check, f"it ends in {type(error).__name__}: {error}")
            continue
        yield Finding(
            check,
            "".join(_different(*pair) for pair in zip(expected, found, strict=True))[
                :300
            ],
        )


def _answer(mux: Multiplexer, raw: Tensor, given: Given) -> Tensor:
    answer: Tensor = mux(raw, **given).best()
    return answer


def _different(expected: tuple[Tensor, Tensor, Given], found: Tensor) -> str:
    x, raw, _ = expected
    if x.dtype == found.dtype and torch.equal(x, found):
        return ""
    row = int((x != found).any(-1).nonzero()[0, 0])
    return f"the raw row {raw[row].tolist()} gives {found[row].tolist()}, before {x[row].tolist()}. "


# --- the trips ------------------------------------------------------------------------------------------------------


@contextmanager
def _memory_of_others() -> Iterator[None]:
    """Memory that is handed out uninitialised holds NaN and largest integers, so that nothing is right by luck."""
    before = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only_warned)


def _emptied(mux: Multiplexer) -> Multiplexer:
    with _memory_of_others():
        return mux.to_empty(device="cpu")


def _rebuilt(subject: Subject) -> Multiplexer:
    return Multiplexer.from_compiled(
        subject.mux.rules, subject.mux.compiled, **subject.options
    )


def _from_meta(subject: Subject) -> Multiplexer:
    with torch.device("meta"):
        return _rebuilt(subject)


def _loaded(mux: Multiplexer, subject: Subject, *, assign: bool) -> Multiplexer:
    mux.load_state_dict(subject.mux.state_dict(), assign=assign)
    return mux


def _assigned(subject: Subject) -> Multiplexer:
    """Built on the meta device and never moved: ``assign=True`` alone has to do, or to say that it does not."""
    return _loaded(_from_meta(subject), subject, assign=True)


TRIPS: Mapping[str, Trip] = {
    "deepcopy": lambda subject: copy.deepcopy(subject.mux),
    "pickle": lambda subject: pickle.loads(pickle.dumps(subject.mux)),
    "from_compiled": _rebuilt,
    "from_state": lambda subject: Multiplexer.from_state(
        subject.mux.state_dict(), functions=subject.functions, boxes=subject.mux.boxes
    ),
    "to_empty": lambda subject: _emptied(copy.deepcopy(subject.mux)),
    "to_empty, loaded": lambda subject: _loaded(
        _emptied(copy.deepcopy(subject.mux)), subject, assign=False
    ),
    "to_empty, loaded by assigning": lambda subject: _loaded(
        _emptied(copy.deepcopy(subject.mux)), subject, assign=True
    ),
    "meta, to_empty": lambda subject: _emptied(_from_meta(subject)),
    "meta, to_empty, loaded": lambda subject: _loaded(
        _emptied(_from_meta(subject)), subject, assign=False
    ),
    "meta, to_empty, loaded by assigning": lambda s: _loaded(
        _emptied(_from_meta(s)), s, assign=True
    ),
    "meta, loaded by assigning": _assigned,
}
