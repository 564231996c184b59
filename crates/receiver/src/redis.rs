//! The inbox in Redis: shared by several processes, with a time to live.
//!
//! Redis cannot commit with the application's database. An event is claimed, applied, then noted; a
//! crash between the last two lets it be applied again once the claim's lease has run out. Effects must
//! bear that. Whoever has a SQL database at hand should keep the inbox there.

use crate::inbox::{InboxConfig, NotedGap, Verdict};
use crate::limits::{CLAIM_LEASE, GAPS_LISTED_MAX};
use ::redis::aio::ConnectionLike;
use ::redis::{RedisResult, Script};
use railpost_wire::{Received, Seq};
use std::hash::{BuildHasher, Hasher, RandomState};

/// An inbox in Redis, on one connection that is shared by its clones.
///
/// | key | value | lives |
/// |---|---|---|
/// | `NAME:id:ID` | `1`: the event was applied | as long as the retention |
/// | `NAME:lane:KEY` | the last seq that was applied | twelve times as long |
/// | `NAME:gaps` | a list of gaps that were accepted: `applied seq noted_at key` | as long as the retention |
/// | `NAME:claim:…` | a token: being applied | until it is done with, or a minute |
#[derive(Clone)]
pub struct RedisInbox<C> {
    config: InboxConfig,
    connection: C,
}

/// The right to apply one event, or the verdict that says why there is none. Dropped without
/// [`RedisInbox::done`] or [`RedisInbox::undo`], it holds its key off until its lease has run out.
#[derive(Debug)]
#[must_use = "an event is remembered when its ticket is done"]
pub struct RedisTicket {
    verdict: Verdict,
    claim: Option<Claim>,
}

#[derive(Debug)]
struct Claim {
    names: Names,
    token: String,
    /// What the lane's last seq is once this event was applied.
    then_applied: Option<Seq>,
    /// The gap that was accepted with it; when is known once it is done.
    gap: Option<NotedGap>,
}

/// The Redis keys of an event. One without a lane has its own claim for the lane's.
#[derive(Debug)]
struct Names {
    id: String,
    lane: String,
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

    /// Judges an event, and claims it if it is to be applied.
    pub async fn begin(&self, received: &Received) -> RedisResult<RedisTicket> {
        let (names, token) = (self.names(received), token());
        let lease_ms = CLAIM_LEASE.as_secs() * 1000;
        let script = Script::new(BEGIN);
        let mut call = script.prepare_invoke();
        call.key(&names.claims[0]).key(&names.claims[1]).key(&names.id).key(&names.lane);
        call.arg(&token).arg(lease_ms);
        let found: Option<(bool, Option<u64>)> =
            call.invoke_async(&mut self.connection.clone()).await?;
        let Some((known, applied)) = found else {
            return Ok(RedisTicket { verdict: Verdict::Busy, claim: None });
        };
        let applied = applied.and_then(Seq::new);
        let verdict = self.config.policy.judge(received, known, applied);
        let lane = self.config.policy.lane(received);
        // A replay may be older than what was applied.
        let then_applied = lane.map(|(_, seq)| applied.map_or(seq, |applied| applied.max(seq)));
        let gap =
            lane.filter(|_| matches!(verdict, Verdict::Gap { .. })).map(|(key, seq)| NotedGap {
                key: key.to_owned(),
                applied: applied.map_or(0, Seq::get),
                seq: seq.get(),
                noted_at: 0,
            });
        let claim = Claim { names, token, then_applied, gap };
        let ticket = RedisTicket { verdict, claim: Some(claim) };
        if !verdict.applies() {
            self.undo(ticket).await?;
            return Ok(RedisTicket { verdict, claim: None });
        }
        Ok(ticket)
    }

    /// The effect has happened: remember the event. `now` is in seconds since 1970.
    pub async fn done(&self, ticket: RedisTicket, now: i64) -> RedisResult<Verdict> {
        if let Some(Claim { names, token, then_applied, gap }) = ticket.claim {
            let gap = gap.map(|gap| format!("{} {} {now} {}", gap.applied, gap.seq, gap.key));
            let script = Script::new(DONE);
            let mut call = script.prepare_invoke();
            call.key(&names.claims[0]).key(&names.claims[1]).key(&names.id).key(&names.lane);
            call.key(self.gaps_name());
            call.arg(&token).arg(self.config.retention.id_secs());
            call.arg(then_applied.map_or(0, Seq::get)).arg(self.config.retention.lane_secs());
            call.arg(gap.unwrap_or_default()).arg(GAPS_LISTED_MAX);
            call.invoke_async::<()>(&mut self.connection.clone()).await?;
        }
        Ok(ticket.verdict)
    }

    /// The latest gaps that were accepted, latest first.
    pub async fn gaps(&self) -> RedisResult<Vec<NotedGap>> {
        let mut range = ::redis::cmd("LRANGE");
        range.arg(self.gaps_name()).arg(0).arg(-1);
        let gaps: Vec<String> = range.query_async(&mut self.connection.clone()).await?;
        Ok(gaps.iter().filter_map(|text| read_gap(text)).collect())
    }

    fn gaps_name(&self) -> String {
        format!("{}:gaps", self.config.name)
    }

    /// The effect has failed: leave the event to the sender's next attempt.
    pub async fn undo(&self, ticket: RedisTicket) -> RedisResult<()> {
        let Some(Claim { names, token, .. }) = ticket.claim else { return Ok(()) };
        let script = Script::new(UNDO);
        let mut call = script.prepare_invoke();
        call.key(&names.claims[0]).key(&names.claims[1]).arg(&token);
        call.invoke_async(&mut self.connection.clone()).await
    }

    fn names(&self, received: &Received) -> Names {
        let (name, event_id) = (&self.config.name, &received.event_id);
        let id_claim = format!("{name}:claim:id:{event_id}");
        let (lane, lane_claim) = match self.config.policy.lane(received) {
            Some((key, _)) => (format!("{name}:lane:{key}"), format!("{name}:claim:lane:{key}")),
            None => (format!("{name}:lane"), id_claim.clone()),
        };
        Names { id: format!("{name}:id:{event_id}"), lane, claims: [id_claim, lane_claim] }
    }
}

fn read_gap(text: &str) -> Option<NotedGap> {
    let mut parts = text.splitn(4, ' ');
    let (applied, seq) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let (noted_at, key) = (parts.next()?.parse().ok()?, parts.next()?.to_owned());
    Some(NotedGap { key, applied, seq, noted_at })
}

/// Tells this claim from all others, so that a late owner gives back nothing that is not its own.
fn token() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

/// Claims, unless somebody else has, and says whether the id is known and how far the lane is.
const BEGIN: &str = "
if redis.call('exists', KEYS[1], KEYS[2]) > 0 then return nil end
redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
redis.call('set', KEYS[2], ARGV[1], 'px', ARGV[2])
return {redis.call('exists', KEYS[3]), redis.call('get', KEYS[4])}";

/// The id is noted in any case, for the effect has happened. The lane moves only if the claim held.
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

const UNDO: &str = "
for _, claim in ipairs(KEYS) do
    if redis.call('get', claim) == ARGV[1] then redis.call('del', claim) end
end";

#[cfg(feature = "tower")]
impl<C: ConnectionLike + Clone + Send + Sync + 'static> crate::tower::Gate for RedisInbox<C> {
    type Ticket = RedisTicket;

    async fn begin(
        &self,
        received: &Received,
        _: i64,
    ) -> Result<(Verdict, RedisTicket), crate::tower::BoxError> {
        let ticket = RedisInbox::begin(self, received).await?;
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
