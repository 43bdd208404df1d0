import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidegate.gateway.brokers.base import Head, HistoryPage, Publication
from tidegate.gateway.continuity import Chain, Link, break_of, find
from tidegate.gateway.position import make_position


def at(number, salt=0):
    return make_position(number, salt.to_bytes(4, "big")) if number else ""


def event(number, prev, *, epoch="e", salt=0, size=10):
    return Publication(
        position=at(number, salt),
        prev=prev,
        epoch=epoch,
        type="t",
        payload=b"x" * (size - 200) if size > 200 else b"",
    )


def run(first, last, *, prev=None):
    prev = at(first - 1) if prev is None else prev
    events = []
    for number in range(first, last + 1):
        events.append(event(number, prev))
        prev = events[-1].position
    return events


def chain(head=0, max_events=100, max_bytes=10**6):
    made = Chain(max_events, max_bytes)
    made.reset(Head("e", at(head)))
    return made


def page(events, *, head=None, complete=True, epoch="e"):
    position = head if head is not None else events[-1].position if events else ""
    return HistoryPage(publications=events, head=Head(epoch, position), complete=complete)


def test_an_event_whose_prev_is_the_head_is_appended():
    made = chain()
    assert [made.offer(one) for one in run(1, 3)] == [Link.APPENDED] * 3
    assert (made.head, made.base, len(made)) == (at(3), "", 3)


def test_an_event_that_is_there_is_known_and_the_base_too():
    made = chain(4)
    for one in run(5, 7):
        made.offer(one)
    assert [made.offer(one) for one in run(4, 7)] == [Link.KNOWN] * 4


def test_what_skips_an_event_does_not_link():
    made = chain()
    first, second, third = run(1, 3)
    assert made.offer(first) is Link.APPENDED
    assert made.offer(third) is Link.UNLINKED
    assert made.head == first.position
    assert made.offer(second) is Link.APPENDED
    assert made.offer(third) is Link.APPENDED


def test_an_old_position_that_has_left_is_not_taken_for_known():
    made = chain(max_events=2)
    events = run(1, 5)
    for one in events:
        made.offer(one)
    assert made.offer(events[2]) is Link.KNOWN  # the base
    assert made.offer(events[1]) is Link.UNLINKED


def test_the_same_number_with_another_random_part_is_news():
    made = chain()
    first, second = run(1, 2)
    made.offer(first)
    made.offer(second)
    assert made.offer(event(2, first.position, salt=9)) is Link.UNLINKED


def test_another_epoch_never_links_not_even_at_its_beginning():
    made = chain()
    assert made.offer(event(1, "", epoch="other")) is Link.UNLINKED


def test_a_clock_that_went_back_does_not_matter_where_the_chain_links():
    made = chain()
    first = event(9, "")
    assert made.offer(first) is Link.APPENDED
    assert made.offer(event(5, first.position)) is Link.APPENDED
    assert made.head == at(5)


def test_the_ring_is_bounded_in_events_and_bytes_but_keeps_the_newest():
    made = chain(max_events=3)
    for one in run(1, 10):
        made.offer(one)
    assert (len(made), made.base, made.head) == (3, at(7), at(10))
    heavy = chain(max_bytes=500)
    heavy.offer(event(1, "", size=400))
    heavy.offer(event(2, at(1), size=400))
    assert (len(heavy), heavy.base) == (1, at(1))
    heavy.offer(event(3, at(2), size=4000))
    assert (len(heavy), heavy.base) == (1, at(2))


def test_a_reset_empties_the_ring():
    made = chain()
    for one in run(1, 5):
        made.offer(one)
    made.reset(Head("f", at(9)))
    assert (made.epoch, made.base, made.head, len(made)) == ("f", at(9), at(9), 0)
    assert not made.holds(at(3))
    assert made.newest() is None


def test_one_reads_on_from_any_place_in_the_ring():
    made = chain(2, max_events=4)
    for one in run(3, 9):
        made.offer(one)
    assert made.base == at(5)
    for number in range(5, 9):
        assert made.next_after(at(number)).position == at(number + 1)
        assert made.count_after(at(number)) == 9 - number
    assert made.next_after(at(9)) is None
    assert made.newest().position == at(9)


