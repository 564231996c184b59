//! The inbox in Redis: shared by several processes, with a time to live.
//!
//! Redis cannot commit with the application's database. An event is claimed, applied, then noted; a
//! crash between the last two lets it be applied again once the claim's lease has run out. Effects must
//! bear that. If the application has a SQL database, keep the inbox there.

use crate::inbox::{InboxConfig, LinePosition, NotedGap, PriorState, Verdict};
use crate::limits::{CLAIM_LEASE, GAPS_LISTED_MAX, OPEN_GAP_RETENTION};
use ::redis::aio::ConnectionLike;
use ::redis::{RedisResult, Script};
use railpost_wire::{Key, LineId, Received, Seq};
use std::hash::{BuildHasher, Hasher, RandomState};

/// An inbox in Redis, on one connection that is shared by its clones.
///
/// | key | value | lives |
/// |---|---|---|
/// | `NAME:id:ID` | `1`: the event was applied | as long as the retention |
/// | `NAME:line:LINE` | the last seq of the line that was applied | twelve times as long |
/// | `NAME:gap:LINE` | `applied since`: an open gap of the line, and when it was first seen | three days |
/// | `NAME:noted_gaps` | a list of gaps that were accepted: `applied seq noted_at line key` | as long as the retention |
/// | `NAME:claim:…` | a token: being applied | until it is done with, or a minute |
#[derive(Clone)]
pub struct RedisInbox<C> {
    config: InboxConfig,
    connection: C,
}

/// The right to apply one event, or the verdict that says why there is none. Dropped without
/// [`RedisInbox::done`] or [`RedisInbox::undo`], it holds its line off until its lease has run out.
#[derive(Debug)]
#[must_use = "an event is remembered when its ticket is done"]
pub struct RedisTicket {
    verdict: Verdict,
    claim: Option<Claim>,
}

#[derive(Debug)]
struct Claim {
    keys: RedisKeys,
    token: String,
    /// What the line's last seq is once this event was applied.
    then_applied: Option<Seq>,
    /// The gap that was accepted with it; when is known once it is done.
    gap: Option<NotedGap>,
}

/// The Redis keys of an event. One without a line has its own claim for the line's.
#[derive(Debug)]
struct RedisKeys {
    id: String,
    line: String,
    gap: String,
    claims: [String; 2],
}

impl RedisTicket {
    /// What the event is.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }
}

impl<C: ConnectionLike + Clone> RedisInbox<C> {
    /// The inbox of this name. Names of inboxes that share a Redis must not begin alike up to a colon.
    pub fn new(config: InboxConfig, connection: C) -> Self {
        Self { config, connection }
    }

    /// Judges an event, and claims it if it is to be applied. `now` is in seconds since 1970.
    pub async fn begin(&self, received: &Received, now: i64) -> RedisResult<RedisTicket> {
        let (keys, token) = (self.keys(received), token());
        let Some(known) = self.claim(&keys, &token).await? else {
            return Ok(RedisTicket { verdict: Verdict::Busy, claim: None });
        };
        let verdict = self.config.policy.judge(received, known, now);
        let place = LinePosition::of(received);
        // A replay or a duplicate may be older than what was applied.
        let then_applied = place.map(|place| known.applied.map_or(place.seq, |a| a.max(place.seq)));
        if !verdict.applies() {
            let moved = then_applied.filter(|_| verdict.moves_line());
            let new_gap = matches!(verdict, Verdict::Gap { .. }) && known.gap_since.is_none();
            let open_gap = new_gap.then(|| open_gap(known.applied, now));
            self.release(&keys, &token, moved, open_gap).await?;
            return Ok(RedisTicket { verdict, claim: None });
        }
        let is_gap = matches!(verdict, Verdict::Gap { .. });
        let gap = place.filter(|_| is_gap).map(|place| NotedGap {
            line: place.line.to_string(),
            key: received.key.as_ref().map(Key::to_string),
            applied: known.applied.map_or(0, Seq::get),
            seq: place.seq.get(),
            noted_at: 0,
        });
        let claim = Claim { keys, token, then_applied, gap };
        Ok(RedisTicket { verdict, claim: Some(claim) })
    }

