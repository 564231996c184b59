//! Deliveries that ended, by tenant, endpoint and event type: only by the labels that the operator chose, and
//! by a bounded number of values of each.

use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use railpost_dispatch::AttemptEnded;
use railpost_engine::DeliveryState;
use railpost_wire::{EndpointId, EventType, TenantId};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::metrics::MetricsText;
use crate::limits::LABEL_VALUES_MAX_DEFAULT;

/// What metrics may be labelled by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Label {
    /// The tenant.
    Tenant,
    /// The endpoint, with its tenant.
    Endpoint,
    /// The type of the event.
    EventType,
}

/// Which labels metrics have beside those that are always there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSettings {
    /// The labels.
    pub labels: Vec<Label>,
    /// Most values of each; what comes after them is counted as `other`.
    pub values_max: usize,
}

impl Default for LabelSettings {
    fn default() -> Self {
        Self { labels: Vec::new(), values_max: LABEL_VALUES_MAX_DEFAULT }
    }
}

/// The value that stands for all values past the bound.
pub(super) const OTHER: &str = "other";

const RESULTS: [&str; 2] = ["delivered", "dead"];
type Ended = [u64; RESULTS.len()];

/// Deliveries that ended, by each chosen label.
#[derive(Debug)]
pub(super) struct LabelledDeliveries {
    tenants: Option<BoundedCounts<TenantId>>,
    endpoints: Option<BoundedCounts<(TenantId, EndpointId)>>,
    event_types: Option<BoundedCounts<EventType>>,
}

impl LabelledDeliveries {
    pub(super) fn new(settings: &LabelSettings) -> Self {
        let chosen = |label| settings.labels.contains(&label);
        let max = settings.values_max;
        Self {
            tenants: chosen(Label::Tenant).then(|| BoundedCounts::new(max)),
            endpoints: chosen(Label::Endpoint).then(|| BoundedCounts::new(max)),
            event_types: chosen(Label::EventType).then(|| BoundedCounts::new(max)),
        }
    }

    pub(super) fn attempt_ended(&self, ended: &AttemptEnded<'_>) {
        let result = match ended.transition.state {
            DeliveryState::Delivered => 0,
            DeliveryState::Dead { .. } => 1,
            _ => return,
        };
        let Some(parcel) = ended.parcel else { return };
        if let Some(tenants) = &self.tenants {
            tenants.count(&parcel.tenant, result);
        }
        if let Some(endpoints) = &self.endpoints {
            endpoints.count(&(parcel.tenant.clone(), parcel.endpoint), result);
        }
        if let Some(event_types) = &self.event_types {
            event_types.count(&parcel.event.event_type, result);
        }
    }

    pub(super) fn render(&self, page: &mut MetricsText) {
        let name = "railpost_tenant_deliveries_total";
        let tenants = self.tenants.iter().flat_map(BoundedCounts::shown);
        let tenant = |tenant: Option<TenantId>| [("tenant", text(tenant))];
        render(page, name, tenants.map(|(value, ended)| (tenant(value), ended)));
        let name = "railpost_endpoint_deliveries_total";
        let endpoints = self.endpoints.iter().flat_map(BoundedCounts::shown);
        let endpoint = |value: Option<(TenantId, EndpointId)>| {
            let (tenant, endpoint) = value.unzip();
            [("tenant", text(tenant)), ("endpoint", text(endpoint))]
        };
        render(page, name, endpoints.map(|(value, ended)| (endpoint(value), ended)));
        let name = "railpost_event_type_deliveries_total";
        let event_types = self.event_types.iter().flat_map(BoundedCounts::shown);
        let event_type = |value: Option<EventType>| [("event_type", text(value))];
        render(page, name, event_types.map(|(value, ended)| (event_type(value), ended)));
    }
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or_else(|| OTHER.to_owned(), |value| value.to_string())
}

fn render<const N: usize>(
    page: &mut MetricsText,
    name: &str,
    samples: impl Iterator<Item = ([(&'static str, String); N], Ended)>,
) {
    page.head(name);
    for (labels, ended) in samples {
        for (result, count) in RESULTS.into_iter().zip(ended) {
            let labels = labels.iter().map(|(name, value)| (*name, value.as_str()));
            let labels: Vec<_> = labels.chain([("result", result)]).collect();
            page.sample(name, &labels, count);
        }
    }
}

/// Counts by value, for the first values that came; the rest together.
#[derive(Debug)]
struct BoundedCounts<K> {
    max: usize,
    counts: Mutex<(FxHashMap<K, Ended>, Ended)>,
}

impl<K: Clone + Eq + Hash> BoundedCounts<K> {
    fn new(max: usize) -> Self {
        Self { max, counts: Mutex::default() }
    }

    fn count(&self, value: &K, result: usize) {
        let (known, other) = &mut *self.lock();
        if let Some(ended) = known.get_mut(value) {
            ended[result] += 1;
        } else if known.len() < self.max {
            known.entry(value.clone()).or_default()[result] += 1;
        } else {
            other[result] += 1;
        }
    }

    /// What was counted; nothing stands for the other values, if there were any.
    fn shown(&self) -> Vec<(Option<K>, Ended)> {
        let (known, other) = &*self.lock();
        let known = known.iter().map(|(value, ended)| (Some(value.clone()), *ended));
        let other = Some((None, *other)).filter(|(_, other)| *other != Ended::default());
        known.chain(other).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (FxHashMap<K, Ended>, Ended)> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_past_the_bound_are_counted_together() {
        let counts = BoundedCounts::new(2);
        for value in ["a", "b", "c", "d", "a", "c"] {
            counts.count(&value, 0);
        }
        counts.count(&"d", 1);
        let mut shown = counts.shown();
        shown.sort_unstable();
        assert_eq!(shown, [(None, [3, 1]), (Some("a"), [2, 0]), (Some("b"), [1, 0])]);
    }

    #[test]
    fn no_label_is_counted_by_unless_it_was_chosen() {
        let none = LabelledDeliveries::new(&LabelSettings::default());
        assert!(none.tenants.is_none() && none.endpoints.is_none() && none.event_types.is_none());
        let labels = vec![Label::EventType];
        let one = LabelledDeliveries::new(&LabelSettings { labels, values_max: 1 });
        assert!(one.tenants.is_none() && one.event_types.is_some());
    }

    #[test]
    fn each_label_has_its_metric() {
        let labels = vec![Label::Tenant, Label::Endpoint, Label::EventType];
        let deliveries = LabelledDeliveries::new(&LabelSettings { labels, values_max: 1 });
        let (acme, other) = ("acme".parse().unwrap(), "other-one".parse().unwrap());
        let endpoint = EndpointId::from_u128(1);
        deliveries.tenants.as_ref().unwrap().count(&acme, 0);
        deliveries.tenants.as_ref().unwrap().count(&other, 1);
        deliveries.endpoints.as_ref().unwrap().count(&(acme, endpoint), 0);
        deliveries.event_types.as_ref().unwrap().count(&"order.paid".parse().unwrap(), 1);
        let mut page = MetricsText::default();
        deliveries.render(&mut page);
        let text = page.into_text();
        for line in [
            r#"railpost_tenant_deliveries_total{tenant="acme",result="delivered"} 1"#,
            r#"railpost_tenant_deliveries_total{tenant="other",result="dead"} 1"#,
            &format!(
                r#"railpost_endpoint_deliveries_total{{tenant="acme",endpoint="{endpoint}",result="dead"}} 0"#
            ),
            r#"railpost_event_type_deliveries_total{event_type="order.paid",result="dead"} 1"#,
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line} not in {text}");
        }
    }
}
