"""Norms of the loss's derivatives with respect to the input, for penalties in training.

With l the cross-entropy of one input x and its label, and H its matrix of second derivatives with respect to x: how far
the loss can change within a ball of radius r is bounded by

    |l(x') - l(x)|  <=  ||grad l(x)||_2 r + K r^2 / 2,

K a Lipschitz constant of the gradient, for which ||H||_F at x stands in; and K bounds how far a gradient, read as an
explanation, can turn. So both norms are added to the loss in training. They are norms, as in the proposition; their
squares are offered beside them, which hurt outliers more and let small ones pass.

H is never built. For a random v of independent signs (Hutchinson), E ||H v||^2 = ||H||_F^2, without bias, and H v is
the gradient of (grad l . v), exact by differentiating twice. The root of the mean over probes is biased downwards, the
less the more probes: with one, the penalty is E ||H v||, at least ||H||_F / sqrt(2) (Latała and Oleszkiewicz 1994) and
at most ||H||_F (Jensen).

Two things to know:

- A network of rectifiers is piecewise linear: its logits have no second derivative wherever they have one, so all of H
  is that of softmax and cross-entropy, A' (diag(p) - p p') A with A the logits' Jacobian. It vanishes where the network
  is certain, and so does the gradient: both penalties can also be lowered by being certain, not only by being flat.
  They cannot see the kinks.
- Every row must stand for itself. The loss is summed over the batch before it is differentiated, which is right only if
  no row's logits depend on another row. Batch normalisation in train mode makes them: then the derivatives hold, as for
  any penalty on such networks, how an input changes the other rows' logits. In eval mode they do not.

Sources: Huang, Zhao, Jin and Huang, "SAFARI: versatile and efficient evaluations for robustness of interpretability"
(ICCV 2023), Sec. 6.5 and Proposition 1; Dombrowski, Anders, Müller and Kessel, "Towards robust explanations for deep
neural networks", Pattern Recognition 121 (2022), for H; Hutchinson, "A stochastic estimator of the trace of the
influence matrix for Laplacian smoothing splines", Communications in Statistics 18 (1989); Drucker and Le Cun,
"Improving generalization performance using double backpropagation", IEEE Transactions on Neural Networks 3 (1992), for
the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.errors import check, check_integer
from holdfast.records import set_fields


@dataclass(frozen=True, eq=False)
class InputDerivatives:
    """The loss of each row of a batch, differentiated by the row's input; both penalties share one of these.

    Its tensors keep their graph, so that what is made of them can be differentiated by the network's parameters.

    Raises `ArgumentError` when `inputs` do not require a gradient or `losses` are not one per input.

    >>> inputs = torch.tensor([[1.0, 2.0], [3.0, 0.0]], requires_grad=True)
    >>> derivatives = InputDerivatives(inputs.square().sum(dim=1), inputs)
    >>> derivatives.gradient_norms()
    tensor([4.4721, 6.0000], grad_fn=<...>)
    >>> derivatives.hessian_norms(1, torch.Generator())  # of diag(2, 2)
    tensor([2.8284, 2.8284], grad_fn=<...>)
    """

    losses: Tensor  # (N,), of the rows of `inputs`
    inputs: Tensor  # (N, ...), which `losses` were computed from
    gradient: Tensor = field(init=False, repr=False)  # (N, ...), each row of its own loss

    def __post_init__(self) -> None:
        check(self.inputs.requires_grad, "inputs", "a tensor that requires a gradient", "one that does not")
        shape = tuple(self.losses.shape)
        check(shape == self.inputs.shape[:1], "losses", f"one for each of {len(self.inputs)} inputs", shape)
        (gradient,) = torch.autograd.grad(self.losses.sum(), self.inputs, create_graph=True)
        set_fields(self, gradient=gradient)

    def gradient_norms(self, *, squared: bool = False) -> Tensor:
        """`||grad l||_2` of each row, or its square; `(N,)`. Where it is 0, its derivative is taken as 0."""
        return _norms(self.gradient, squared)

    def hessian_norms(self, probes: int, generator: torch.Generator, *, squared: bool = False) -> Tensor:
        """An estimate of `||H||_F` of each row from `probes` products with random signs, or of its square; `(N,)`.

        The square is unbiased. Memory and time grow with `probes`.

        Raises `ArgumentError` unless there is at least one probe.
        """
        check_integer(probes, "probes")
        products = torch.stack([self._product(generator) for _ in range(probes)], dim=1)  # (N, probes, ...)
        norms = _norms(products, squared)
        return norms / (probes if squared else probes**0.5)

    def _product(self, generator: torch.Generator) -> Tensor:
        """`H v` of each row, for signs v of its own."""
        device = generator.device
        heads = torch.randint(2, self.inputs.shape, generator=generator, device=device, dtype=torch.int8)
        signs = (2 * heads - 1).to(self.gradient.device, self.gradient.dtype)
        along = (self.gradient * signs).sum()
        if not along.requires_grad:  # a loss linear in the inputs, with nothing left to differentiate
            return torch.zeros_like(self.inputs)
        (product,) = torch.autograd.grad(along, self.inputs, create_graph=True, allow_unused=True)
        return torch.zeros_like(self.inputs) if product is None else product


def input_derivatives(module: nn.Module, inputs: Tensor, labels: Tensor) -> InputDerivatives:
    """Those of the cross-entropy of `module` on `inputs` (N, ...) for `labels` (N,), in the mode the module is in.

    >>> module = nn.Linear(2, 2, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    >>> derivatives = input_derivatives(module, torch.zeros(1, 2), torch.tensor([0]))
    >>> derivatives.gradient.tolist()  # A' (p - e_0), p = (1/2, 1/2)
    [[-1.0, 0.0]]
    >>> derivatives.hessian_norms(4, torch.Generator(), squared=True).tolist()  # A' (diag(p) - p p') A = diag(1, 0)
    [1.0]
    """
    with torch.enable_grad():
        inputs = inputs.detach().requires_grad_()
        return InputDerivatives(F.cross_entropy(module(inputs), labels, reduction="none"), inputs)


def gradient_norms(module: nn.Module, inputs: Tensor, labels: Tensor, *, squared: bool = False) -> Tensor:
    """`||grad_x l(x, y)||_2` of the cross-entropy for each of `inputs` (N, ...) and `labels` (N,), or its square.

    Returns `(N,)`. In the mode that `module` is in; the graph reaches its parameters.

    >>> module = nn.Linear(3, 2, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[3.0, 4.0, 0.0], [-3.0, -4.0, 0.0]]))
    >>> gradient_norms(module, torch.zeros(2, 3), torch.tensor([0, 1]))  # ||A' (p - e_y)||, p = (1/2, 1/2)
    tensor([5., 5.], grad_fn=<...>)
    """
    return input_derivatives(module, inputs, labels).gradient_norms(squared=squared)


def hessian_norms(
    module: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    *,
    generator: torch.Generator,
    probes: int = 1,
    squared: bool = False,
) -> Tensor:
    """`||H||_F` of the cross-entropy for each of `inputs` (N, ...) and `labels` (N,), or its square.

    Returns `(N,)`, estimated with `probes` products of the Hessian with random signs from `generator`: unbiased with
    `squared`. In the mode that `module` is in; the graph reaches its parameters.

    >>> module = nn.Linear(3, 2, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[3.0, 4.0, 0.0], [-3.0, -4.0, 0.0]]))
    >>> inputs, labels = torch.zeros(2, 3), torch.tensor([0, 1])
    >>> norms = hessian_norms(module, inputs, labels, generator=torch.Generator().manual_seed(0), probes=500)
    >>> bool(((norms - 25).abs() < 3).all())  # of a a', a = (3, 4, 0)
    True
    """
    return input_derivatives(module, inputs, labels).hessian_norms(probes, generator, squared=squared)


def _norms(rows: Tensor, squared: bool) -> Tensor:
    """Of each of `rows` (N, ...): 2-norms, whose derivative at 0 is taken as 0, or their squares."""
    flat = rows.flatten(1)
    return flat.square().sum(dim=1) if squared else torch.linalg.vector_norm(flat, dim=1)
