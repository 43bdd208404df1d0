from tests.stream.driver import make_scope
from tidegate.stream.transport import transport_of


def test_the_extension_is_found_or_none():
    offered = {"reset": None, "buffered": None, "flush": None, "hold": None}
    assert transport_of(make_scope()) is None
    assert transport_of(make_scope(extensions=None)) is None
    assert transport_of(make_scope(extensions={})) is None
    assert transport_of(make_scope(extensions={"tidegate.transport": offered})) is offered
