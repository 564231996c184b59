//! What is measured: every case of a run, by name.

use crate::limits::{BULK_CONNECTIONS, CONNECTIONS, ROUNDS, SLOW_ROUNDS, STREAM_LINES};
use crate::load::plan::{Form, Keys};

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) kind: CaseKind,
    /// Which of the floors it is compared with: `hop` and `forward` with this behind them.
    pub(crate) floor: Option<&'static str>,
}

impl Case {
    /// Whether it measures Railpost itself.
    pub(crate) fn needs_railpost(&self) -> bool {
        !matches!(self.kind, CaseKind::Disk { .. } | CaseKind::Baseline(_))
    }
}

/// What kind of measurement it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CaseKind {
    /// What a durable write costs.
    Disk { per_s: Option<u64> },
    /// Load without Railpost.
    Baseline(Baseline),
    /// Load through Railpost.
    Publish(Publish),
    /// Two endpoints, one of which hangs or is not there.
    Hanging { hangs: bool, per_s: Option<u64> },
    /// A hundred tenants, one of which is like the others or sends fifty times as much.
    Tenants { noisy: bool },
    /// Events pile up behind an endpoint that is down.
    Backlog,
    /// Many endpoints and nothing to send.
    Endpoints,
    /// Events from an application's outbox.
    Outbox(OutboxCase),
}

/// What of an outbox is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OutboxCase {
    /// Rows that wait are relayed and delivered.
    Drain(Store),
    /// From a commit by schedule to its delivery.
    Delay(Reading),
    /// What relaying costs the server at so many commits a second.
    Cpu { reading: Reading, per_s: Option<u64> },
    /// What an event adds to the application's commits.
    Emit,
    /// What rows cost that are deleted and cannot be vacuumed.
    DeadRows,
}

/// How an outbox is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    Poll,
    Notify,
    Tail,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Baseline {
    /// Through the plain forwarder, or straight into the sink.
    pub(crate) forwarded: bool,
    pub(crate) connections: u32,
    pub(crate) payload_bytes: usize,
    pub(crate) per_s: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Publish {
    pub(crate) store: Store,
    pub(crate) form: Form,
    pub(crate) payload_bytes: usize,
    pub(crate) endpoints: Endpoints,
    pub(crate) keys: Keys,
    pub(crate) per_s: Option<u64>,
}

impl Publish {
    /// Connections that suit the form.
    pub(crate) fn connections(&self) -> u32 {
        if self.form.events() > 1 { BULK_CONNECTIONS } else { CONNECTIONS }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Sqlite,
    Postgres,
    Memory,
}

/// Where an event goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Endpoints {
    /// To one of so many.
    OneOf(u32),
    /// To all of so many.
    AllOf(u32),
}

const SMALL: usize = 512;
const LARGE: usize = 8 * 1024;

const HOP: Baseline =
    Baseline { forwarded: false, connections: CONNECTIONS, payload_bytes: SMALL, per_s: None };
const FORWARD: Baseline = Baseline { forwarded: true, ..HOP };

/// Single events of 512 bytes with 10,000 keys for one endpoint: the others vary one thing each.
pub(crate) const PLAIN: Publish = Publish {
    store: Store::Sqlite,
    form: Form::Single,
    payload_bytes: SMALL,
    endpoints: Endpoints::OneOf(1),
    keys: Keys::Many(10_000),
    per_s: None,
};
const BATCH: Publish = Publish { form: Form::Batch(100), ..PLAIN };
const STREAM: Publish = Publish { form: Form::Stream(STREAM_LINES), ..PLAIN };
const SLOW: Publish = Publish { per_s: Some(200), ..PLAIN };
const STEADY: Publish = Publish { per_s: Some(2_000), ..PLAIN };

/// The cases that bars set against each other, and in how many rounds a whole run has them. What is compared
/// runs one after the other, while the machine is the same; a floor next to those that are judged by it.
const JUDGED: [(&[&str], usize); 4] = [
    (&["sqlite-single", "forward", "sqlite-batch", "postgres-single"], ROUNDS),
    (&["forward-200", "sqlite-200", "fdatasync-200"], SLOW_ROUNDS),
    (&["beside-none", "beside-hanging"], ROUNDS),
    (&["beside-none-2000", "beside-hanging-2000"], ROUNDS),
];

/// Of these cases, those that run in rounds, a list for each round; and the others.
pub(crate) fn apart(cases: &[Case]) -> (Vec<Vec<Case>>, Vec<Case>) {
    let named = |name: &&str| cases.iter().find(|case| case.name == *name).copied();
    let round = |round: usize| {
        let sets = JUDGED.iter().filter(move |(_, rounds)| round < *rounds);
        sets.flat_map(|(names, _)| names.iter()).filter_map(named).collect()
    };
    let is_judged = |case: &&Case| JUDGED.iter().any(|(names, _)| names.contains(&case.name));
    let others = cases.iter().filter(|case| !is_judged(case)).copied().collect();
    ((0..ROUNDS).map(round).collect(), others)
}

/// Every case, in the order in which they are shown.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = floors();
    cases.extend(sqlite());
    cases.extend(postgres());
    cases.extend(memory());
    cases.extend(isolation());
    let about = "1,000,000 events pile up in 100,000 lanes, a crash, the drain";
    cases.push(Case { name: "backlog", about, kind: CaseKind::Backlog, floor: None });
    let about = "30,000 endpoints and nothing to send: memory, and start to ready";
    cases.push(Case { name: "endpoints", about, kind: CaseKind::Endpoints, floor: None });
    cases.extend(outbox());
    cases.push(floor("forward-again", "as forward, at the end: has the machine changed?", FORWARD));
    cases
}