    /// What is known of the event and its line, or nothing if another process has a claim.
    async fn claim(&self, keys: &RedisKeys, token: &str) -> RedisResult<Option<PriorState>> {
        let script = Script::new(BEGIN);
        let mut call = script.prepare_invoke();
        call.key(&keys.claims[0]).key(&keys.claims[1]).key(&keys.id);
        call.key(&keys.line).key(&keys.gap);
        call.arg(token).arg(CLAIM_LEASE.as_secs() * 1000);
        let found: Option<(bool, Option<u64>, Option<String>)> =
            call.invoke_async(&mut self.connection.clone()).await?;
        Ok(found.map(|(id, applied, gap)| {
            let applied = applied.and_then(Seq::new);
            let gap_since = gap.and_then(|text| read_open_gap(&text, applied));
            PriorState { id, applied, gap_since }
        }))
    }

    /// The effect has happened: remember the event. `now` is in seconds since 1970.
    pub async fn done(&self, ticket: RedisTicket, now: i64) -> RedisResult<Verdict> {
        if let Some(Claim { keys, token, then_applied, gap }) = ticket.claim {
            let gap = gap.map(|gap| NotedGap { noted_at: now, ..gap }).map(|gap| write_gap(&gap));
            let script = Script::new(DONE);
            let mut call = script.prepare_invoke();
            call.key(&keys.claims[0]).key(&keys.claims[1]).key(&keys.id).key(&keys.line);
            call.key(self.noted_gaps());
            call.arg(&token).arg(self.config.retention.id_secs());
            call.arg(then_applied.map_or(0, Seq::get)).arg(self.config.retention.line_secs());
            call.arg(gap.unwrap_or_default()).arg(GAPS_LISTED_MAX);
            call.invoke_async::<()>(&mut self.connection.clone()).await?;
        }
        Ok(ticket.verdict)
    }

    /// The last seq of a line that was applied, if the line is known.
    pub async fn applied(&self, line: &LineId) -> RedisResult<Option<Seq>> {
        let mut get = ::redis::cmd("GET");
        get.arg(self.line_name(line));
        let applied: Option<u64> = get.query_async(&mut self.connection.clone()).await?;
        Ok(applied.and_then(Seq::new))
    }

    /// The latest gaps that were accepted, latest first.
    pub async fn gaps(&self) -> RedisResult<Vec<NotedGap>> {
        let mut range = ::redis::cmd("LRANGE");
        range.arg(self.noted_gaps()).arg(0).arg(-1);
        let gaps: Vec<String> = range.query_async(&mut self.connection.clone()).await?;
        Ok(gaps.iter().filter_map(|text| read_gap(text)).collect())
    }

    /// The effect has failed: leave the event to the sender's next attempt.
    pub async fn undo(&self, ticket: RedisTicket) -> RedisResult<()> {
        let Some(Claim { keys, token, .. }) = ticket.claim else { return Ok(()) };
        self.release(&keys, &token, None, None).await
    }

    /// Gives a claim back. While it holds, the line moves on to `moved`, and `open_gap` is noted as its gap.
    async fn release(
        &self,
        keys: &RedisKeys,
        token: &str,
        moved: Option<Seq>,
        open_gap: Option<String>,
    ) -> RedisResult<()> {
        let script = Script::new(RELEASE);
        let mut call = script.prepare_invoke();
        call.key(&keys.claims[0]).key(&keys.claims[1]).key(&keys.line).key(&keys.gap);
        call.arg(token).arg(moved.map_or(0, Seq::get)).arg(self.config.retention.line_secs());
        call.arg(open_gap.unwrap_or_default()).arg(OPEN_GAP_RETENTION.as_secs());
        call.invoke_async(&mut self.connection.clone()).await
    }

    fn keys(&self, received: &Received) -> RedisKeys {
        let (name, event_id) = (&self.config.name, &received.event_id);
        let id_claim = format!("{name}:claim:id:{event_id}");
        let id = format!("{name}:id:{event_id}");
        match LinePosition::of(received) {
            Some(LinePosition { line, .. }) => RedisKeys {
                id,
                line: self.line_name(line),
                gap: format!("{name}:gap:{line}"),
                claims: [id_claim, format!("{name}:claim:line:{line}")],
            },
            None => {
                let (line, gap) = (format!("{name}:line"), format!("{name}:gap"));
                RedisKeys { id, line, gap, claims: [id_claim.clone(), id_claim] }
            }
        }
    }

