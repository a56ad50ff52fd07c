# The types with which Cython compiles block_loops.py; without them it compiles as well, and slower.
cimport cython

cpdef object numbers(Py_ssize_t count, long long value)


@cython.locals(block_hash=object)
cpdef bint are_bytes(list hashes) except? -1


cdef class BlockLoops:
    cdef readonly Py_ssize_t num_blocks
    cdef long long[::1] _next
    cdef long long[::1] _previous
    cdef long long[::1] _ref_counts
    cdef long long[::1] _seen
    cdef list _keys
    cdef long long _round
    cdef tuple _arguments

    @cython.locals(
        next_of="long long[::1]", previous_of="long long[::1]", ref_counts="long long[::1]",
        head="long long", outside="long long", block_id="long long", remaining="long long",
        taken=list,
    )
    cpdef list take(self, long long count)

    @cython.locals(
        next_of="long long[::1]", previous_of="long long[::1]", ref_counts="long long[::1]",
        block_id="long long", count="long long", before="long long", after="long long",
        outside="long long", left="long long",
    )
    cpdef long long hold(self, list block_ids) except? -1

    @cython.locals(
        next_of="long long[::1]", previous_of="long long[::1]", ref_counts="long long[::1]",
        keys=list, block_id="long long", count="long long", tail="long long", last="long long",
        joined="long long",
    )
    cpdef long long release(self, list block_ids, list to_head) except? -1

    @cython.locals(
        ref_counts="long long[::1]", keys=list, seen="long long[::1]", num_blocks="long long",
        this_round="long long", entry=object, block_id="long long",
    )
    cpdef bint are_held_once(self, list block_ids, bint unkeyed=*) except? -1

    @cython.locals(
        ref_counts="long long[::1]", keys=list, num_blocks="long long", entry=object,
        block_id="long long",
    )
    cpdef bint have_content(self, list block_ids) except? -1
