//! What one endpoint or tenant takes from another.

use super::{Bench, CaseError, one_endpoint, path, plan, publish_plan, subscribe};
use crate::cases::{PLAIN, Publish, Store};
use crate::child::Sink;
use crate::figures::Figures;
use crate::limits::{HANG, SIDE_CONNECTIONS};
use crate::load::plan::{Form, Plan};
use crate::load::request::type_name;
use crate::measure::MeasuredEndpoints;
use crate::sink::SinkCommand;

/// Events per second for the endpoint that hangs: more than it will ever take.
const HANGING_PER_S: u64 = 200;

const TENANTS: usize = 100;
/// Events per second of a tenant, and how many times as much the noisy one sends.
const TENANT_PER_S: u64 = 20;
const NOISE: u64 = 50;

impl Bench {
    /// One good endpoint, judged; beside it one that hangs, with events of its own.
    pub(super) fn hanging(
        &mut self,
        hangs: bool,
        per_s: Option<u64>,
    ) -> Result<Figures, CaseError> {
        let running = self.server(Store::Sqlite)?;
        let mut sink = Sink::start(2)?;
        subscribe(&running.server, &mut sink, 0, super::TENANT, &[type_name(0)])?;
        let mut plans = vec![publish_plan(&running.server, &Publish { per_s, ..PLAIN })];
        if hangs {
            subscribe(&running.server, &mut sink, 1, super::TENANT, &[type_name(1)])?;
            sink.command(&SinkCommand::Hang { endpoint: 1, millis: HANG.as_millis() as u64 })?;
            plans.push(Plan {
                first_type: 1,
                per_s: Some(HANGING_PER_S),
                connections: SIDE_CONNECTIONS,
                ..plans[0].clone()
            });
        }
        Ok(self.stage_of(&running, &mut sink).measure(&plans, &one_endpoint())?)
    }

    /// A hundred tenants with an endpoint each; all but the first are judged.
    pub(super) fn tenants(&mut self, noisy: bool) -> Result<Figures, CaseError> {
        let running = self.server(Store::Sqlite)?;
        let mut sink = Sink::start(TENANTS)?;
        for number in 0..TENANTS {
            running.server.create_tenant(&tenant(number))?;
            subscribe(&running.server, &mut sink, number, &tenant(number), &[type_name(0)])?;
        }
        let paths = |numbers: std::ops::Range<usize>| {
            numbers.map(|number| path(&tenant(number), Form::Single)).collect()
        };
        let address = &running.server.address;
        let others = Plan {
            per_s: Some(TENANT_PER_S * (TENANTS as u64 - 1)),
            ..plan(address.clone(), paths(1..TENANTS))
        };
        let first = Plan {
            per_s: Some(if noisy { TENANT_PER_S * NOISE } else { TENANT_PER_S }),
            connections: SIDE_CONNECTIONS,
            ..plan(address.clone(), paths(0..1))
        };
        let judged = MeasuredEndpoints { endpoints: 1..TENANTS, deliveries_per_event: 1 };
        Ok(self.stage_of(&running, &mut sink).measure(&[others, first], &judged)?)
    }
}

fn tenant(number: usize) -> String {
    format!("tenant-{number}")
}