class AgainstAList(RuleBasedStateMachine):
    """The chain against a list of what was appended."""

    def __init__(self):
        super().__init__()
        self.chain = chain(max_events=5, max_bytes=1100)
        self.items = []
        self.base = ""
        self.numbers = itertools.count(1)

    @property
    def head(self):
        return self.items[-1].position if self.items else self.base

    @rule(size=st.sampled_from([200, 400, 900]))
    def append(self, size):
        one = event(next(self.numbers), self.head, size=size)
        assert self.chain.offer(one) is Link.APPENDED
        self.items.append(one)
        while len(self.items) > 5 or (
            sum(i.size for i in self.items) > 1100 and len(self.items) > 1
        ):
            self.base = self.items.pop(0).position

    @rule(data=st.data())
    @precondition(lambda self: self.items)
    def again(self, data):
        assert self.chain.offer(data.draw(st.sampled_from(self.items))) is Link.KNOWN

    @rule()
    def skip(self):
        skipped = next(self.numbers)
        assert self.chain.offer(event(next(self.numbers), at(skipped))) is Link.UNLINKED

    @rule()
    def reset(self):
        self.base = at(next(self.numbers))
        self.items = []
        self.chain.reset(Head("e", self.base))

    @invariant()
    def is_one_linked_chain(self):
        place, seen = self.chain.base, []
        assert place == self.base
        while (one := self.chain.next_after(place)) is not None:
            assert one.prev == place
            assert self.chain.count_after(place) == len(self.items) - len(seen)
            seen.append(one)
            place = one.position
        assert seen == self.items
        assert place == self.chain.head


TestAgainstAList = AgainstAList.TestCase


@pytest.mark.parametrize(
    ("held", "prev", "gap"),
    [
        (3, 3, None),
        (3, 5, "ring_evicted"),
        (5, 3, "history_rewound"),
        (0, 0, None),
        (0, 1, "ring_evicted"),
        (1, 0, "history_rewound"),
    ],
)
def test_why_two_places_do_not_link(held, prev, gap):
    assert break_of(at(held), at(prev)) == gap


def test_a_page_goes_on_behind_the_place():
    events = run(4, 8)
    assert find(page(events), at(3)) == 0
    assert find(page(events), at(6)) == 3
    assert find(page(events), at(8)) == 5


def test_a_page_that_ends_before_the_place_says_nothing():
    assert find(page(run(1, 5), head=at(99), complete=False), at(7)) is None
    assert find(page(run(1, 5), head=at(99), complete=False), at(5)) == 5


def test_trimmed_history_and_a_lost_tail_are_told_apart():
    assert find(page(run(6, 9)), at(3)) == "ring_evicted"
    assert find(page(run(1, 5)), at(7)) == "history_rewound"
    assert find(page([], head=at(9)), at(3)) == "ring_evicted"
    assert find(page([], head=at(2)), at(3)) == "history_rewound"
    # Handed out again behind a restored backup, with another random part.
    again = [*run(1, 4), event(5, at(4), salt=7), event(6, at(5, 7), salt=7)]
    assert find(page(again), at(5, 1)) == "history_rewound"
    assert find(page(again), at(5, 9)) == "history_rewound"


def test_an_expired_history_links_where_nothing_was_missed():
    assert find(page([], head=at(3)), at(3)) == 0


@given(
    first=st.integers(1, 20),
    count=st.integers(0, 20),
    held=st.integers(0, 45),
    salt=st.sampled_from([0, 3]),
)
def test_a_page_links_exactly_where_the_place_is_one_of_its_chain(first, count, held, salt):
    events = run(first, first + count - 1)
    head = events[-1].position if events else at(first - 1)
    place = at(held, salt) if held else ""
    found = find(page(events, head=head), place)
    places = [at(first - 1), *(one.position for one in events)]
    if place in places:
        assert found == places.index(place)
    elif place > places[-1] or place > places[0]:
        assert found == "history_rewound"
    else:
        assert found == "ring_evicted"