    fn line_name(&self, line: &LineId) -> String {
        format!("{}:line:{line}", self.config.name)
    }

    fn noted_gaps(&self) -> String {
        format!("{}:noted_gaps", self.config.name)
    }
}

fn open_gap(applied: Option<Seq>, since: i64) -> String {
    format!("{} {since}", applied.map_or(0, Seq::get))
}

/// When a gap after this seq was first seen; nothing if the line had another place then.
fn read_open_gap(text: &str, applied: Option<Seq>) -> Option<i64> {
    let (seen_after, since) = text.split_once(' ')?;
    let same = seen_after.parse() == Ok(applied.map_or(0, Seq::get));
    since.parse().ok().filter(|_| same)
}

fn write_gap(gap: &NotedGap) -> String {
    let NotedGap { line, key, applied, seq, noted_at } = gap;
    format!("{applied} {seq} {noted_at} {line} {}", key.as_deref().unwrap_or_default())
}

fn read_gap(text: &str) -> Option<NotedGap> {
    let mut parts = text.splitn(5, ' ');
    let (applied, seq) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let (noted_at, line) = (parts.next()?.parse().ok()?, parts.next()?.to_owned());
    let key = parts.next().filter(|key| !key.is_empty()).map(str::to_owned);
    Some(NotedGap { line, key, applied, seq, noted_at })
}

/// Tells this claim from all others, so that a late owner gives back nothing that is not its own.
fn token() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

/// Claims, unless another process has, and says whether the id is known, how far the line is, and whether it
/// has an open gap.
const BEGIN: &str = "
if redis.call('exists', KEYS[1], KEYS[2]) > 0 then return nil end
redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
redis.call('set', KEYS[2], ARGV[1], 'px', ARGV[2])
return {redis.call('exists', KEYS[3]), redis.call('get', KEYS[4]), redis.call('get', KEYS[5])}";

/// The id is noted in any case, for the effect has happened. The line moves only if the claim held.
const DONE: &str = "
redis.call('set', KEYS[3], 1, 'ex', ARGV[2])
if ARGV[5] ~= '' then
    redis.call('lpush', KEYS[5], ARGV[5])
    redis.call('ltrim', KEYS[5], 0, ARGV[6] - 1)
    redis.call('expire', KEYS[5], ARGV[2])
end
if redis.call('get', KEYS[2]) ~= ARGV[1] then return end
if ARGV[3] ~= '0' then redis.call('set', KEYS[4], ARGV[3], 'ex', ARGV[4]) end
redis.call('del', KEYS[1], KEYS[2])";

const RELEASE: &str = "
if redis.call('get', KEYS[2]) == ARGV[1] then
    if ARGV[2] ~= '0' then redis.call('set', KEYS[3], ARGV[2], 'ex', ARGV[3]) end
    if ARGV[4] ~= '' then redis.call('set', KEYS[4], ARGV[4], 'ex', ARGV[5]) end
end
for at = 1, 2 do
    if redis.call('get', KEYS[at]) == ARGV[1] then redis.call('del', KEYS[at]) end
end";

#[cfg(feature = "tower")]
impl<C: ConnectionLike + Clone + Send + Sync + 'static> crate::tower::ClaimingInbox
    for RedisInbox<C>
{
    type Ticket = RedisTicket;

    async fn begin(
        &self,
        received: &Received,
        now: i64,
    ) -> Result<(Verdict, RedisTicket), crate::tower::BoxError> {
        let ticket = RedisInbox::begin(self, received, now).await?;
        Ok((ticket.verdict(), ticket))
    }

    async fn done(&self, ticket: RedisTicket, now: i64) -> Result<(), crate::tower::BoxError> {
        RedisInbox::done(self, ticket, now).await?;
        Ok(())
    }

    async fn undo(&self, ticket: RedisTicket) -> Result<(), crate::tower::BoxError> {
        Ok(RedisInbox::undo(self, ticket).await?)
    }
}
