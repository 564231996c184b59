//! One run, readably: a line for each thing that happened, at its time since the beginning.

use std::fmt::{self, Display, Formatter, Write};

use railpost_engine::{
    Accepted, Attempt, AttemptResult, Delivery, DeliveryState, Endpoint, LanePage, LoadedPage,
    Place, Timestamp, Transition,
};
use railpost_wire::{DeliveryId, EndpointId};

use crate::fact::Fact;
use crate::scenario::BEGINNING;

/// Where the lines go; nowhere unless someone wants to read them.
pub(crate) struct Trace(Option<String>);

impl Trace {
    pub(crate) fn new(wanted: bool) -> Self {
        Self(wanted.then(String::new))
    }

    pub(crate) fn line(&mut self, now: Timestamp, what: impl Display) {
        if let Some(text) = &mut self.0 {
            writeln!(text, "{}  {what}", Shown(&now)).expect("a string takes everything");
        }
    }

    pub(crate) fn into_text(self) -> String {
        self.0.unwrap_or_default()
    }
}

impl Display for Fact {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Fact::Limited(tenant, limit) => write!(f, "{tenant} limited to {limit:?}"),
            Fact::Appeared(Endpoint { id, tenant, policy, status, .. }) => {
                write!(f, "{} of {tenant} appeared, {status:?}, with {policy:?}", Shown(id))
            }
            Fact::Changed(old, new) => write!(f, "{} changed to {new:?}", Shown(&old.id)),
            Fact::Paused(id) => write!(f, "{} paused", Shown(id)),
            Fact::Resumed(id) => write!(f, "{} resumed", Shown(id)),
            Fact::Left(id) => write!(f, "{} left", Shown(id)),
            Fact::Accepted(Accepted { id, endpoint, place, replay }, event, _) => {
                let (id, endpoint, place) = (Shown(id), Shown(endpoint), Shown(place));
                let again = if *replay { " again" } else { "" };
                write!(f, "{id} of event {event} accepted{again} for {endpoint}{place}")
            }
            Fact::Due(id) => write!(f, "{} waits beyond reason: it is due", Shown(id)),
            Fact::Commanded(command, about) => {
                write!(f, "{} told to {command:?}", Shown(&about.id))
            }
            Fact::Reserved(attempt) => write!(f, "{} reserved", Shown(attempt)),
            Fact::Started(attempt) => write!(f, "{} started", Shown(attempt)),
            Fact::Ended(flight, result) => {
                write!(f, "{} ended with {}", Shown(&flight.attempt), Shown(result))
            }
            Fact::Recorded(Transition { delivery, state, progress, .. }) => {
                let (delivery, state, attempts) =
                    (Shown(delivery), Shown(state), progress.attempts);
                write!(f, "{delivery} recorded as {state} after {attempts} attempts")
            }
            Fact::EndpointRecorded(record) => {
                write!(f, "{} recorded as {:?}", Shown(&record.endpoint), record.status)
            }
            Fact::BreakerOpened(id) => write!(f, "the breaker of {} opened", Shown(id)),
            Fact::Crashed => f.write_str("CRASH"),
            Fact::Stopped => f.write_str("STOP"),
            Fact::Restored => f.write_str("RESTORED FROM AN OLD COPY"),
        }
    }
}

/// Something the way people read it.
pub(crate) struct Shown<'a, T>(pub(crate) &'a T);

impl Display for Shown<'_, Timestamp> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let millis = self.0.since(BEGINNING).as_millis();
        let (hours, minutes) = (millis / 3_600_000, millis / 60_000 % 60);
        let (seconds, millis) = (millis / 1_000 % 60, millis % 1_000);
        write!(f, "{hours:02}:{minutes:02}:{seconds:02}.{millis:03}")
    }
}

impl Display for Shown<'_, EndpointId> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "endpoint {}", u128::from_be_bytes(self.0.to_bytes()))
    }
}

impl Display for Shown<'_, DeliveryId> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "delivery {}", u128::from_be_bytes(self.0.to_bytes()) as u64)
    }
}

impl Display for Shown<'_, Option<Place>> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(Place { lane, seq }) => write!(f, " in lane {} as {}", lane.0, seq.get()),
            None => Ok(()),
        }
    }
}

impl Display for Shown<'_, Attempt> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Attempt { delivery, endpoint, place, follows, number, .. } = self.0;
        write!(f, "{}{}", Shown(delivery), Shown(place))?;
        if let Some(follows) = follows {
            write!(f, " after {follows}")?;
        }
        write!(f, ", attempt {number} at {}", Shown(endpoint))
    }
}

impl Display for Shown<'_, AttemptResult> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            AttemptResult::Response { status, retry_after: None } => write!(f, "{status}"),
            AttemptResult::Response { status, retry_after: Some(wish) } => {
                write!(f, "{status}, retry after {wish}")
            }
            AttemptResult::Failed(failure) => write!(f, "{failure:?}"),
        }
    }
}

impl Display for Shown<'_, DeliveryState> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            DeliveryState::Waiting { until } => write!(f, "waiting until {}", Shown(until)),
            DeliveryState::Dead { reason, holds } => {
                write!(f, "dead ({reason:?}), its lane {}", if *holds { "held" } else { "free" })
            }
            state => write!(f, "{}", state.stage()),
        }
    }
}

impl Display for Shown<'_, LoadedPage> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            LoadedPage::Lanes { lanes, next } => {
                write!(f, "{} lanes", lanes.len())?;
                lanes.iter().try_for_each(|lane| write!(f, "; {}", Shown(lane)))?;
                write!(f, "{}", if next.is_some() { "; and more" } else { "" })
            }
            LoadedPage::Lane(lane) => write!(f, "{}", Shown(lane)),
            LoadedPage::Unkeyed { deliveries, next, .. } => {
                write!(f, "without a lane: {}", Shown(deliveries))?;
                write!(f, "{}", if next.is_some() { " and more" } else { "" })
            }
        }
    }
}

impl Display for Shown<'_, LanePage> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let LanePage { lane, from, through, last, deliveries, .. } = self.0;
        let number = |seq: &Option<railpost_wire::Seq>| seq.map_or(0, railpost_wire::Seq::get);
        write!(f, "lane {} from {} through {}", lane.0, from.get(), number(through))?;
        write!(f, " of {}: {}", number(last), Shown(deliveries))
    }
}

impl Display for Shown<'_, Vec<Delivery>> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let each = self.0.iter().map(|it| format!("{} {}", Shown(&it.id), Shown(&it.state)));
        write!(f, "[{}]", each.collect::<Vec<_>>().join(", "))
    }
}
