"""What all tests share: one seed, one thread, and examples of hypothesis that are the same in every run."""

from __future__ import annotations

import random

import hypothesis
import numpy as np
import pytest
import torch

hypothesis.settings.register_profile(
    "fixed", derandomize=True, deadline=None, database=None
)
hypothesis.settings.load_profile("fixed")
torch.set_num_threads(1)  # the tensors are small: threads only get in each other's way


@pytest.fixture(autouse=True)
def _seeded() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
