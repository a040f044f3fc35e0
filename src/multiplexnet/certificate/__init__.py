"""The certificate of a layer, and its check by a second solver, without the compiler.

::

    document    plain JSON, exact numbers, hashes
    issue       the certificate of a layer
    rules       rules as written → formulas for cvc5
    questions   cvc5: does this imply that?
    formats     float formats and the constants of the error bound, once more
    margins     anchors and margins, recomputed in fractions
    check       all statements of a certificate, proved or refuted
"""

from multiplexnet.certificate.document import Certificate

__all__ = ["Certificate"]
