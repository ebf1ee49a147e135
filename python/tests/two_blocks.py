# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""A model of two blocks and its batches, for tests of calibration. They are fixtures."""
import pytest

torch = pytest.importorskip("torch")


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (torch.nn.Linear(64, 64, bias=False) for _ in range(3))
        self.o_proj = torch.nn.Linear(64, 64, bias=False)

    def forward(self, x):
        return self.o_proj(torch.tanh(self.q_proj(x) * self.k_proj(x)) + self.v_proj(input=2 * x))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Block() for _ in range(2))
        self.lm_head = torch.nn.Linear(64, 8, bias=False)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(x)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model().to(torch.bfloat16)


@pytest.fixture
def batches():
    torch.manual_seed(1)
    return [torch.randn(3, 5, 64, dtype=torch.bfloat16) for _ in range(4)]
