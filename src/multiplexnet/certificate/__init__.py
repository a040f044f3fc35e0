"""The certificate of a layer, and its check by a second solver, without the compiler.

::

    document    plain JSON, exact numbers, hashes
    written     rules as written: language and text
    rules       rules as written → formulas for cvc5
    questions   cvc5: does this imply that?
    formats     float formats and the constants of the error bound, a second time
    margins     anchors and margins, recomputed in fractions
    parts       what the parts of a term claim
    maps        what is said of the layer: the parts of all terms
    cascade     the same of cascades: what is said of them, and its proof
    check       every statement proved or refuted
    report      what the check found
"""

from multiplexnet.certificate.document import Certificate

__all__ = ["Certificate"]