fn floors() -> Vec<Case> {
    let large = |of: Baseline| Baseline { payload_bytes: LARGE, ..of };
    let paced = |of: Baseline, per_s| Baseline { per_s: Some(per_s), ..of };
    vec![
        disk("fdatasync", "append 4 KiB and fdatasync, on the disk the stores use", None),
        disk("fdatasync-200", "the same, 200/s by schedule", Some(200)),
        floor("hop", "load straight into the sink, 512 B", HOP),
        floor("forward", "load, plain forwarder, sink, 512 B", FORWARD),
        floor(
            "sequential",
            "one client, one request after the other",
            Baseline { connections: 1, ..HOP },
        ),
        floor("hop-8k", "as hop, 8 KiB", large(HOP)),
        floor("forward-8k", "as forward, 8 KiB", large(FORWARD)),
        floor("hop-200", "as hop, 200/s by schedule", paced(HOP, 200)),
        floor("forward-200", "as forward, 200/s by schedule", paced(FORWARD, 200)),
        floor("hop-2000", "as hop, 2,000/s by schedule", paced(HOP, 2_000)),
        floor("forward-2000", "as forward, 2,000/s by schedule", paced(FORWARD, 2_000)),
    ]
}

fn disk(name: &'static str, about: &'static str, per_s: Option<u64>) -> Case {
    Case { name, about, kind: CaseKind::Disk { per_s }, floor: None }
}

fn floor(name: &'static str, about: &'static str, floor: Baseline) -> Case {
    Case { name, about, kind: CaseKind::Baseline(floor), floor: None }
}

fn publish(name: &'static str, about: &'static str, floor: &'static str, publish: Publish) -> Case {
    Case { name, about, kind: CaseKind::Publish(publish), floor: Some(floor) }
}

fn sqlite() -> Vec<Case> {
    let hundred = Publish { endpoints: Endpoints::OneOf(100), ..PLAIN };
    let fan_out = Publish { endpoints: Endpoints::AllOf(10), ..PLAIN };
    let large = Publish { payload_bytes: LARGE, ..PLAIN };
    let hot = Publish { keys: Keys::Hot, ..PLAIN };
    let no_keys = Publish { keys: Keys::None, ..PLAIN };
    vec![
        publish(
            "sqlite-single",
            "one event per request, 512 B, 10,000 keys, 1 endpoint",
            "",
            PLAIN,
        ),
        publish("sqlite-batch", "as single, 100 events per request", "", BATCH),
        publish("sqlite-stream", "as single, NDJSON with 1,000 lines per request", "", STREAM),
        publish("sqlite-8k", "as single, 8 KiB", "-8k", large),
        publish(
            "sqlite-100-endpoints",
            "as single, each event to one of 100 endpoints",
            "",
            hundred,
        ),
        publish("sqlite-fan-out-10", "as single, each event to all of 10 endpoints", "", fan_out),
        publish("sqlite-hot-key", "as single, one key for all", "", hot),
        publish("sqlite-no-keys", "as single, no keys", "", no_keys),
        publish("sqlite-200", "as single, 200/s by schedule", "-200", SLOW),
        publish("sqlite-2000", "as single, 2,000/s by schedule", "-2000", STEADY),
    ]
}

