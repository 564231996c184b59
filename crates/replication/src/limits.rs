//! Every bound in the client, with its reason.

use std::time::Duration;

/// Longest message of a stream, in bytes. A row that is longer ends the stream: skipping it would lose it.
/// A payload of 1 MiB has 2 MiB as the text of a `bytea`; what is left is room for other columns.
pub const MESSAGE_LEN_MAX: usize = 64 * 1024 * 1024;

/// Longest answer to a command, and longest message while a session begins, in bytes. The longest that is
/// expected is an error with its context.
pub const ANSWER_LEN_MAX: usize = 1024 * 1024;

/// Most rows in the answer to a command: every command that the client sends has fewer.
pub const ANSWER_ROWS_MAX: usize = 1_000;

/// Most bytes that wait for the caller, beside one message that may be longer. Past it the socket is not
/// read, and the server waits.
pub const BUFFERED_BYTES_MAX: u32 = 8 * 1024 * 1024;

/// What a waiting frame counts beside its own bytes, about what it takes in memory: it bounds how many wait.
pub const FRAME_OVERHEAD: u32 = 256;

/// How many bytes are asked of the socket at a time.
pub const READ_LEN: usize = 64 * 1024;

/// How long the socket is left alone after a read that brought changes, and less than [`SMALL_READ_LEN`]. What comes
/// meanwhile is read together: a thousand commits a second wake the client 250 times. A commit that comes alone is
/// read at once.
pub const READ_PAUSE: Duration = Duration::from_millis(3);

/// Below how many bytes a read is a small one. More come where the client is behind the server.
pub const SMALL_READ_LEN: usize = 8 * 1024;

/// How long connecting to one host may take, with TLS and authentication.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a command may take that waits for nobody.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the server keeps a silent client's session, and with it the slot. PostgreSQL's default of 60 s
/// would keep the slot of a vanished machine from its successor for a minute.
pub const WAL_SENDER_TIMEOUT: Duration = Duration::from_secs(10);

/// How many times within the server's timeout a status is sent: one that is late does no harm.
pub const STATUSES_PER_TIMEOUT: u32 = 4;

/// How long sent bytes may be unacknowledged before the server counts as gone. A status every few seconds
/// keeps some on their way, so a dead server is noticed even where nothing changes.
pub const TCP_USER_TIMEOUT: Duration = Duration::from_secs(15);

/// How long the server may say nothing although it was asked. Decoding a large transaction of other tables
/// takes a while in which old versions are silent.
pub const SILENCE_MAX: Duration = Duration::from_secs(120);

/// How long the end of a stream may take: the last status is sent and the server closes.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest name of a slot, in bytes: PostgreSQL's identifiers have no more.
pub const SLOT_NAME_LEN_MAX: usize = 63;
