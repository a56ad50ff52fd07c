"""Shadow memory: writes by table, simultaneous copies, reads that name what is wrong."""

from poolproof.reference.shadow_memory import Misread, ShadowMemory, Writer

A, B = Writer(0, 1), Writer(1, 2)


def names(text):
    return [bytes([c]) for c in text.encode()]


def written(table=(2, 0), text="abcdef", first=0):
    memory = ShadowMemory(4, 4)
    memory.write(table, 4, first, names(text), A)
    return memory


def test_what_was_written_is_read_through_the_same_table():
    memory = written()
    assert memory.misread((2, 0), 4, names("abcdef"), 0, 6) is None
    assert memory.slots[2] == names("abcd")
    assert memory.slots[0][:2] == names("ef")


def test_a_write_may_begin_inside_a_block():
    memory = written(text="cdef", first=2)
    assert memory.slots[2] == [None, None, *names("cd")]
    assert memory.misread((2, 0), 4, names("abcdef"), 2, 6) is None


def test_an_unwritten_slot_is_named():
    memory = written(text="abc")
    found = memory.misread((2, 0), 4, names("abcdef"), 0, 6)
    assert found == Misread(3, 2, 3, b"d", None, None)


def test_a_foreign_slot_is_named_with_its_writer():
    memory = written()
    memory.write((0,), 4, 1, names("x"), B)
    found = memory.misread((2, 0), 4, names("abcdef"), 0, 6)
    assert found == Misread(5, 0, 1, b"f", b"x", B)


def test_reading_begins_where_it_is_told():
    memory = written(text="xbcdef")
    assert memory.misread((2, 0), 4, names("abcdef"), 1, 6) is None
    assert memory.misread((2, 0), 4, names("abcdef"), 0, 6).position == 0
    assert memory.misread((2, 0), 4, names("abcdef"), 3, 3) is None


def test_a_read_that_begins_inside_a_block_goes_on_through_the_next():
    memory = written()
    memory.write((0,), 4, 0, names("x"), B)
    assert memory.misread((2, 0), 4, names("abcdef"), 1, 6) == Misread(4, 0, 0, b"e", b"x", B)


def test_copies_of_one_list_happen_at_once():
    memory = ShadowMemory(3, 1)
    for block, name in enumerate(names("abc")):
        memory.write((block,), 1, 0, [name], A)
    memory.copy([(0, 1), (1, 2), (2, 0)])
    assert [slots[0] for slots in memory.slots] == names("cab")


def test_a_copy_may_come_from_other_memory_and_is_no_alias():
    device, host = written(), ShadowMemory(2, 4)
    host.copy([(2, 1)], device)
    device.write((2,), 4, 0, names("zzzz"), B)
    assert host.slots[1] == names("abcd")
    assert host.writers[1] == [A] * 4


def test_a_state_stands_for_all_before_it():
    memory = ShadowMemory(4, 4)
    memory.write_state(3, b"d", A)
    memory.write_state(1, b"f", A)
    assert memory.misread_state(1, names("abcdef"), 6) is None
    assert memory.misread_state(3, names("abcdef"), 4) is None
    assert memory.misread_state(3, names("abcdef"), 0) is None
    assert memory.misread_state(1, names("abcdef"), 5) == Misread(4, 1, 0, b"e", b"f", A)


def test_a_state_is_copied_and_stays_where_it_was():
    memory = ShadowMemory(4, 4)
    memory.write_state(3, b"d", A)
    memory.copy_state(3, 0)
    assert memory.misread_state(0, names("abcd"), 4) is None
    assert memory.misread_state(3, names("abcd"), 4) is None
    assert memory.writers[0][0] == A


def test_the_first_state_is_read_like_the_others():
    memory = ShadowMemory(1, 4)
    assert memory.misread_state(0, names("a"), 1) == Misread(0, 0, 0, b"a", None, None)


def test_heads_are_copied_at_once_and_leave_the_other_slots():
    memory = ShadowMemory(3, 2)
    memory.write((0, 1), 2, 0, names("abcd"), A)
    memory.copy_heads([(0, 1, 1), (1, 2, 2)])
    assert memory.slots == [names("ab"), names("ad"), names("cd")]
    assert memory.writers[2] == [A, A]
    memory.write((2,), 2, 0, names("x"), B)
    memory.copy_heads([(2, 0, 1)])
    assert (memory.slots[0], memory.writers[0]) == (names("xb"), [B, A])
    memory.copy_heads([(2, 0, 0)])
    assert memory.slots[0] == names("xb")


def test_blocks_that_were_written_or_copied_to_are_noted():
    memory = written()
    assert memory.changed == {0, 2}
    memory.changed.clear()
    memory.copy([(2, 3)])
    memory.copy_heads([(2, 1, 1)])
    assert memory.changed == {1, 3}


def test_a_block_gets_what_another_one_held():
    memory = written()
    memory.put(1, memory.held(2))
    assert (memory.slots[1], memory.writers[1]) == (names("abcd"), [A] * 4)


def test_what_is_kept_elsewhere_stays_as_it_was_when_its_block_is_written():
    memory = written()
    kept = memory.held(2)
    memory.write((2,), 4, 0, names("zzzz"), B)
    assert kept == (names("abcd"), [A] * 4)


def test_what_is_kept_elsewhere_stays_as_it_was_when_a_block_that_got_it_is_written():
    memory = written()
    kept = memory.held(2)
    memory.put(1, kept)
    memory.write((1,), 4, 0, names("zzzz"), B)
    assert kept == (names("abcd"), [A] * 4)


def test_a_block_that_gets_what_nobody_kept_counts_as_unwritten():
    memory = written()
    memory.put(2, None)
    assert (memory.slots[2], memory.writers[2]) == ([None] * 4, [None] * 4)


def test_a_block_that_gets_what_was_kept_elsewhere_is_noted():
    memory = written()
    memory.changed.clear()
    memory.put(3, memory.held(2))
    assert memory.changed == {3}


def test_a_block_that_is_filled_with_something_else_has_changed():
    memory = written()
    memory.changed.clear()
    memory.fill(2, b"s", B)
    assert memory.changed == {2}
    assert memory.last_written(2) == (b"s", B)
