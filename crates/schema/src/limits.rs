//! Every bound in schemas and their budget, with its reason.

use railpost_engine::Span;

/// How long a tenant's event types are believed without asking the store again. Another node's change
/// counts after this at the latest; this node's own at once.
pub const EVENT_TYPES_BELIEVED_FOR: Span = Span::from_secs(5);

/// Tenants whose event types are in memory at once: past it those not asked for lately are forgotten.
pub const EVENT_TYPES_TENANTS_MAX: usize = 10_000;

/// Schema errors of one event that are reported: the first few are enough.
pub const SCHEMA_PROBLEMS_MAX: usize = 10;

/// Steps that one payload may take to be held against its schema. A step takes 2 to 10 ns, so it is less than
/// half a second; what is ordinary takes some hundred.
pub const SCHEMA_COST_MAX: u64 = 40_000_000;

/// Steps that a schema may take for one value of a payload: of more, not even a small payload could be held
/// against it.
pub const SCHEMA_STEPS_PER_VALUE_MAX: u64 = 400_000;

/// Depth of payloads that a schema is judged by when it is registered. A recursive schema costs more the
/// deeper a payload is; what goes deeper is judged with the payload.
pub const SCHEMA_JUDGED_DEPTH: usize = 8;

/// Schemas that may be open at once, one inside the other: each takes a few hundred bytes of the stack, and
/// is looked at for each that is opened inside it.
pub const SCHEMA_CHAIN_MAX: u64 = 1_000;

/// Steps that finding out where a payload does not fit may take. Each may find a misfit of some 300 bytes, and
/// all are gathered before the first is told: 60 MB.
pub const SCHEMA_ERRORS_COST_MAX: u64 = 200_000;

/// Schemas inside one schema: to compile it takes a few frames of the stack for each, at worst.
pub const SCHEMA_NODES_MAX: usize = 10_000;

/// Patterns in one schema, and bytes that each may take compiled, and once more while it is used: 100 MB at
/// the very most.
pub const SCHEMA_PATTERNS_MAX: usize = 200;
/// See [`SCHEMA_PATTERNS_MAX`].
pub const SCHEMA_PATTERN_LEN_MAX: usize = 256 * 1024;

/// Places of one pattern, with its repetitions written out: each may be looked at for every byte of a text.
pub const SCHEMA_PATTERN_PLACES_MAX: u64 = 2_000;

/// Steps that a request may take on the server's own threads, for all its events: 0.1 ms. And bytes of a
/// payload that is parsed there: some 50 µs.
pub const SCHEMA_INLINE_COST_MAX: u64 = 10_000;
/// See [`SCHEMA_INLINE_COST_MAX`].
pub const SCHEMA_INLINE_LEN_MAX: usize = 16 * 1024;
/// Schemas that may be open at once there: the stack of those threads is small.
pub const SCHEMA_INLINE_CHAIN_MAX: u64 = 100;

/// Fewest threads for validation at once: with two, one is left whatever one tenant does.
pub const VALIDATION_THREADS_MIN: usize = 2;

/// Bytes of the stack of such a thread: to compile the longest chain of schemas takes a part of it. Only what
/// is used is taken.
pub const VALIDATION_STACK_LEN: usize = 128 * 1024 * 1024;

/// Longest that a request waits for such a thread, and then for the thread. The budget of steps ends the work
/// long before; if it does not, the client hears so and the thread ends by itself.
pub const VALIDATION_WAIT_MAX: Span = Span::from_secs(5);
/// See [`VALIDATION_WAIT_MAX`].
pub const VALIDATION_TIME_MAX: Span = Span::from_secs(5);

/// Tenants whose share of the threads is remembered: past it, those that have nothing under way are forgotten.
pub const VALIDATION_TENANTS_MAX: usize = 1_000;
