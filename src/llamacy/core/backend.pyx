# distutils: language = c++
"""Compute backends and devices of this process."""

from libcpp.vector cimport vector

from llamacy.core._status cimport native_error
from llamacy.core.log cimport log_begin, log_install
from llamacy.native cimport ggml_backend as c_backend
from llamacy.native cimport llama as c_llama

import json
import os
import threading
from pathlib import Path

from llamacy.errors import BackendError
from llamacy.types import DeviceType, NumaStrategy

__all__ = ["Device", "add_rpc_server", "backends", "devices", "initialize", "numa_init", "system_info"]

cdef extern from "_cpu_features.h" nogil:
    int llamacy_cpu_has(const char* feature)

ctypedef c_backend.ggml_backend_reg_t (*_rpc_add_server_t)(const char* endpoint) noexcept nogil

cdef object _lock = threading.Lock()
cdef bint _ready = False

# only this module may make these objects: an empty one would lead native code astray
cdef bint _wrapping = False


cdef class Device:
    """One compute device: the CPU, a GPU, an accelerator.

    Devices come from `devices()`; they can't be created and live as long as the process.

    Source: ``ggml_backend_dev_*`` of ggml-backend.h.
    """

    def __cinit__(self):
        if not _wrapping:
            raise TypeError("devices are found, not made: use llamacy.devices()")

    @property
    def name(self):
        """Name by which the device is asked for, for instance ``"CPU"`` or ``"CUDA0"``."""
        return c_backend.ggml_backend_dev_name(self._ptr).decode("utf-8", "replace")

    @property
    def description(self):
        """What the hardware calls itself."""
        return c_backend.ggml_backend_dev_description(self._ptr).decode("utf-8", "replace")

    @property
    def type(self):
        """`DeviceType` of the device."""
        return DeviceType(<int>c_backend.ggml_backend_dev_type(self._ptr))

    @property
    def backend(self):
        """Name of the backend that drives the device."""
        cdef c_backend.ggml_backend_reg_t reg = c_backend.ggml_backend_dev_backend_reg(self._ptr)
        return c_backend.ggml_backend_reg_name(reg).decode("utf-8", "replace")

    @property
    def memory(self):
        """Free and total memory in bytes, as `(free, total)`; zeros where the backend doesn't know."""
        cdef size_t free = 0
        cdef size_t total = 0
        with nogil:
            c_backend.ggml_backend_dev_memory(self._ptr, &free, &total)
        return free, total

    @property
    def device_id(self):
        """Bus address or other identity of the hardware, or None."""
        cdef c_backend.ggml_backend_dev_props props
        c_backend.ggml_backend_dev_get_props(self._ptr, &props)
        return None if props.device_id == NULL else props.device_id.decode("utf-8", "replace")

    @property
    def capabilities(self):
        """What the device can do, as a dict of bool: async, host_buffer, buffer_from_host_ptr, events."""
        cdef c_backend.ggml_backend_dev_props props
        c_backend.ggml_backend_dev_get_props(self._ptr, &props)
        return {
            "async": bool(props.caps.async_),
            "host_buffer": bool(props.caps.host_buffer),
            "buffer_from_host_ptr": bool(props.caps.buffer_from_host_ptr),
            "events": bool(props.caps.events),
        }

    @property
    def buffer_types(self):
        """Names of the buffer types that tensors can be placed in with `tensor_buft_overrides`."""
        cdef vector[c_backend.ggml_backend_buffer_type_t] found
        cdef size_t i
        _buffer_types(self._ptr, found)
        return tuple([c_backend.ggml_backend_buft_name(found[i]).decode() for i in range(found.size())])

    def __eq__(self, other):
        return isinstance(other, Device) and (<Device>other)._ptr == self._ptr

    def __hash__(self):
        return hash(<size_t>self._ptr)

    def __repr__(self):
        free, total = self.memory
        return f"<Device {self.name} ({self.type.name}, {self.description}, {free >> 20} of {total >> 20} MiB free)>"


