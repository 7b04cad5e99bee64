"""TensorFlow 1's `tf.math.special`."""

from __future__ import annotations

from headrace.api import special
from headrace.v1.graph import in_default_graph
from headrace.v1.math_ops import bessel_i0 as bessel_i0
from headrace.v1.math_ops import bessel_i0e as bessel_i0e
from headrace.v1.math_ops import bessel_i1 as bessel_i1
from headrace.v1.math_ops import bessel_i1e as bessel_i1e

bessel_j0 = in_default_graph(special.bessel_j0)
bessel_j1 = in_default_graph(special.bessel_j1)
bessel_k0 = in_default_graph(special.bessel_k0)
bessel_k0e = in_default_graph(special.bessel_k0e)
bessel_k1 = in_default_graph(special.bessel_k1)
bessel_k1e = in_default_graph(special.bessel_k1e)
bessel_y0 = in_default_graph(special.bessel_y0)
bessel_y1 = in_default_graph(special.bessel_y1)
dawsn = in_default_graph(special.dawsn)
expint = in_default_graph(special.expint)
fresnel_cos = in_default_graph(special.fresnel_cos)
fresnel_sin = in_default_graph(special.fresnel_sin)
spence = in_default_graph(special.spence)
