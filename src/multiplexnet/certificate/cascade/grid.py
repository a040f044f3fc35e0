r"""The variables of a cascade as whole numbers of a solver, and what rules over outputs and inputs say of them.

Rules are formulas over x. With ``x = h k`` put in for every output they are formulas over whole numbers, as the clauses
of a cascade are; inputs stay real numbers u, and known values are defined by them. So nothing of the compiler's
translation from rules to rows is trusted: it takes no part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from multiplexnet.certificate.cascade.late_rows import LateRow, LateTerm, Polynomial
from multiplexnet.certificate.cascade.recorded import (
    Bit,
    Cascade,
    Clause,
    Form,
    Known,
    Row,
    Whole,
)
from multiplexnet.certificate.formats import power
from multiplexnet.certificate.questions import Answer
from multiplexnet.certificate.rules import Reading
from multiplexnet.language.formula import Bool, Linear, Real, Variable

__all__ = ["GridVariables"]


class GridVariables:
    """The variables of a cascade as whole numbers of cvc5, and what rules over outputs and inputs say of them.

    Args:
        cascade: whose variables.
        rules: knows the constants that stand for outputs and inputs.
    """

    def __init__(self, cascade: Cascade, rules: Reading) -> None:
        self.cascade = cascade
        self.writer = rules.writer
        self.manager = rules.writer.manager
        self.kind = rules.writer.kind
        self._mentioned = rules.mentioned
        self._inputs = [v for v in rules.variables if v.is_input]
        self._assumed = rules.assumed
        self._logic = "QF_NIRA" if cascade.late or rules.multiplies else "QF_LIRA"
        whole = self.manager.getIntegerSort()
        self.k = [
            self.manager.mkConst(whole, f"k{i}") for i in range(len(cascade.ranges))
        ]
        forms = dict.fromkeys(one.form for one in cascade.known)
        self._r = {
            form: self.manager.mkConst(whole, f"r{i}") for i, form in enumerate(forms)
        }
        self._number = {v.name: i for i, v in enumerate(cascade.outputs)}
        self._counts = self._counted_conditions()
        self._written: dict[int, Any] = {}
        self._opaque: dict[str, Any] = {}
        self._found: dict[int, set[int]] = {}

    def term(self, kind: str, *arguments: Any) -> Any:
        """A term of cvc5."""
        return self.manager.mkTerm(getattr(self.kind, kind), *arguments)

    def real(self, name: str) -> Any:
        """A real number of which nothing is known, the same one for the same name."""
        if name not in self._opaque:
            sort = self.manager.getRealSort()
            self._opaque[name] = self.manager.mkConst(sort, name)
        return self._opaque[name]

    def whole(self, number: int) -> Any:
        """A whole number."""
        return self.manager.mkInteger(str(number))

    # --- what stands for what ---------------------------------------------------------------------------------------

    def x(self, i: int) -> Any:
        """Output i: ``h k``, or ``h k + u − h r`` where it carries what an input has beyond the grid."""
        h = self.writer.number(self.cascade.spacing[i])
        value = self.term("MULT", h, self.term("TO_REAL", self.k[i]))
        form = self.cascade.carried.get(i)
        if form is None:
            return value
        whole = self.term("MULT", h, self.term("TO_REAL", self._r[form]))
        return self.term(
            "SUB", self.term("ADD", value, self.input(form.terms[0][0])), whole
        )

    def input(self, place: int) -> Any:
        """An input as a real number."""
        return self.writer.linear(Linear.of(self._inputs[place]))

    def in_k(self, rule: Any) -> Any:
        """A rule over x as one over k."""
        if rule.getId() not in self._written:
            self._written[rule.getId()] = self._in_k(self._with_counts(rule))
        return self._written[rule.getId()]

    def _in_k(self, rule: Any) -> Any:
        outputs = self.cascade.outputs
        old = [self.writer.constant(v) for v in outputs]
        new = [self.stand_in(i, v) for i, v in enumerate(outputs)]
        return rule.substitute(old, new)

    def stand_in(self, i: int, output: Variable) -> Any:
        """What stands for the constant of an output."""
        if isinstance(output.domain, Real):
            return self.x(i)
        if isinstance(output.domain, Bool):
            return self.term("EQUAL", self.k[i], self.whole(1))
        h = self.cascade.spacing[i]
        return self.k[i] if h == 1 else self.term("MULT", self.whole(int(h)), self.k[i])

    def variables(self, rule: Any) -> set[int]:
        """The outputs that a rule over x mentions."""
        if rule.getId() not in self._found:
            names = self._mentioned(rule)
            self._found[rule.getId()] = {
                self._number[n] for n in names if n in self._number
            }
        return self._found[rule.getId()]

    # --- counting ---------------------------------------------------------------------------------------------------

    def _counted_conditions(self) -> dict[Any, Any]:
        """For truth values, and the conditions of hidden outputs, the k that counts them: 1 or 0."""
        outputs = self.cascade.outputs
        found = {
            self.writer.constant(v).getId(): self.k[i]
            for i, v in enumerate(outputs)
            if isinstance(v.domain, Bool)
        }
        for i, condition in enumerate(self.cascade.conditions, start=len(outputs)):
            found[self.writer.formula(condition).getId()] = self.k[i]
        return found

    def _with_counts(self, rule: Any) -> Any:
        """``k`` for every «1 if condition else 0», so that a sum of many of them is a sum and not a thousand cases."""
        old = []
        new = []
        stack = [rule]
        seen = set()
        while stack:
            part = stack.pop()
            if part.getId() in seen:
                continue
            seen.add(part.getId())
            count = self._count(part)
            if count is not None:
                old.append(part)
                new.append(count)
            else:
                stack.extend(part)
        return rule.substitute(old, new) if old else rule

    def _count(self, part: Any) -> Any | None:
        if part.getKind() != self.kind.ITE or part[0].getId() not in self._counts:
            return None
        if not (part[1].isRealValue() and part[2].isRealValue()):
            return None
        then, otherwise = (
            Fraction(str(side.toPythonObj())) for side in (part[1], part[2])
        )
        chosen = self.term("TO_REAL", self._counts[part[0].getId()])
        more = self.term("MULT", self.writer.number(then - otherwise), chosen)
        return self.term("ADD", self.writer.number(otherwise), more)

    def condition(self, i: int) -> Any:
        """That hidden output i is 1 exactly where its condition holds."""
        condition = self.cascade.conditions[i - len(self.cascade.outputs)]
        holds = self.in_k(self.writer.formula(condition))
        return self.term("EQUAL", self.term("EQUAL", self.k[i], self.whole(1)), holds)

    def condition_variables(self, i: int) -> set[int]:
        """The outputs that the condition of a hidden output mentions."""
        condition = self.cascade.conditions[i - len(self.cascade.outputs)]
        return self.variables(self.writer.formula(condition))

    # --- rows -------------------------------------------------------------------------------------------------------

    def row(self, row: Row, at: Mapping[int, Any] | None = None) -> Any:
        """A row, with other terms in the place of some variables."""
        total = [self.times(c, (at or {}).get(v, self.k[v])) for v, c in row.terms]
        left = total[0] if len(total) == 1 else self.term("ADD", *total)
        return self.term("LEQ", left, self.whole(row.bound))

    def times(self, factor: int, term: Any) -> Any:
        """A whole multiple of a term."""
        return term if factor == 1 else self.term("MULT", self.whole(factor), term)

    def clause(self, clause: Clause, at: Mapping[int, Any] | None = None) -> Any:
        """A clause: one of its rows holds."""
        return self.writer.any_of([self.row(row, at) for row in clause])

    def range(self, i: int, term: Any | None = None) -> list[Any]:
        """That a variable, or another term in its place, lies in the range of the variable."""
        lower, upper = map(self.whole, self.cascade.ranges[i])
        value = self.k[i] if term is None else term
        return [self.term("LEQ", lower, value), self.term("LEQ", value, upper)]

    # --- late rows --------------------------------------------------------------------------------------------------

    def late(self, row: LateRow, at: Mapping[int, Any] | None = None) -> Any:
        """A late row, with other terms in the place of some products."""
        parts = [
            (at or {}).get(term.variable, None) or self.late_product(term)
            for term in row.terms
        ]
        left = parts[0] if len(parts) == 1 else self.term("ADD", *parts)
        relation = "LT" if row.strict else "LEQ"
        return self.term(relation, left, self.polynomial(row.bound))

    def late_product(self, term: LateTerm, value: int | None = None) -> Any:
        """``α h k`` of a late row, with a number for k if one is given."""
        k = self.k[term.variable] if value is None else self.whole(value)
        x = self.term("TO_REAL", k)
        h = self.writer.number(self.cascade.spacing[term.variable])
        return self.term("MULT", h, self.polynomial(term.coefficient), x)

    def polynomial(self, polynomial: Polynomial) -> Any:
        """A sum of products of inputs."""
        parts = [self.writer.number(Fraction(0))]
        for places, c in polynomial:
            factors = [self.writer.number(Fraction(c)), *map(self.input, places)]
            parts.append(
                factors[0] if len(factors) == 1 else self.term("MULT", *factors)
            )
        return parts[0] if len(parts) == 1 else self.term("ADD", *parts)

    # --- known values -----------------------------------------------------------------------------------------------

    def definitions(self, variables: Iterable[int], *, rounded: bool) -> list[Any]:
        """What known values are, and what carriers carry, as far as some variables have to do with it.

        Args:
            variables: numbers of variables.
            rounded: what the layer promises where it rounds sums of inputs; otherwise, their true values.
        """
        first = self.cascade.first_known
        own = [i for i in sorted(set(variables)) if i >= first]
        forms = {self.cascade.known[i - first].form for i in own}
        forms |= {
            form for i, form in self.cascade.carried.items() if i in set(variables)
        }
        found = []
        for form in sorted(forms, key=repr):
            rest = self._rest(form)
            most = 2 if rounded and not form.is_exact else 1
            found += [
                self.term("GEQ", rest, self.writer.number(Fraction(0))),
                self.term("LT", rest, self.writer.number(Fraction(most))),
            ]
        found += [
            self._definition(i, self.cascade.known[i - first], rounded) for i in own
        ]
        return found

    def _rest(self, form: Form) -> Any:
        """``F − r``."""
        unit = power(form.exponent)
        summands = [
            self.term("MULT", self.writer.number(c / unit), self.input(place))
            for place, c in form.terms
        ]
        value = summands[0] if len(summands) == 1 else self.term("ADD", *summands)
        return self.term("SUB", value, self.term("TO_REAL", self._r[form]))

    def _definition(self, i: int, known: Known, rounded: bool) -> Any:
        if isinstance(known, Whole):
            return self.term("EQUAL", self.k[i], self._clamped(self._r[known.form], i))
        over = self._over(known, 0)
        if not rounded or known.form.is_exact:
            return self.term("EQUAL", self.k[i], over)
        zero, one, two = (self.whole(n) for n in (0, 1, 2))
        if known.subtracts:
            return self.term(
                "AND",
                self.term("LEQ", zero, self.k[i]),
                self.term("LEQ", self.k[i], over),
            )
        least = self.term("ADD", over, self._over(known, 1))
        surely = self.term(
            "GEQ", self.k[i], one if known.closed and known.threshold == 0 else zero
        )
        return self.term(
            "AND",
            self.term("LEQ", least, self.k[i]),
            self.term("LEQ", self.k[i], two),
            surely,
        )

    def _over(self, bit: Bit, more: int) -> Any:
        compared = "GEQ" if bit.closed else "GT"
        limit = self.writer.number(bit.threshold + more)
        over = self.term(compared, self._rest(bit.form), limit)
        return self.term("ITE", over, self.whole(1), self.whole(0))

    def _clamped(self, term: Any, i: int) -> Any:
        lower, upper = map(self.whole, self.cascade.ranges[i])
        below = self.term("ITE", self.term("LT", term, lower), lower, term)
        return self.term("ITE", self.term("GT", term, upper), upper, below)

    # --- asking -----------------------------------------------------------------------------------------------------

    def implied(
        self, premises: Iterable[Any], conclusion: Any, milliseconds: int
    ) -> Answer:
        """Whether the premises imply the conclusion, for inputs in their ranges that keep what is assumed of them."""
        self.writer.questions += 1
        solver = self.writer.cvc5.Solver(self.manager)
        solver.setOption("produce-models", "true")
        solver.setOption("tlimit-per", str(milliseconds))
        solver.setLogic(self._logic)
        domains = [bound for v in self._inputs for bound in self.writer.domain(v)]
        for premise in (
            *domains,
            *self._assumed,
            *premises,
            self.writer.negated(conclusion),
        ):
            solver.assertFormula(premise)
        verdict = solver.checkSat()
        if verdict.isUnsat():
            return Answer(True)
        return Answer(False, self._point(solver) if verdict.isSat() else None)

    def _point(self, solver: Any) -> dict[str, Fraction]:
        terms = {v.name: self.x(i) for i, v in enumerate(self.cascade.outputs)}
        terms |= {v.name: self.input(place) for place, v in enumerate(self._inputs)}
        values = {name: solver.getValue(term) for name, term in terms.items()}
        return {
            name: Fraction(str(value.toPythonObj())) for name, value in values.items()
        }