cdef Device device_wrap(c_backend.ggml_backend_dev_t dev):
    global _wrapping
    cdef Device device
    _wrapping = True
    try:
        device = Device.__new__(Device)
    finally:
        _wrapping = False
    device._ptr = dev
    return device


cdef Device device_find(object device):
    """Return the device itself, or the one of that name."""
    if isinstance(device, Device):
        return device
    backend_initialize()
    for known in devices():
        if known.name == device:
            return known
    names = ", ".join(known.name for known in devices())
    raise BackendError(f"no device is named {device!r}; devices here: {names}")


def devices():
    """Return the compute devices of this process.

    Returns
    -------
    list of Device
        In the order of llama.cpp. The CPU is one of them.
    """
    backend_initialize()
    cdef size_t i
    return [device_wrap(c_backend.ggml_backend_dev_get(i)) for i in range(c_backend.ggml_backend_dev_count())]


def backends():
    """Return the backends of this process and the features each was built with.

    Returns
    -------
    dict of str to dict of str to str
        For instance ``{"CPU": {"AVX2": "1", "REPACK": "1", …}}``.
    """
    backend_initialize()
    cdef size_t i
    found = {}
    for i in range(c_backend.ggml_backend_reg_count()):
        reg = c_backend.ggml_backend_reg_get(i)
        found[c_backend.ggml_backend_reg_name(reg).decode()] = _features(reg)
    return found


def system_info():
    """Return llama.cpp's one-line description of what this build and CPU use."""
    backend_initialize()
    return c_llama.llama_print_system_info().decode("utf-8", "replace")


def initialize():
    """Load the backends; called by everything that needs them, so calling it is only of use to do it early.

    Raises
    ------
    BackendError
        No CPU backend fits this CPU, or the build uses instructions that this CPU does not have.
    """
    backend_initialize()


def numa_init(strategy):
    """Place threads and memory for a machine with several memory nodes; call it before any model is loaded.

    Parameters
    ----------
    strategy : NumaStrategy
        How to place them.
    """
    cdef int value = NumaStrategy(strategy)
    backend_initialize()
    with nogil:
        c_llama.llama_numa_init(<c_llama.ggml_numa_strategy>value)


def add_rpc_server(endpoint):
    """Make the devices of a remote ggml RPC server available here.

    Parameters
    ----------
    endpoint : str
        ``"host:port"``.

    Returns
    -------
    list of Device
        The devices that the server added.

    Raises
    ------
    BackendError
        This build has no RPC backend, or the server can't be reached.
    """
    cdef _rpc_add_server_t add
    cdef c_backend.ggml_backend_reg_t reg
    cdef size_t i
    backend_initialize()
    text = os.fsencode(endpoint)
    reg = c_backend.ggml_backend_reg_by_name("RPC")
    if reg == NULL:
        raise BackendError(
            "this build has no RPC backend; install llamacy with CMAKE_ARGS=-DGGML_RPC=ON to have it"
        )
    add = <_rpc_add_server_t>c_backend.ggml_backend_reg_get_proc_address(reg, "ggml_backend_rpc_add_server")
    cdef const char* c_endpoint = text
    log_begin()
    with nogil:
        reg = add(c_endpoint)
    if reg == NULL:
        raise native_error(BackendError, f"no RPC server answers at {endpoint!r}")
    c_backend.ggml_backend_register(reg)
    return [
        device_wrap(c_backend.ggml_backend_reg_dev_get(reg, i))
        for i in range(c_backend.ggml_backend_reg_dev_count(reg))
    ]


cdef int backend_initialize() except -1:
    global _ready
    if _ready:
        return 0
    with _lock:
        if not _ready:
            log_install()
            log_begin()
            _check_build()
            _load_backends()
            with nogil:
                c_llama.llama_backend_init()
            _check_cpu()
            _ready = True
    return 0


