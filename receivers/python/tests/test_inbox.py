"""The inboxes: one table of cases for all of them, and what each promises beside it."""

from __future__ import annotations

from typing import Any

import pytest
from stores import NOW, SQL_STORES, STORES, SqlStore, event
from vectors import load

from railpost import Delivery, Kind, OnGap, Policy, Verdict

CASES = load("inbox")["cases"]


def word(verdict: Verdict) -> str:
    """A verdict in the words of the vectors."""
    if verdict.kind is Kind.GAP:
        return "gap_accepted" if verdict.accepted else "gap_held"
    return verdict.kind.value


def number(value: Any) -> int | None:
    return None if value is None else int(value)


def offered(step: dict[str, Any]) -> Delivery:
    return Delivery(
        step["id"],
        NOW,
        b"",
        key=step.get("key"),
        line=step.get("line"),
        seq=number(step.get("seq")),
        after=number(step.get("after")),
        replay=step.get("replay", False),
    )


def test_the_table_of_inbox_cases_is_whole() -> None:
    assert len(CASES) >= 35
    assert sum(len(case["steps"]) for case in CASES) >= 140


@pytest.mark.parametrize("name", STORES)
def test_every_inbox_follows_the_table_of_inbox_cases(name: str, closing: Any) -> None:
    for case in CASES:
        store = closing(STORES[name](Policy(**case["policy"])))
        for at, step in enumerate(case["steps"]):
            shown = f"{case['name']}, step {at}: {step}"
            delivery = offered(step)
            before = store.applied(delivery.line) if delivery.line else None
            verdict = store.offer(delivery, step.get("now", 0), not step.get("fails", False))
            assert word(verdict) == step["verdict"], shown
            if verdict.kind in (Kind.STALE, Kind.GAP):
                assert verdict.applied == before, shown
            if delivery.line:
                assert store.applied(delivery.line) == number(step["applied"]), shown
        store.close()
        store.close = lambda: None


@pytest.mark.parametrize("name", STORES)
def test_the_wait_for_a_gap_needs_no_commit(name: str, closing: Any) -> None:
    store = closing(STORES[name](Policy()))
    gapped = event("2", ("A", 2))
    for now in (NOW, NOW + 59):
        assert store.offer(gapped, now, False) == Verdict(Kind.GAP)
    assert store.offer(gapped, NOW + 60) == Verdict(Kind.GAP, accepted=True)
    assert store.offer(gapped, NOW + 61).kind is Kind.DUPLICATE


@pytest.mark.parametrize("name", STORES)
def test_an_accepted_gap_is_noted_with_its_line_and_key(name: str, closing: Any) -> None:
    store = closing(STORES[name](Policy(on_gap=OnGap.ACCEPT)))
    store.offer(event("1", ("L", 1), key="café \0 1"), NOW)
    store.offer(event("4", ("L", 4), key="café \0 1"), NOW + 1)
    store.offer(event("9", ("M", 9), key=None), NOW + 2)
    noted = [(gap.line, gap.key, gap.applied, gap.seq, gap.noted_at) for gap in store.gaps()]
    assert noted == [("M", None, 0, 9, NOW + 2), ("L", "café \0 1", 1, 4, NOW + 1)]


@pytest.mark.parametrize("name", SQL_STORES)
def test_row_and_effect_are_both_there_or_neither(name: str, closing: Any) -> None:
    store: SqlStore = closing(SQL_STORES[name]())
    assert store.offer(event("1", ("A", 1)), NOW, succeeds=False).applies
    assert (store.effects(), store.applied("A")) == ([], None)
    assert store.offer(event("1", ("A", 1)), NOW).applies
    assert store.offer(event("1", ("A", 1)), NOW).kind is Kind.DUPLICATE
    assert (store.effects(), store.applied("A")) == (["1"], 1)


@pytest.mark.parametrize("name", SQL_STORES)
def test_pruning_forgets_ids_before_places_and_only_its_own_inbox(name: str, closing: Any) -> None:
    store: SqlStore = closing(SQL_STORES[name](Policy(on_gap=OnGap.ACCEPT)))
    other: SqlStore = closing(SQL_STORES[name]())
    store.offer(event("1", ("A", 1)), NOW)
    store.offer(event("3", ("A", 3)), NOW)
    other.offer(event("1", ("A", 1)), NOW)
    day = 24 * 60 * 60
    assert store.prune(NOW + 30 * day) == 0
    assert store.prune(NOW + 30 * day + 1) == 3, "two ids and a noted gap"
    assert store.applied("A") == 3
    assert store.offer(event("1", ("A", 1)), NOW).kind is Kind.STALE, "the place still protects"
    assert store.prune(NOW + 360 * day + 1) == 1
    assert store.applied("A") is None
    assert other.offer(event("1", ("A", 1)), NOW).kind is Kind.DUPLICATE
