from libc.stdint cimport int32_t

from llamacy.native.handles cimport llama_sampler


# Make a sampler that does what `native` does, and tells a shortlist which tokens it may change: of the `last_n` that it
# accepted last, those it looks at; with `follows`, only those that came after an earlier place of the last one.
# `lowers` says that it never raises a logit. It owns the native sampler, also when this raises.
cdef llama_sampler* watched_sampler_new(llama_sampler* native, int32_t last_n, bint lowers, bint follows) except NULL
