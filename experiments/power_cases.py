"""The IEEE cases of power.py, out of pandapower: ``python experiments/power_cases.py`` writes power_cases.json.

It needs ``pip install pandapower`` in an environment of its own, and is run once: power.py reads the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandapower.networks as networks
from pandapower.converter.pypower.to_ppc import to_ppc

CASES = {"14": "case14", "30": "case30", "57": "case57", "118": "case118"}
UNLIMITED = 9000.0
"""Ratings of branches from here on stand for «none»: 9,900 MVA in three of the files."""


def decimal(value: float) -> float:
    """A number as the case has it, without the rounding of conversions."""
    return round(float(value), 6)


def case(name: str) -> dict[str, Any]:
    """Buses are numbers from 0; loads and generators in MW, reactances in per unit, costs c1 p + c2 p²."""
    network = getattr(networks, name)()
    tables = to_ppc(network, mode="opf", init="flat")
    bus, branch = tables["bus"], tables["branch"]
    generators, costs = tables["gen"], tables["gencost"]
    assert (branch[:, 10] == 1).all(), "every branch is in service"
    assert (costs[:, 3] == 3).all(), "costs are quadratic"
    assert not bus[:, 4].any(), "no shunt takes power"
    return {
        "buses": len(bus),
        "loads": [
            [int(row[0]), decimal(row[2])] for row in bus if decimal(row[2]) != 0
        ],
        "generators": [
            {
                "bus": int(row[0]),
                "least": decimal(row[9]),
                "most": decimal(row[8]),
                "c1": decimal(cost[5]),
                "c2": decimal(cost[4]),
            }
            for row, cost in zip(generators, costs, strict=True)
        ],
        "branches": [
            {
                "from": int(row[0]),
                "to": int(row[1]),
                "x": decimal(row[3] * (row[8] or 1)),
                "limit": decimal(row[5]) if row[5] < UNLIMITED else None,
            }
            for row in branch.real
        ],
    }


if __name__ == "__main__":
    path = Path(__file__).with_suffix(".json")
    found = {number: case(name) for number, name in CASES.items()}
    path.write_text(json.dumps(found) + "\n", encoding="utf-8")
