"""Every bound of the package, with its reason. Times are in seconds."""

# What both sides of the wire agree on.

#: Longest event id, in characters.
ID_LEN_MAX = 64
#: Longest id of a line (`X-Lane`), in characters.
LINE_LEN_MAX = 64
#: Longest key, in bytes of UTF-8.
KEY_LEN_MAX = 256
#: Longest event type, in characters.
EVENT_TYPE_LEN_MAX = 128
#: Largest seq: what a signed column of 64 bits holds.
SEQ_MAX = 2**63 - 1
#: Largest number of an attempt and of a schema version: 32 bits.
U32_MAX = 2**32 - 1
#: Longest name of a header, in characters.
HEADER_NAME_LEN_MAX = 64
#: Fewest and most bytes of a secret: weaker ones can be guessed, longer ones add nothing.
SECRET_LEN_MIN, SECRET_LEN_MAX = 24, 64
#: Most signatures of one request that are looked at, so that a request cannot buy much work.
SIGNATURES_MAX = 32
#: How far a timestamp may be off, to either side: clocks differ, and captured requests age.
TOLERANCE_DEFAULT = 5 * 60
#: Longest name and value of a CloudEvent's attribute, in bytes, and most extensions of one.
ATTRIBUTE_NAME_LEN_MAX, ATTRIBUTE_LEN_MAX, EXTENSIONS_MAX = 64, 2048, 64
#: Longest content type, in characters.
CONTENT_TYPE_LEN_MAX = 256
#: Most characters of a bad value that an error shows.
SHOWN_CHARS_MAX = 48

# What this receiver chooses.

#: Largest body that is read, in bytes: what senders commonly allow an event.
BODY_LEN_MAX = 1024 * 1024
#: Most bytes of a body that is too large that are read and dropped, so that the sender gets to see the answer.
#: Beyond that the connection is cut.
DISCARD_LEN_MAX = 16 * 1024 * 1024
#: Most headers that a delivery keeps beside its body: the content type, and those of a CloudEvent.
HEADERS_KEPT_MAX = 80
#: Longest event id of other senders, in characters: Svix, Stripe and GitHub stay below 64.
FOREIGN_ID_LEN_MAX = 256
#: Longest challenge of a WebSub hub that is echoed, in characters. Hubs send 20 to 100.
CHALLENGE_LEN_MAX = 1024

#: How long event ids are remembered. A sender retries for three days; people replay what they find in a
#: dead-letter list after a weekend or a holiday.
RETENTION_DEFAULT = 30 * 24 * 60 * 60
#: How many times longer than ids the last seq of a line is remembered: it tells an old event from a new one
#: after its id is forgotten, and there is only one per line.
LINE_RETENTION_FACTOR = 12
#: Most rows of a table that one step of pruning removes: a few milliseconds' work, so that no lock is held long.
PRUNE_STEP = 1_000
#: Most event ids that a memory inbox holds, about 300 MB. Beyond that the oldest are forgotten first.
MEMORY_IDS_MAX = 1_000_000

#: How long a gap holds its line off: a few attempts of the sender. What a network overtook has come by then;
#: what is still missing was acknowledged once, and forgotten here.
GAP_TIMEOUT_DEFAULT = 60
#: How long the first sight of a gap is remembered: as long as a sender tries one delivery.
GAP_SIGHT_RETENTION = 72 * 60 * 60
#: Most gaps whose first sight a process remembers, about 3 MB. A receiver with more of them has forgotten
#: everything, and they wait together.
GAP_SIGHTS_MAX = 10_000
#: Most accepted gaps of a listing, and most that a memory or Redis inbox keeps: what a person looks at.
GAPS_LISTED_MAX = 100

#: How long a claim in Redis outlives a process that died with it: longer than a sender waits for an answer,
#: so that no live claim is taken away.
CLAIM_LEASE = 60

#: Most jobs that a queue holds before it answers 429: minutes of work, not days of it.
BACKLOG_MAX = 10_000
#: What a full queue asks the sender to wait: long enough to work off a good part of the backlog.
FULL_RETRY_AFTER = 5
#: Tries of one job before it becomes a dead letter: with the delays below, about twenty minutes.
TRIES_MAX = 10
#: The delay after a job's first failed try; it doubles with each further one.
TRY_DELAY_BASE = 1
#: The longest delay between tries of a job.
TRY_DELAY_MAX = 5 * 60
#: Most characters of a failed job's error that are kept: enough to see the cause.
ERROR_CHARS_MAX = 500
#: Most dead letters of a listing: what a person looks at.
DEAD_LISTED_MAX = 100
#: How long an idle worker waits before it looks again: a job of another process is seen this late.
IDLE_DELAY = 1.0

#: Most bytes of a handler's answer that a middleware holds back until the event is noted.
ANSWER_LEN_MAX = 1024 * 1024
