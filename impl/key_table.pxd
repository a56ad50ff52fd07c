# The types with which Cython compiles key_table.py; without them it compiles as well, and slower.
cimport cython


cdef class KeyTable:
    cdef list _keys
    cdef Py_ssize_t _mask
    cdef Py_ssize_t _num_entries
    cdef long long[::1] _slots

    @cython.locals(slot="Py_ssize_t")
    cpdef object get(self, object key)

    @cython.locals(slots="long long[::1]", found=list, slot="Py_ssize_t")
    cpdef list find_prefix(self, list keys)

    @cython.locals(
        held=list, position="Py_ssize_t", rivalled=list, block_id="long long", value="Py_hash_t",
        slot="Py_ssize_t",
    )
    cpdef list enter_n(self, list block_ids, list keys)

    @cython.locals(
        keys=list, left=list, asks=bint, block_id="long long", key=object, slot="Py_ssize_t",
    )
    cpdef list leave_n(self, list block_ids, object kept)

    @cython.locals(
        slots="long long[::1]", keys=list, mask="Py_ssize_t", slot="Py_ssize_t",
        block_id="long long", there=object,
    )
    cdef Py_ssize_t _find(self, object key, Py_hash_t value) except? -9223372036854775807

    @cython.locals(slots="long long[::1]", mask="Py_ssize_t", slot="Py_ssize_t")
    cdef Py_ssize_t _find_block(self, long long block_id, Py_hash_t value) except -1

    @cython.locals(slots="long long[::1]")
    cdef void _fill(self, Py_ssize_t slot, Py_hash_t value, long long block_id)

    @cython.locals(
        slots="long long[::1]", mask="Py_ssize_t", slot="Py_ssize_t", hole="Py_ssize_t",
        block_id="long long", value="long long",
    )
    cdef void _vacate(self, Py_ssize_t hole)