cdef void* cpu_proc_address(const char* name) noexcept:
    """Return a function of the CPU backend, which may be a module that nothing links against."""
    cdef c_backend.ggml_backend_dev_t dev = c_backend.ggml_backend_dev_by_type(
        c_backend.GGML_BACKEND_DEVICE_TYPE_CPU
    )
    if dev == NULL:
        return NULL
    return c_backend.ggml_backend_reg_get_proc_address(c_backend.ggml_backend_dev_backend_reg(dev), name)


cdef c_backend.ggml_backend_buffer_type_t buffer_type_find(object name) except NULL:
    """Return the buffer type of that name, of whichever device has it."""
    cdef vector[c_backend.ggml_backend_buffer_type_t] found
    cdef size_t i
    backend_initialize()
    for i in range(c_backend.ggml_backend_dev_count()):
        _buffer_types(c_backend.ggml_backend_dev_get(i), found)
    known = {}
    for i in range(found.size()):
        known[c_backend.ggml_backend_buft_name(found[i]).decode()] = None
        if c_backend.ggml_backend_buft_name(found[i]).decode() == name:
            return found[i]
    raise BackendError(f"no buffer type is named {name!r}; buffer types here: {', '.join(known)}")


cdef int _load_backends() except -1:
    """Load backend modules from the package's own folder, never from the working directory or from PATH."""
    if c_backend.ggml_backend_reg_count() > 0:
        return 0  # linked in
    folder = _library_folder()
    path = os.fsencode(folder)
    cdef const char* c_path = path
    with nogil:
        c_backend.ggml_backend_load_all_from_path(c_path)
    if c_backend.ggml_backend_dev_by_type(c_backend.GGML_BACKEND_DEVICE_TYPE_CPU) == NULL:
        raise native_error(BackendError, f"no CPU backend in {folder} runs on this CPU; install llamacy from source")
    return 0


cdef object _library_folder():
    return Path(__file__).resolve().parent.parent / "_lib"


cdef int _check_build() except -1:
    """Refuse a build for another CPU before any of its code runs: ggml's CPU backend already starts with it."""
    facts = json.loads((_library_folder() / "build.json").read_text(encoding="utf-8"))
    return _refuse_missing(facts["cpu_features"])


cdef int _check_cpu() except -1:
    """Refuse instructions that only ggml tells of: the first decode would kill the process."""
    cdef c_backend.ggml_backend_dev_t dev = c_backend.ggml_backend_dev_by_type(
        c_backend.GGML_BACKEND_DEVICE_TYPE_CPU
    )
    features = _features(c_backend.ggml_backend_dev_backend_reg(dev))
    return _refuse_missing([name for name, value in features.items() if value != "0"])


cdef int _refuse_missing(features) except -1:
    missing = [name for name in features if llamacy_cpu_has(name.encode()) == 0]
    if missing:
        raise BackendError(
            f"this build of llamacy uses {', '.join(missing)}, which this CPU does not have; "
            "install it from source on this machine, or install a wheel"
        )
    return 0


cdef void _buffer_types(
    c_backend.ggml_backend_dev_t dev, vector[c_backend.ggml_backend_buffer_type_t]& found
):
    """Append the device's own and its host buffer type.

    Its extra ones, which repack weights, are not for asking: llama.cpp crashes when a tensor is put there that they
    don't take. It uses them by itself (use_extra_bufts).
    """
    cdef c_backend.ggml_backend_buffer_type_t host = c_backend.ggml_backend_dev_host_buffer_type(dev)
    found.push_back(c_backend.ggml_backend_dev_buffer_type(dev))
    if host != NULL:
        found.push_back(host)


cdef dict _features(c_backend.ggml_backend_reg_t reg):
    cdef c_backend.ggml_backend_get_features_t get
    cdef c_backend.ggml_backend_feature* feature
    get = <c_backend.ggml_backend_get_features_t>c_backend.ggml_backend_reg_get_proc_address(
        reg, "ggml_backend_get_features"
    )
    found = {}
    if get != NULL:
        feature = get(reg)
        while feature != NULL and feature.name != NULL:
            found[feature.name.decode()] = feature.value.decode()
            feature += 1
    return found
