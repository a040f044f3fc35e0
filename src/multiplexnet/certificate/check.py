"""The check of a certificate: every statement in it proved again, by a second solver and in exact fractions.

Nothing of the compiler is used and nothing the certificate says is taken on trust:

* the hashes belong to what they stand beside;
* the rules, read from their text, declare the variables of the certificate;
* *sound*: every term implies the rules; *complete*: the rules imply the disjunction of the terms (if it is claimed, and
  only if it is true);
* the constants of the error bound are those of the format;
* of every term the parts together keep to the term, and the term implies the parts: what the layer computes is the
  term, up to what the format cannot hold;
* every anchor is strictly inside, and what is left of every slack is what the certificate says;
* of every cascade the steps imply the rules, none gets stuck, nothing is lost (if that is claimed), no sum rounds, and
  every point of its grid is a number of the format;
* all of it for inputs in their ranges that keep what the rules assume of them, as the layer checks in every row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from multiplexnet.arguments import refuse_other_kind
from multiplexnet.certificate.cascade.recorded import Cascade
from multiplexnet.certificate.cascade.steps import Steps
from multiplexnet.certificate.curves import length_at, vanishing
from multiplexnet.certificate.document import Certificate, hashes
from multiplexnet.certificate.formats import Format
from multiplexnet.certificate.maps import (
    Layer,
    RecordedBlock,
    cascades_from,
    layer_from,
    own_rows,
)
from multiplexnet.certificate.parts import Box, Part, is_coprime
from multiplexnet.certificate.questions import Answer, Cvc5Writer
from multiplexnet.certificate.report import Claim, Report, said
from multiplexnet.certificate.rules import Reading, read
from multiplexnet.certificate.written import rules_text
from multiplexnet.compiler.record import (
    RecordReader,
    flag_from,
    list_from,
    number_from,
    reading,
    text_from,
    variables_from,
    whole_from,
)
from multiplexnet.compiler.terms import Block, Term
from multiplexnet.errors import RecordError
from multiplexnet.language.formula import Atom, Symbol, Variable, norm_in
from multiplexnet.rules import Rules, rule_file

__all__ = ["certify", "checked"]

ADVICE = "ask for the certificate again"


def certify(
    certificate: Certificate | str | Path, rules: Rules | str | Path | None = None
) -> Report:
    """Check everything that a certificate says, with a second solver and without the compiler.

    Args:
        certificate: the certificate of a layer, or the path of the file where it was saved.
        rules: rules that the certificate should be about, or the path of a rule file.

    Returns:
        A report: ``report.certified`` is the verdict, ``str(report)`` tells every statement, and ``report.to_json()``
        is the same for programs.

    Raises:
        MissingSolver: cvc5 is not installed.
        RecordError, RuleSyntaxError: the certificate does not fit together, or its rules cannot be read.
        OptionError: an argument of another kind.
        MissingFileError: there is no such file.
        OSError: a file cannot be read.

    Example:
        >>> import multiplexnet as mx
        >>> rules = mx.Rules("x >= 2 or x <= -2")
        >>> certificate = mx.Multiplexer(rules).certificate
        >>> mx.certify(certificate, rules).certified
        True
        >>> mx.certify(certificate, mx.Rules("x >= 1")).certified
        False
    """
    refuse_other_kind(
        "certificate",
        certificate,
        (Certificate, str, Path),
        "a certificate, as mux.certificate is, or the path of its file",
    )
    if rules is not None:
        refuse_other_kind(
            "rules", rules, (Rules, str, Path), "rules, or the path of a rule file"
        )
    if not isinstance(certificate, Certificate):
        certificate = Certificate.load(certificate)
    if rules is None:
        return checked(certificate)
    if isinstance(rules, Rules):
        return checked(certificate, rules=rules_text(rules.specification))
    return checked(certificate, rules=rule_file(Path(rules)))


def checked(
    certificate: Certificate, *, rules: tuple[str, str] | None = None
) -> Report:
    """Check everything that a certificate says.

    Args:
        certificate: the document.
        rules: language and text of the rules that it should be about, if the reader holds them.

    Raises:
        MissingSolver: cvc5 is not installed.
        RecordError, RuleSyntaxError: the certificate does not fit together, or its rules cannot be read.

    Example:
        >>> import multiplexnet as mx
        >>> certificate = mx.Multiplexer(mx.Rules("x >= 2 or x <= -2")).certificate
        >>> checked(certificate).certified, checked(certificate, rules=("rules", "x >= 1")).certified
        (True, False)
    """
    return _Check(certificate).report(rules)


def _refuse_common_factors(blocks: Sequence[Block]) -> None:
    for block in blocks:
        for term in block.terms:
            if not all(map(is_coprime, term.rows)):
                raise ValueError(
                    "a row of a term whose coefficients are not coprime integers"
                )


class _Check:
    """One certificate under check."""

    def __init__(self, certificate: Certificate) -> None:
        self.certificate = certificate
        data = certificate.data
        rules = data["rules"]
        terms = data["terms"]
        with reading("a certificate", ADVICE):
            self.variables = variables_from(rules["variables"])
            self.functions = tuple(map(text_from, list_from(rules["functions"])))
            self.written = text_from(rules["language"]), text_from(rules["text"])
            reader = RecordReader(self.variables, self.functions)
            cascades = cascades_from(data["layer"], reader, self.variables)
            apart = frozenset(v for cascade in cascades for v in cascade.outputs)
            self.blocks = reader.blocks(terms["blocks"], terms["inner"], apart)
            _refuse_common_factors([*self.blocks, *reader.inner])
            self.layer = layer_from(data["layer"], reader, self.blocks, cascades)
            self.tangents = [
                reader.tangent(one) for one in list_from(terms.get("tangents", []))
            ]
            self.complete = _complete(data["proved"])

    def report(self, rules: tuple[str, str] | None) -> Report:
        """All statements, those about the rules of the reader last."""
        own = read(*self.written, self.variables)
        statements = [
            self._hashes(),
            *self._about(own),
            self._constants(),
            *map(self._made(own.writer), self.layer.made),
            *map(self._grid, self.layer.cascades),
        ]
        asked = own.writer.questions
        if rules is not None and rules != self.written:
            try:
                given = read(*rules, self.variables)
            except RecordError as error:
                statements.append(
                    Claim("the rules given: the same variables", False, str(error))
                )
            else:
                statements += [
                    replace(s, text=f"the rules given: {s.text}")
                    for s in self._about(given)
                ]
                asked += given.writer.questions
        elif rules is not None:
            statements.append(
                Claim(
                    "the rules given are those of the certificate, letter by letter",
                    True,
                )
            )
        moved = max(
            (abs(d) for own in self.layer.made for d in own.moved), default=Fraction(0)
        )
        solver = f"cvc5 {own.writer.cvc5.__version__}"
        return Report(tuple(statements), self.certificate.sha256, solver, asked, moved)

    def _hashes(self) -> Claim:
        said = self.certificate.data["sha256"]
        found = hashes(self.certificate.data)
        wrong = [name for name in found if said[name] != found[name]]
        return _decided(
            "the hashes are those of the document",
            not wrong,
            f"not that of {', '.join(wrong)}",
        )

    def _about(self, rules: Reading) -> Iterator[Claim]:
        """What is claimed of the terms and some rules."""
        same = rules.variables == self.variables and rules.functions == self.functions
        why = "the text declares others, or in another order, or with other domains"
        yield _decided(
            "the variables and functions are those that the rules declare", same, why
        )
        if not same:
            return
        if rules.assumptions:
            yield self._assumed(rules)
        yield from self._norms(rules.writer)
        if rules.ranged:
            bounds = [bound for v in rules.ranged for bound in rules.writer.domain(v)]
            answer = rules.writer.implied(rules.rules, rules.writer.all_of(bounds))
            yield said("the rules keep every integer in its range", answer)
            rules.writer.assume(rules.ranged)
        yield from Meaning(rules, self.blocks, self.layer).statements(self.complete)

    def _norms(self, writer: Cvc5Writer) -> Iterator[Claim]:
        """What is known of norms: to cvc5 they are functions."""
        if self.tangents:
            wrong = [one for one in self.tangents if not one.is_valid]
            text = f"no norm is below one of its {len(self.tangents)} tangents, by Cauchy and Schwarz"
            yield _decided(text, not wrong, "a tangent cuts into its norm")
            for tangent in self.tangents if not wrong else ():
                writer.take(tangent.atom)
        for block in self.blocks:
            for term in block.terms:
                for row in term.rows:
                    found = norm_in(row.linear)
                    if (
                        found
                        and not row.linear.constant
                        and len(row.linear.summands) == 1
                    ):
                        for fact in vanishing(found[0]):
                            writer.take(fact)

    def _assumed(self, rules: Reading) -> Claim:
        """That assumptions can be kept: otherwise everything would be true of them."""
        writer = rules.writer
        answer = writer.implied([], writer.negated(writer.all_of([])))
        listed = "; ".join(rules.assumptions)
        text = f"all of it for inputs that keep, as the layer checks in every row, {listed}"
        return _decided(
            text, answer.point is not None, "no input keeps these assumptions"
        )

    def _constants(self) -> Claim:
        wrong = [
            name
            for name, number in self.layer.form.bound.items()
            if self.layer.bound[name] != number
        ]
        text = f"the constants of the error bound are those of {self.layer.dtype}"
        return _decided(text, not wrong, f"not {', '.join(wrong)}")

    def _grid(self, cascade: Cascade) -> Claim:
        text = f"the grid of {_names(cascade.outputs)}: its points are numbers of {self.layer.dtype}, and no sum rounds"
        faults = list(cascade.faults(self.layer.form))
        return _decided(text, not faults, "; ".join(faults[:3]))

    def _made(self, writer: Cvc5Writer) -> Callable[[RecordedBlock], Claim]:
        def statement(made: RecordedBlock) -> Claim:
            names = _names(made.block.outputs)
            text = f"what the layer computes for {names} is inside its terms, all of them, with the margins it says"
            undecided = None
            for k, (term, parts) in enumerate(made.terms):
                for fault in _faults(term, parts, self.layer.form, writer):
                    why = f"term {k}: {fault.why}"
                    claim = Claim(text, False, why, fault.point, fault.is_open)
                    if not fault.is_open:
                        return claim
                    undecided = undecided or claim
            return undecided or Claim(text, True)

        return statement


def _complete(record: Mapping[str, Any]) -> bool:
    """Whether completeness is claimed; what else is said about the first proof is history and cannot be checked."""
    if flag_from(record["sound"]) is not True:
        raise ValueError("it does not claim that its terms are sound")
    (
        text_from(record["solver"]),
        text_from(record["version"]),
        whole_from(record["questions"]),
    )
    if record["covered"] is not None and not 0 <= number_from(record["covered"]) <= 1:
        raise ValueError("a share that is none")
    return flag_from(record["complete"])


def _decided(text: str, holds: bool, why: str) -> Claim:
    return Claim(text, holds, "" if holds else why)


def _names(outputs: Sequence[Variable]) -> str:
    names = [v.name for v in outputs]
    return ", ".join(names[:4]) + (
        f" … {names[-1]} ({len(names)} outputs)" if len(names) > 4 else ""
    )


# --- terms ----------------------------------------------------------------------------------------------------------


class Meaning:
    """What the terms of some blocks and some rules have to do with each other.

    Args:
        rules: the rules.
        blocks: the outer blocks.
        layer: has the cascades.
    """

    def __init__(self, rules: Reading, blocks: Sequence[Block], layer: Layer) -> None:
        self.rules = rules
        self.blocks = blocks
        self.form = layer.form
        self.cascades = layer.cascades
        self.writer = rules.writer
        self._written: dict[int, Any] = {}
        homes = [block.outputs for block in blocks] + [
            one.outputs for one in layer.cascades
        ]
        home = {v.name: i for i, outputs in enumerate(homes) for v in outputs}
        self.parts = [
            (part, frozenset(home[n] for n in rules.mentioned(part) if n in home))
            for part in rules.rules
        ]
        self.curved = [
            part for part, places in self.parts if not places and rules.has_norm(part)
        ]
        """Rules about inputs alone with norms, which cvc5 does not know enough of to see what ranges do to them."""

    def statements(self, complete: bool) -> Iterator[Claim]:
        """Soundness block by block, what several blocks share, completeness; then the cascades."""
        for i, block in enumerate(self.blocks):
            own = [part for part, places in self.parts if places == {i}]
            yield (
                self._sound(block, own) if block.outputs else self._inputs_alone(block)
            )
        if self.curved:
            yield self._checked_in_rows()
        for part, places in self.parts:
            if len(places) != 1 and part not in self.curved:
                answer = self.writer.implied(map(self._whole, places), part)
                yield said(
                    "sound: the blocks together imply a rule that they share", answer
                )
        missed = next(
            (
                answer
                for answer in map(self._covers, range(len(self.blocks)))
                if not answer.proved
            ),
            None,
        )
        if complete:
            text = "complete: the terms contain every point that obeys the rules"
            yield said(text, missed or Answer(True))
        else:
            text = "as the certificate says, the terms do not contain every point that obeys the rules"
            yield _decided(text, missed is not None, "they do contain every such point")
        for i, cascade in enumerate(self.cascades, start=len(self.blocks)):
            yield from self._steps(i).statements(self.form, _names(cascade.outputs))

    def _steps(self, i: int) -> Steps:
        own = [part for part, places in self.parts if places == {i}]
        near = [part for part, places in self.parts if i in places]
        return Steps(self.cascades[i - len(self.blocks)], self.rules, own, near)

    def _whole(self, i: int) -> Any:
        """Everything that a block or a cascade says."""
        return (
            self._block(self.blocks[i])
            if i < len(self.blocks)
            else self._steps(i).whole()
        )

    def _sound(self, block: Block, own: Sequence[Any]) -> Claim:
        text = f"sound: every term over {_names(block.outputs)} implies the rules"
        conclusion = self.writer.all_of(own)
        for k, term in enumerate(block.terms if own else ()):
            answer = self.writer.implied([self._term(term)], conclusion)
            if not answer.proved:
                return said(text, answer, f"term {k} does not")
        return Claim(text, True)

    def _inputs_alone(self, block: Block) -> Claim:
        text = "inputs in their ranges obey what the rules ask of them"
        if self.curved:
            text += ", in the rows that obey its curved walls"
        return said(text, self.writer.implied(self.curved, self._block(block)))

    def _checked_in_rows(self) -> Claim:
        """That the blocks without outputs, which the layer checks in every row, imply the curved rules about inputs."""
        blocks = [self._block(block) for block in self.blocks if not block.outputs]
        listed = "; ".join(self.rules.curved)
        text = f"all of it for inputs that obey, as the layer checks in every row, {listed}"
        return said(text, self.writer.implied(blocks, self.writer.all_of(self.curved)))

    def _covers(self, i: int) -> Answer:
        """Whether the rules imply a block; those that speak of it nearly always do."""
        near = [part for part, places in self.parts if i in places]
        said = self._block(self.blocks[i])
        answer = self.writer.implied(near, said)
        if answer.proved or len(near) == len(self.parts):
            return answer
        return self.writer.implied([part for part, _ in self.parts], said)

    def _block(self, block: Block) -> Any:
        if id(block) not in self._written:
            self._written[id(block)] = self.writer.any_of(map(self._term, block.terms))
        return self._written[id(block)]

    def _term(self, term: Term) -> Any:
        own = [
            *map(self.writer.formula, own_rows(term)),
            *map(self._block, term.blocks),
        ]
        return self.writer.all_of(own)


# --- layer ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Fault:
    """What is wrong with the parts of a term, and where; or what the solver did not decide."""

    why: str
    point: Mapping[str, Fraction] | None = None
    is_open: bool = False


def _faults(
    term: Term, parts: Sequence[Part], form: Format, writer: Cvc5Writer
) -> Iterator[_Fault]:
    """What is wrong with the parts of a term, or not decided."""
    constant = {
        pair for part in parts if isinstance(part, Box) for pair in part.constants()
    }
    for (
        variable,
        value,
    ) in (
        term.fixed
    ):  # to the solver its values are whole numbers, to the layer they are not
        if (variable, value) not in constant:
            yield _Fault(f"{variable.name} is not the constant {value}")
            return
    _tell_lengths(term, dict(constant), writer)
    for part in parts:
        names = _names(part.outputs)
        for why in part.faults(form):
            yield _Fault(f"the part over {names}: {why}")
            return
        yield from _unproved(
            f"the part over {names} may leave the format",
            part.keeps(),
            part.holds(form),
            writer,
        )
    rows = own_rows(term)
    kept = [atom for part in parts for atom in part.keeps()]
    needed = [atom for part in parts for atom in part.needs(form)]
    yield from _unproved("its parts may leave it", kept, rows, writer)
    yield from _unproved("its parts leave out points of it", rows, needed, writer)


def _tell_lengths(
    term: Term, constant: Mapping[Symbol, Fraction], writer: Cvc5Writer
) -> None:
    """Tell cvc5, to which norms are functions, how long those are that stand at constants alone."""
    for row in term.rows:
        found = norm_in(row.linear)
        fact = found and length_at(found[0], constant)
        if fact:
            writer.take(fact)


def _unproved(
    why: str, premises: Sequence[Atom], conclusions: Sequence[Atom], writer: Cvc5Writer
) -> Iterator[_Fault]:
    """Nothing if the premises imply the conclusions; those that stand among the premises need no proof."""
    known = set(map(_normal, premises))
    open_ = [atom for atom in conclusions if _normal(atom) not in known]
    if open_:
        answer = writer.implied(
            map(writer.formula, premises), writer.all_of(map(writer.formula, open_))
        )
        if answer.proved:
            return
        if answer.point is None:
            yield _Fault(f"{why}: cvc5 gave no answer", is_open=True)
        else:
            yield _Fault(why, answer.point)


def _normal(atom: Atom) -> Atom:
    """The same comparison with a first coefficient of size 1."""
    return (
        Atom(atom.linear * (1 / abs(atom.linear.summands[0][1])), atom.relation)
        if atom.linear.summands
        else atom
    )