fn postgres() -> Vec<Case> {
    let on = |of: Publish| Publish { store: Store::Postgres, ..of };
    vec![
        publish(
            "postgres-single",
            "one event per request, 512 B, 10,000 keys, 1 endpoint",
            "",
            on(PLAIN),
        ),
        publish("postgres-batch", "as single, 100 events per request", "", on(BATCH)),
        publish(
            "postgres-stream",
            "as single, NDJSON with 1,000 lines per request",
            "",
            on(STREAM),
        ),
        publish("postgres-200", "as single, 200/s by schedule", "-200", on(SLOW)),
        publish("postgres-2000", "as single, 2,000/s by schedule", "-2000", on(STEADY)),
    ]
}

fn memory() -> Vec<Case> {
    let on = |of: Publish| Publish { store: Store::Memory, ..of };
    vec![
        publish(
            "memory-single",
            "one event per request, 512 B, 10,000 keys, 1 endpoint",
            "",
            on(PLAIN),
        ),
        publish("memory-batch", "as single, 100 events per request", "", on(BATCH)),
        publish("memory-stream", "as single, NDJSON with 1,000 lines per request", "", on(STREAM)),
        publish("memory-200", "as single, 200/s by schedule", "-200", on(SLOW)),
        publish("memory-2000", "as single, 2,000/s by schedule", "-2000", on(STEADY)),
    ]
}

fn isolation() -> Vec<Case> {
    let case = |name, about, kind| Case { name, about, kind, floor: None };
    let hanging = |hangs, per_s| CaseKind::Hanging { hangs, per_s };
    vec![
        case("beside-none", "one endpoint alone, full load", hanging(false, None)),
        case("beside-hanging", "the same beside one that hangs 10 s", hanging(true, None)),
        case("beside-none-2000", "one endpoint alone, 2,000/s", hanging(false, Some(2_000))),
        case(
            "beside-hanging-2000",
            "the same beside one that hangs 10 s",
            hanging(true, Some(2_000)),
        ),
        case("tenants-even", "100 tenants, 20/s each", CaseKind::Tenants { noisy: false }),
        case(
            "tenants-noisy",
            "the same, one of them sends 1,000/s: the others",
            CaseKind::Tenants { noisy: true },
        ),
    ]
}

fn outbox() -> Vec<Case> {
    let case = |name, about, kind| Case { name, about, kind: CaseKind::Outbox(kind), floor: None };
    let (drain, delay) = (OutboxCase::Drain, OutboxCase::Delay);
    let cpu = |reading, per_s| OutboxCase::Cpu { reading, per_s };
    vec![
        case(
            "outbox-drain-sqlite",
            "200,000 waiting rows of 512 B from PostgreSQL, until all are delivered",
            drain(Store::Sqlite),
        ),
        case(
            "outbox-drain-postgres",
            "the same, stored in another PostgreSQL",
            drain(Store::Postgres),
        ),
        case("outbox-tail-200", "COMMIT to POST at 200/s, by the log", delay(Reading::Tail)),
        case("outbox-notify-200", "the same, by notifications", delay(Reading::Notify)),
        case("outbox-poll-200", "the same, by polling every 5 to 100 ms", delay(Reading::Poll)),
        case(
            "outbox-cpu-poll",
            "CPU of relaying and storing 1,000 commits/s by polling, nothing delivered",
            cpu(Reading::Poll, Some(1_000)),
        ),
        case("outbox-cpu-tail", "the same, by the log", cpu(Reading::Tail, Some(1_000))),
        case("outbox-idle-poll", "CPU of polling an empty outbox", cpu(Reading::Poll, None)),
        case("outbox-idle-tail", "CPU of tailing a silent log", cpu(Reading::Tail, None)),
        case("outbox-emit", "8 sessions that commit with and without an event", OutboxCase::Emit),
        case(
            "outbox-dead-rows",
            "COMMIT to POST by polling every 1 ms, without and with 300,000 dead rows",
            OutboxCase::DeadRows,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<&str> = all().iter().map(|case| case.name).collect();
        assert_eq!(names.len(), all().len());
    }

    #[test]
    fn every_case_is_compared_with_floors_that_are_measured() {
        let cases = all();
        for case in &cases {
            for floor in ["hop", "forward"] {
                let Some(suffix) = case.floor else { continue };
                let name = format!("{floor}{suffix}");
                assert!(cases.iter().any(|case| case.name == name), "{} needs {name}", case.name);
            }
        }
    }

    #[test]
    fn every_case_runs_in_rounds_or_once() {
        let cases = all();
        let (rounds, others) = apart(&cases);
        assert_eq!(rounds[0].len() + others.len(), cases.len());
        let times = |name| rounds.iter().flatten().filter(|case| case.name == name).count();
        for (name, expected) in
            [("sqlite-single", ROUNDS), ("sqlite-200", SLOW_ROUNDS), ("backlog", 0)]
        {
            assert_eq!(times(name), expected, "{name}");
        }
    }
}
