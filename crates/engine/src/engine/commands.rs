//! What people decide about deliveries.

use super::{DeliveryKey, EndpointKey, Engine, Phase};
use crate::{
    Command, DeadReason, Delivery, DeliveryStage, DeliveryState, Guarantee, IgnoredReason, Place,
    Progress,
};

impl Engine {
    pub(super) fn command(&mut self, command: Command, delivery: &Delivery) {
        let Some(endpoint) = self.served_or_ignore(delivery.endpoint) else { return };
        let obeyed = match self.find(endpoint, delivery) {
            Some(key) => self.command_held(command, key),
            None => self.command_unheld(command, endpoint, delivery),
        };
        if let Err(reason) = obeyed {
            self.ignore(reason, Some(delivery.endpoint), Some(delivery.id));
        }
    }

    fn find(&self, endpoint: EndpointKey, delivery: &Delivery) -> Option<DeliveryKey> {
        let served = &self.endpoints[endpoint];
        let in_lane = delivery.place.and_then(|place| {
            let mut keys = served.lanes.get(&place.lane)?.keys(&self.deliveries);
            keys.find(|key| self.deliveries[*key].id == delivery.id)
        });
        in_lane.or_else(|| served.unkeyed.get(delivery.id))
    }

    fn command_held(&mut self, command: Command, key: DeliveryKey) -> Result<(), IgnoredReason> {
        match (command, self.deliveries[key].phase) {
            (Command::Discard, Phase::InFlight(mut flight)) => {
                flight.discarded = true;
                self.deliveries[key].phase = Phase::InFlight(flight);
            }
            (Command::Discard, _) => self.close(key, DeliveryState::DISCARDED, None),
            (Command::Replay, Phase::Dead(_)) => self.replay_held(key)?,
            (Command::Skip, Phase::Dead(reason)) => self.skip(key, reason),
            (Command::Replay | Command::Skip, _) => return Err(IgnoredReason::NotDead),
        }
        Ok(())
    }

    fn replay_held(&mut self, key: DeliveryKey) -> Result<(), IgnoredReason> {
        let tracked = &self.deliveries[key];
        self.check_repeatable(tracked.endpoint, &tracked.progress)?;
        self.deliveries[key].progress = replayed(tracked.progress);
        self.record(key, DeliveryState::Pending, None);
        self.deliveries[key].phase = Phase::Pending;
        if self.is_at_head(key) {
            self.start_when_due(key);
        }
        Ok(())
    }

    fn skip(&mut self, key: DeliveryKey, reason: DeadReason) {
        self.close(key, DeliveryState::Dead { reason, holds: false }, None);
    }

    fn command_unheld(
        &mut self,
        command: Command,
        endpoint: EndpointKey,
        delivery: &Delivery,
    ) -> Result<(), IgnoredReason> {
        match (delivery.place, delivery.state.stage()) {
            (_, DeliveryStage::Delivered | DeliveryStage::Discarded) => Err(IgnoredReason::Closed),
            (Some(place), _) if delivery.state.is_open() => {
                self.command_beyond_window(command, endpoint, delivery, place)
            }
            (_, stage) => match command {
                Command::Skip => Err(IgnoredReason::NotHeld),
                Command::Replay if stage != DeliveryStage::Dead => Err(IgnoredReason::NotDead),
                Command::Replay => self.replay_unheld(endpoint, delivery),
                Command::Discard => {
                    self.discard_unheld(endpoint, delivery);
                    Ok(())
                }
            },
        }
    }

    /// A delivery further back in its lane than memory reaches. It can be discarded where it is, if
    /// no page under way may have it wrong; anything else waits until its lane is loaded.
    fn command_beyond_window(
        &mut self,
        command: Command,
        endpoint: EndpointKey,
        delivery: &Delivery,
        place: Place,
    ) -> Result<(), IgnoredReason> {
        let served = &mut self.endpoints[endpoint];
        let lanes_loading = served.lanes_loading;
        let lane = served.lanes.entry(place.lane).or_default();
        if place.seq.get() <= lane.known {
            return Err(IgnoredReason::Closed);
        }
        let settled = !lane.loading && !lanes_loading && !lane.is_idle();
        let discarded = command == Command::Discard && settled;
        if discarded {
            self.record_unheld(delivery, DeliveryState::DISCARDED);
        }
        self.note_lane_seq(endpoint, place);
        if discarded { Ok(()) } else { Err(IgnoredReason::NotLoaded) }
    }

    /// A dead letter that left its lane, or never had one, is sent again outside of any lane: if the
    /// store takes the record, a scan finds it. What a person saw may be out of date by now.
    fn replay_unheld(
        &mut self,
        endpoint: EndpointKey,
        delivery: &Delivery,
    ) -> Result<(), IgnoredReason> {
        self.check_repeatable(endpoint, &delivery.progress)?;
        let progress = replayed(delivery.progress);
        let delivery = Delivery { place: None, progress, ..*delivery };
        self.record_unheld(&delivery, DeliveryState::Pending);
        self.endpoints[endpoint].unkeyed.want_scan();
        self.scan_if_room(endpoint);
        Ok(())
    }

    fn discard_unheld(&mut self, endpoint: EndpointKey, delivery: &Delivery) {
        self.record_unheld(delivery, DeliveryState::DISCARDED);
        let unkeyed = &mut self.endpoints[endpoint].unkeyed;
        unkeyed.note_closed(delivery.id);
        // Its hint may still be on its way: by then it is not news.
        unkeyed.seen.note(delivery.id);
    }

    fn check_repeatable(
        &self,
        endpoint: EndpointKey,
        progress: &Progress,
    ) -> Result<(), IgnoredReason> {
        let at_most_once = self.endpoints[endpoint].policy.guarantee == Guarantee::AtMostOnce;
        if at_most_once && progress.attempts > 0 { Err(IgnoredReason::SentOnce) } else { Ok(()) }
    }

    fn is_at_head(&self, key: DeliveryKey) -> bool {
        let tracked = &self.deliveries[key];
        tracked.place.is_none_or(|place| {
            self.endpoints[tracked.endpoint].lanes[&place.lane].head() == Some(key)
        })
    }
}

/// A replay starts a new round: a fresh budget of attempts and time, the same numbering.
fn replayed(progress: Progress) -> Progress {
    Progress { attempts: progress.attempts, replay: true, ..Progress::default() }
}
