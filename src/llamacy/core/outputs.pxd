# Read-only views of native output rows.

from llamacy.core.context cimport Context


cdef class Rows:
    cdef Context _context               # holds the memory
    cdef const float* _data
    cdef Py_ssize_t[2] _shape
    cdef Py_ssize_t[2] _strides
    cdef int _ndim
    cdef bint _writable                 # lent to a processor of logits
    cdef bint _logits                   # logits stay where they are as long as the output buffer does
    cdef Py_ssize_t _n_exports
    cdef unsigned long long _epoch      # Context.epoch when the view was made


cdef class Outputs:
    cdef Context _context


cdef Outputs outputs_wrap(Context context)
cdef Rows row_view(Context context, const float* data, Py_ssize_t n_columns, bint logits)
cdef Rows writable_row_view(Context context, float* logits)
cdef Rows rows_view(Context context, const float* data, Py_ssize_t n_rows, Py_ssize_t n_columns, bint logits)
