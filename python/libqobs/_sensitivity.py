# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""How sensitive a torch model is to errors of the weights of its layers, by gradients of the log likelihood of labels
that it draws itself."""
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from . import _library as c
from ._arguments import integer
from ._hooks import Expert
from ._names import unwrapped

HALVES = ("sensitivity_a", "sensitivity_b")


class Sensitivity:
    """While it is entered, each call of the model is followed by a backward pass. It calls receive(name, row) for each
    module and sequence, row float32 of shape (1, rows) on the CPU: "<module>.sensitivity_a" for the first sequence and
    every second one after it, "<module>.sensitivity_b" for the others. Parameters get no gradients."""

    def __init__(self, model: Any, modules: dict[str, Any], receive: Callable[[str, Any], None], seed: int):
        self._model, self._receive = unwrapped(model), receive
        self._modules = {name: m for name, m in modules.items() if not isinstance(m, Expert)}
        self._seed = integer(seed, "seed", 0, 1 << 63)
        self._handles: list[Any] = []
        self._frozen: list[Any] = []
        self._before = False    # gradients were on before the call
        self._forward = False   # the model runs
        self._batch, self._sequence = 1, 0
        self._tap = _tap_of(sys.modules["torch"])
        self.backward = False   # layers run again if activations are checkpointed; their inputs have been seen

    def enter(self) -> None:
        self._frozen = [p for p in self._model.parameters() if p.requires_grad]
        for parameter in self._frozen:
            parameter.requires_grad_(False)
        for name, module in self._modules.items():
            self._handles.append(module.register_forward_hook(self._hook_of(name), with_kwargs=True))
        self._handles.append(self._model.register_forward_pre_hook(self._start))
        self._handles.append(self._model.register_forward_hook(self._end, with_kwargs=True, always_call=True))

    def leave(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        for parameter in self._frozen:
            parameter.requires_grad_(True)
        self._frozen = []
        if self._forward:  # the call of the model has ended with an exception such as KeyboardInterrupt
            self._forward = False
            sys.modules["torch"].set_grad_enabled(self._before)

    def _start(self, model: Any, args: tuple) -> None:
        torch = sys.modules["torch"]
        if torch.is_inference_mode_enabled():
            raise c.InvalidArgumentError("sensitivity: torch.inference_mode has no gradients, torch.no_grad is allowed")
        self._before, self._forward = torch.is_grad_enabled(), True
        torch.set_grad_enabled(True)

    def _end(self, model: Any, args: tuple, kwargs: dict, output: Any) -> None:
        torch = sys.modules["torch"]
        if not self._forward:
            return
        self._forward = False
        try:
            if output is not None:  # the call has succeeded
                self._run_backward(_logits(output), kwargs.get("attention_mask"))
        finally:
            self.backward = False
            torch.set_grad_enabled(self._before)

    def _run_backward(self, logits: Any, mask: Any) -> None:
        torch = sys.modules["torch"]
        log_p = logits.float().log_softmax(-1)
        generator = torch.Generator(device=log_p.device).manual_seed(self._seed + self._sequence)
        labels = torch.multinomial(log_p.detach().exp().flatten(0, -2), 1, generator=generator)
        chosen = log_p.gather(-1, labels.view(*log_p.shape[:-1], 1)).squeeze(-1)
        if mask is not None and mask.shape == chosen.shape:
            chosen = chosen * mask
        self._batch = logits.shape[0] if logits.ndim > 2 else 1
        self.backward = True
        chosen.sum().backward()
        self._sequence += self._batch

    def _hook_of(self, name: str) -> Any:
        def hook(module: Any, args: tuple, kwargs: dict, output: Any) -> Any:
            if not self._forward and not self.backward:
                return None
            if not output.requires_grad:
                output = output.detach().requires_grad_(True)
            return self._tap.apply(output, args[0] if args else kwargs["input"], name, self)
        return hook

    def take(self, name: str, gradient: Any, x: Any) -> None:
        """Adds |g_i| / |x| of each sequence, g_i the gradient of row i of the weight."""
        count = self._batch if gradient[..., 0].numel() % self._batch == 0 else 1  # 1: they cannot be separated
        gradients = gradient.reshape(count, -1, gradient.shape[-1]).float()
        inputs = x.reshape(count, -1, x.shape[-1]).float()
        for i in range(count):
            norm = inputs[i].norm()
            row = (gradients[i].T @ inputs[i]).norm(dim=1)
            row = row / norm if norm > 0 else row
            self._receive(f"{name}.{HALVES[(self._sequence + i) % 2]}", row[None].cpu())


def _tap_of(torch: Any) -> Any:
    """A function of torch that returns its argument and hands out its gradient. It saves the inputs of a layer as other
    functions do, so that they are not kept where activations are checkpointed."""
    class Tap(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, output: Any, x: Any, name: str, to: Sensitivity) -> Any:
            ctx.save_for_backward(x.detach())
            ctx.name, ctx.to = name, to
            return output.view_as(output)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            ctx.to.take(ctx.name, gradients[0], ctx.saved_tensors[0])
            return gradients[0], None, None, None
    return Tap


def _logits(output: Any) -> Any:
    """The logits among the results of a model: the member of that name, the first one, or the result itself."""
    found = getattr(output, "logits", None)
    if found is None:
        found = output[0] if isinstance(output, (tuple, list)) else output
    torch = sys.modules["torch"]
    if not isinstance(found, torch.Tensor) or found.ndim < 2 or not found.requires_grad:
        raise c.InvalidArgumentError("sensitivity: the model returns no logits of shape (..., vocabulary) that depend "
                                     "on the chosen layers")
    return found
