"""What came out, in numbers and as a list of what is not right."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sweep.results import Record
from sweep.trial import OUTCOMES


@dataclass
class Operator:
    """All that is known of one operator with one peer."""

    name: str
    records: list[Record] = field(default_factory=list)  # without the skipped ones

    @property
    def fully_right(self) -> bool:
        return all(record.good for record in self.records)

    @property
    def first_fault(self) -> Record | None:
        return next((record for record in self.records if not record.good), None)


def by_operator(records: Iterable[Record]) -> dict[str, Operator]:
    """The measurable operators: those with a case that could be compared."""
    found: dict[str, Operator] = {}
    for record in records:
        if record.outcome != "skipped":
            name = record.case.operator
            found.setdefault(name, Operator(name)).records.append(record)
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class Totals:
    operators: int
    fully_right: int
    cases: int
    outcomes: dict[str, int]
    on_some_ranks: int
    hung_once: int  # and not when they were tried again
    sharded: int  # right, and a result stays sharded

    @staticmethod
    def of(records: Sequence[Record]) -> "Totals":
        operators = by_operator(records)
        measured = [record for operator in operators.values() for record in operator.records]
        outcomes = Counter(record.outcome for record in measured)
        return Totals(
            operators=len(operators),
            fully_right=sum(operator.fully_right for operator in operators.values()),
            cases=len(measured),
            outcomes={name: outcomes[name] for name in OUTCOMES if name != "skipped"},
            on_some_ranks=sum(r.outcome == "error" and r.ranks != "all" for r in measured),
            hung_once=sum(r.hung_once for r in measured),
            sharded=sum(r.good and r.sharded for r in measured),
        )

    def rows(self) -> list[tuple[str, int]]:
        return [
            ("operators measured", self.operators),
            ("operators fully right", self.fully_right),
            ("cases", self.cases),
            *((f"cases {name}", count) for name, count in self.outcomes.items()),
            ("errors on some ranks only", self.on_some_ranks),
            ("hung once, not again", self.hung_once),
            ("right with a sharded result", self.sharded),
        ]


def split_by_peer(records: Iterable[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        found[record.peer].append(record)
    return dict(sorted(found.items()))


def common(records: dict[str, list[Record]]) -> dict[str, list[Record]]:
    """Of each peer, those measured cases that all peers were given."""
    measured = {peer: [r for r in of_peer if r.outcome != "skipped"] for peer, of_peer in records.items()}
    shared = set.intersection(*({r.case for r in of_peer} for of_peer in measured.values()))
    return {peer: [r for r in of_peer if r.case in shared] for peer, of_peer in measured.items()}


def stay_sharded(records: dict[str, list[Record]]) -> str:
    """What sherd does with the cases that torch answers right with a sharded result."""
    sherd = {r.case: r for r in records.get("sherd", [])}
    cases = [sherd[r.case] for r in records.get("torch", []) if r.good and r.sharded and r.case in sherd]
    sharded = [r for r in cases if r.good and r.sharded]
    partial = [r for r in cases if r.good and r.partial and not r.sharded]
    rest = len(cases) - len(sharded) - len(partial)
    return (
        f"Of {len(cases):,} cases that torch answers right with a sharded result, sherd answers {len(sharded):,} with\n"
        f"a sharded one, {len(partial):,} with one that is Partial, and {rest:,} with a whole one or not rightly."
    )


def gathered(records: dict[str, list[Record]]) -> str:
    """The cases that torch answers right with a sharded result and sherd with none, by operator."""
    torch_sharded = {r.case: r for r in records.get("torch", []) if r.good and r.sharded}
    lost: dict[str, list[Record]] = defaultdict(list)
    for record in records.get("sherd", []):
        if record.case in torch_sharded and not record.sharded:
            lost[record.case.operator].append(record)
    lines = []
    for operator, members in sorted(lost.items(), key=lambda item: -len(item[1])):
        first = members[0]
        theirs = torch_sharded[first.case]
        lines.append(
            f"- {operator} ({len(members)}): {first.case}: inputs {first.inputs}; sherd {' '.join(first.outputs)}, "
            f"torch {' '.join(theirs.outputs)}"
        )
    return "\n".join(lines)


def totals_table(records: dict[str, list[Record]]) -> str:
    """A Markdown table, one column per peer."""
    columns = {peer: Totals.of(of_peer).rows() for peer, of_peer in records.items()}
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for rows in zip(*columns.values()):
        lines.append(f"| {rows[0][0]} | " + " | ".join(f"{count:,}" for _, count in rows) + " |")
    return "\n".join(lines)


def summary(records: Sequence[Record]) -> str:
    peers = split_by_peer(records)
    if len(peers) < 2:
        return totals_table(peers) + "\n"
    shared = common(peers)
    parts = [totals_table(shared), "", stay_sharded(shared), ""]
    if any(len(shared[peer]) != Totals.of(of_peer).cases for peer, of_peer in peers.items()):
        parts += ["The above are the cases that both were given; these are all:", "", totals_table(peers), ""]
    return "\n".join(parts)


def causes(records: Sequence[Record]) -> str:
    """The cases that are not right, grouped by what they say but for its numbers; the largest groups first."""
    groups: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in records:
        if not record.good and record.outcome != "skipped":
            on = "" if record.outcome != "error" else " on all ranks" if record.ranks == "all" else " on some ranks"
            first_line = record.message.strip().partition("\n")[0]
            text = re.sub(r"-?\d+(\.\d+)?(e-?\d+)?", "N", first_line)[:200]
            groups[record.outcome + on, record.phase, text].append(record)
    lines = []
    for (outcome, phase, text), members in sorted(groups.items(), key=lambda group: -len(group[1])):
        counts = Counter(record.case.operator for record in members)
        lines.append(f"- {len(members)} x {' '.join(filter(None, [outcome, phase]))}: {text}")
        lines.append("  operators: " + ", ".join(f"{name} ({count})" for name, count in counts.items()))
        lines.append(f"  first: `python -m sweep --peer {members[0].peer} --case '{members[0].case}'`")
        lines += [f"      {line}" for line in members[0].message.strip().splitlines()[:6]]
    return "\n".join(lines)


def faults(records: Sequence[Record]) -> str:
    """The operators that are not fully right, each with its first such case and a line that runs it again."""
    lines = []
    for operator in by_operator(records).values():
        fault = operator.first_fault
        if fault is None:
            continue
        counts = Counter(record.outcome for record in operator.records if not record.good)
        told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        lines.append(f"{operator.name}: {told} of {len(operator.records)}")
        where = " ".join(filter(None, [fault.outcome, fault.phase, fault.ranks and f"ranks: {fault.ranks}"]))
        lines.append(f"    {where}; inputs {fault.inputs or 'unknown'}")
        lines += [f"    {line}" for line in fault.message.splitlines()[:6]]
        lines.append(f"    python -m sweep --peer {fault.peer} --case '{fault.case}'")
    return "\n".join(lines)
