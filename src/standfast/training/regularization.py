"""Norms of the derivatives of the loss by the input, for penalties in training.

Let l be the cross-entropy of one input x and its label, and H its matrix of second derivatives by x. Within a ball of
radius r the change of the loss is bounded by

    |l(x') - l(x)|  <=  ||grad l(x)||_2 r + K r^2 / 2,

where K is a Lipschitz constant of the gradient, which ||H||_F at x approximates. K also bounds how far a gradient, used
as an explanation, can change. So both norms are added to the loss in training. They are norms, as in the proposition.

H is never built. For a random vector v of independent signs (Hutchinson), E ||H v||^2 = ||H||_F^2, and H v is the
gradient of (grad l . v), computed exactly by differentiating twice. The square root of the mean over probes is biased
downwards; the bias decreases with the number of probes. With one probe, the expected penalty E ||H v|| is at least
||H||_F / sqrt(2) (Latała and Oleszkiewicz 1994) and at most ||H||_F (Jensen).

Two things to know:

- A network of rectifiers is piecewise linear: the second derivative of its logits is 0 wherever it exists. So H comes
  from softmax and cross-entropy alone: A' (diag(p) - p p') A, where A is the Jacobian of the logits. It vanishes where
  the network is certain, and so does the gradient. So a network can lower both penalties by being certain, as well as
  by being flat. The penalties do not see the kinks.
- Rows must not influence each other. The loss is summed over the batch before it is differentiated, which is right only
  if the logits of a row do not depend on other rows. With batch normalisation in train mode they do: the derivatives
  then include how an input changes the logits of other rows, as for any penalty on such networks. In eval mode they do
  not.

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
from torch import Tensor

from standfast.errors import check, check_integer
from standfast.records import set_fields


@dataclass(frozen=True, eq=False)
class InputDerivatives:
    """The loss of each row of a batch, and its gradient by the row's input; both penalties can use the same one.

    Its tensors keep their graph, so that penalties can be differentiated by the network's parameters.

    Raises:
        ArgumentError: `inputs` do not require a gradient, or there is not one loss for each input.

    >>> inputs = torch.tensor([[1.0, 2.0], [3.0, 0.0]], requires_grad=True)
    >>> derivatives = InputDerivatives(inputs.square().sum(dim=1), inputs)
    >>> derivatives.compute_gradient_norms()
    tensor([4.4721, 6.0000], grad_fn=<...>)
    >>> derivatives.compute_hessian_norms(1, torch.Generator())  # of diag(2, 2)
    tensor([2.8284, 2.8284], grad_fn=<...>)
    """

    losses: Tensor  # (N,), of the rows of `inputs`
    inputs: Tensor  # (N, ...), from which `losses` were computed
    gradient: Tensor = field(init=False, repr=False)  # (N, ...), for each row that of its own loss

    def __post_init__(self) -> None:
        check(
            self.inputs.requires_grad,
            "inputs",
            "a tensor that requires a gradient",
            "one that does not",
        )
        shape = tuple(self.losses.shape)
        check(
            shape == self.inputs.shape[:1],
            "losses",
            f"one for each of {len(self.inputs)} inputs",
            shape,
        )
        # the losses of a batch are summed, as no row depends on another
        (gradient,) = torch.autograd.grad(self.losses.sum(), self.inputs, create_graph=True)
        set_fields(self, gradient=gradient)

    def compute_gradient_norms(self) -> Tensor:
        """`||grad l||_2` of each row, `(N,)`. Where it is 0, its derivative is taken as 0."""
        norms: Tensor = torch.linalg.vector_norm(self.gradient.flatten(1), dim=1)
        return norms

    def compute_hessian_norms(self, probes: int, generator: torch.Generator) -> Tensor:
        """An estimate of `||H||_F` of each row from products of H with random signs, `(N,)`.

        The square of the estimate is unbiased. Memory and time grow with `probes`, the number of products.

        Raises:
            ArgumentError: fewer than one probe.
        """
        check_integer(probes, "probes")
        # (N, probes, ...)
        products = torch.stack([self._multiply_hessian(generator) for _ in range(probes)], dim=1)
        # the mean over the probes of the squared norms, of which the root is taken
        norms: Tensor = torch.linalg.vector_norm(products.flatten(1), dim=1) / probes**0.5
        return norms

    def _multiply_hessian(self, generator: torch.Generator) -> Tensor:
        """`H v` for each row, with independent random signs v."""
        device = generator.device
        heads = torch.randint(
            2, self.inputs.shape, generator=generator, device=device, dtype=torch.int8
        )
        signs = (2 * heads - 1).to(self.gradient.device, self.gradient.dtype)
        along = (self.gradient * signs).sum()
        # a loss linear in the inputs, with nothing left to differentiate
        if not along.requires_grad:
            return torch.zeros_like(self.inputs)
        (product,) = torch.autograd.grad(along, self.inputs, create_graph=True, allow_unused=True)
        if product is None:
            return torch.zeros_like(self.inputs)
        return product
