# distutils: language = c++
"""Samplers that tell which tokens they may change: see _watched_sampler.h."""

from libc.stdint cimport int32_t
from libcpp cimport bool as cbool

__all__ = []

cdef extern from "_watched_sampler.h" namespace "llamacy" nogil:
    llama_sampler* watched_new(llama_sampler* native, size_t n_last, cbool lowers, cbool follows) except +


cdef llama_sampler* watched_sampler_new(llama_sampler* native, int32_t last_n, bint lowers, bint follows) except NULL:
    return watched_new(native, last_n, lowers, follows)
