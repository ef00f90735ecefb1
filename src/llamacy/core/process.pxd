from llamacy.core.batch_ext cimport ExtendedBatch


cdef int batch_ext_process(ExtendedBatch self, bint encode) except -1 nogil
