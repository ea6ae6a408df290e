"""Where things are: XLA's typed-FFI structs (64-bit words), and the blocks shared with the native handler.

The first part restates the public C header `xla/ffi/api/c_api.h` (API 0.3; later minor versions only append).
Indices count 8-byte words from the start of a struct; names ending in _BYTE are byte offsets of 32-bit
fields.
"""

# XLA_FFI_CallFrame
FRAME_EXTENSION = 1
FRAME_API = 2
FRAME_CONTEXT = 3
FRAME_NUM_ARGS = 7
FRAME_ARGS = 9
FRAME_NUM_RESULTS = 12
FRAME_RESULTS = 14
FRAME_NUM_ATTRS = 17
FRAME_ATTR_NAMES = 19
FRAME_ATTRS = 20
FRAME_FUTURE = 21

# XLA_FFI_Buffer
BUFFER_DTYPE_BYTE = 16
BUFFER_DATA = 3
BUFFER_RANK = 4
BUFFER_DIMS = 5

# XLA_FFI_Api: function pointers
API_ERROR_CREATE = 6
API_ERROR_DESTROY = 8
API_STATE_SET = 13
API_STATE_GET = 14
API_SCHEDULE = 17
API_NUM_THREADS = 18
API_FUTURE_CREATE = 19
API_FUTURE_SET_AVAILABLE = 20

# XLA_FFI_Metadata_Extension and the XLA_FFI_Metadata it points to
EXTENSION_TYPE_BYTE = 8
EXTENSION_NEXT = 2
EXTENSION_METADATA = 3
METADATA_TYPE = 1
METADATA_MAJOR_BYTE = 24
METADATA_MINOR_BYTE = 28
METADATA_TRAITS_BYTE = 32
METADATA_STATE_TYPE = 5
API_MAJOR = 0
API_MINOR = 3

# Words of the argument structs of API functions, struct_size in word 0 and a null extension in word 1
ARGS_CONTEXT = 2
ERROR_MESSAGE = 2
ERROR_CODE = 3
STATE_STAGE = 3  # XLA_FFI_ExecutionStage_INSTANTIATE = 0
STATE_TYPE = 4
STATE_VALUE = 5
SCHEDULE_TASK = 3
SCHEDULE_DATA = 4
THREADS_OUT = 3
FUTURE = 2
PROFILER_CREATED = 3  # of PLUGIN_Profiler_Create_Args
PROFILER_BUFFER = 2  # of PLUGIN_Profiler_CollectData_Args
PROFILER_BUFFER_BYTES = 3
CODE_INVALID_ARGUMENT = 3
CODE_RESOURCE_EXHAUSTED = 8
CODE_INTERNAL = 13

PJRT_API_WORDS = 160  # behind its version: functions, of which a plugin with nothing but a profiler has none

# Kernel descriptor: two per kernel, written once by Python, read by the handler
KERNEL_NUM_ARGS = 0
KERNEL_NUM_RESULTS = 1
KERNEL_SCRATCH = 2
KERNEL_ARENA = 3
KERNEL_NUM_PHASES = 4
KERNEL_LEAVES = 5
KERNEL_PHASES = 6
PHASE_FUNCTION = 0
PHASE_PROGRAMS = 1
PHASE_ALONE_NS = 2
PHASE_WORDS = 3

# Process block: one per process
PROCESS_TYPE_ID = 0
PROCESS_THREADS = 1
PROCESS_SERIAL_NS = 2
PROCESS_MALLOC = 3
PROCESS_FREE = 4
PROCESS_MADVISE = 5
PROCESS_YIELD = 6
PROCESS_ITEMSIZES = 7
PROCESS_MESSAGE_COUNTS = 8
PROCESS_MESSAGE_MEMORY = 9
PROCESS_TASK = 10
PROCESS_PYTHON_THREAD = 11
PROCESS_IN_PLACE = 12
PROCESS_TRACED = 13
PROCESS_THREAD = 15
PROCESS_LEFT = 14  # calls that left the threads which made them
PROCESS_MEMORY_SLOTS = 16
PROCESS_JOIN_SLOTS = 80
NUM_SLOTS = 64
PROCESS_NUM_POOL = PROCESS_JOIN_SLOTS + NUM_SLOTS
PROCESS_POOL = PROCESS_NUM_POOL + 1
MOST_POOL = 128
PROCESS_AWAKE_NS = PROCESS_POOL + MOST_POOL
PROCESS_CLOCK = PROCESS_AWAKE_NS + 1
PROCESS_CLOCK_ID = PROCESS_AWAKE_NS + 2
PROCESS_SEEN = PROCESS_AWAKE_NS + 3  # when, by the clock, threads have last run a phase
PROCESS_CALLED = PROCESS_AWAKE_NS + 4  # when Python has last called a kernel that one thread ran
PROCESS_STREAK = PROCESS_AWAKE_NS + 5  # how many such calls came one after another
PROCESS_WORDS = PROCESS_AWAKE_NS + 6
STAY_AWAKE_NS = 35_000  # that a thread of the pool looks for work before it sleeps, and a little
STREAK = 3  # calls, which by then have lost about what it costs to wake a thread

# Memory block of one call: a header, then pointers, scratch and arenas
MEMORY_RAW = 0
MEMORY_CAPACITY = 1
MEMORY_HEADER_BYTES = 64
KEEP_BYTES = 1 << 28  # larger blocks go back to the C library after the call
HUGE_BYTES = 1 << 22  # results and blocks of this size ask for huge pages
HUGE_PAGE = 1 << 21
MADV_HUGEPAGE = 14

# Join block of one call: these words, then two for each phase
JOIN_REFS = 0
JOIN_ARRIVED = 1
JOIN_KERNEL = 2
JOIN_BUFS = 3
JOIN_ARENAS = 4
JOIN_ARENA_BYTES = 5
JOIN_API = 6
JOIN_FUTURE = 7
JOIN_FINISHED = 8
JOIN_PHASES = 10
JOIN_NEXT = 0
JOIN_DONE = 1
JOIN_PHASE_WORDS = 2
JOIN_BYTES = 512  # or more: of one that may be kept for a call with more phases

# XLA_FFI_DataType code -> bytes of an element; 0 for types that no kernel writes
ITEMSIZES = {
    1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 2, 8: 4, 9: 8,
    10: 2, 11: 4, 12: 8, 15: 8, 16: 2, 18: 16, 19: 1, 20: 1, 21: 1, 22: 1,
}  # fmt: skip
"""See `XLA_FFI_DataType`; 4-bit integers take a whole byte on CPU."""
NUM_DTYPES = 64
