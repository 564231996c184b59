//! Probes that people ask for: one signed request outside of all lanes, limits and the breaker.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use railpost_store::{AttemptDetail, Event, Parcel};
use railpost_wire::{DeliveryId, EndpointId, TenantId};

use super::attempt::{SignedRequest, detail};
use super::messages::LoopCommand;
use super::{Dispatcher, Stopped};
use crate::limits::PROBES_MAX;

/// What a probe sends, and where.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// Whose it is.
    pub tenant: TenantId,
    /// What is sent. It need not be stored.
    pub event: Event,
}

/// Why a probe was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeRefused {
    /// Another one of the endpoint is in flight.
    InFlight,
    /// Too many are in flight.
    TooMany,
    /// The endpoint is not served here.
    Unserved,
    /// The dispatcher has stopped.
    Stopped,
}

impl fmt::Display for ProbeRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProbeRefused::InFlight => "a probe of this endpoint is in flight: wait for its answer",
            ProbeRefused::TooMany => "too many probes are in flight: try again in a moment",
            ProbeRefused::Unserved => "the endpoint is not served here",
            ProbeRefused::Stopped => "the dispatcher has stopped",
        })
    }
}

impl std::error::Error for ProbeRefused {}

impl From<Stopped> for ProbeRefused {
    fn from(_: Stopped) -> Self {
        ProbeRefused::Stopped
    }
}

impl Dispatcher {
    /// Sends one signed request and says what came of it. The engine does not hear of it: no delivery, limit or
    /// breaker is concerned, and the endpoint may be switched off.
    pub async fn probe(&self, probe: Probe) -> Result<AttemptDetail, ProbeRefused> {
        let Probe { endpoint, tenant, event } = probe;
        let _permit = self.probes.begin(endpoint)?;
        let prepared = self.ask(|answer| LoopCommand::Prepared(endpoint, answer)).await?;
        let prepared = prepared.ok_or(ProbeRefused::Unserved)?;
        let started_at = self.parts.source.now();
        let delivery = DeliveryId::from_u128(0);
        let parcel =
            Parcel { delivery, endpoint, tenant, line: None, event, accepted_at: started_at };
        let request = SignedRequest {
            prepared: &prepared,
            parcel: &parcel,
            number: 1,
            follows: None,
            replay: false,
            trace: None,
            thin_url: &*self.parts.thin_url,
        };
        let exchange = request.send(&self.parts.sender, started_at).await;
        Ok(detail(1, started_at, exchange, None))
    }
}

/// The endpoints whose probes are in flight.
#[derive(Debug, Default)]
pub(super) struct ProbesInFlight(Mutex<BTreeSet<EndpointId>>);

impl ProbesInFlight {
    fn begin(&self, endpoint: EndpointId) -> Result<ProbePermit<'_>, ProbeRefused> {
        let mut endpoints = self.endpoints();
        if endpoints.contains(&endpoint) {
            return Err(ProbeRefused::InFlight);
        }
        if endpoints.len() >= PROBES_MAX {
            return Err(ProbeRefused::TooMany);
        }
        endpoints.insert(endpoint);
        Ok(ProbePermit { probes: self, endpoint })
    }

    fn endpoints(&self) -> MutexGuard<'_, BTreeSet<EndpointId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends with the probe, however that ends.
#[derive(Debug)]
struct ProbePermit<'p> {
    probes: &'p ProbesInFlight,
    endpoint: EndpointId,
}

impl Drop for ProbePermit<'_> {
    fn drop(&mut self) {
        self.probes.endpoints().remove(&self.endpoint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(number: usize) -> EndpointId {
        EndpointId::from_u128(number as u128)
    }

    #[test]
    fn one_probe_of_an_endpoint_is_in_flight_and_a_bounded_number_in_all() {
        let probes = ProbesInFlight::default();
        let first = probes.begin(endpoint(0)).expect("the first");
        assert_eq!(probes.begin(endpoint(0)).err(), Some(ProbeRefused::InFlight));
        let others: Vec<_> = (1..PROBES_MAX).map(|number| probes.begin(endpoint(number))).collect();
        assert!(others.iter().all(Result::is_ok));
        assert_eq!(probes.begin(endpoint(PROBES_MAX)).err(), Some(ProbeRefused::TooMany));
        drop(first);
        assert!(probes.begin(endpoint(PROBES_MAX)).is_ok());
    }
}
