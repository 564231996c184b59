//! `railpost endpoints`: where events go.

use serde_json::{Map, Value, json};

use super::Session;
use super::confirm::{Confirmation, count};
use super::failure::{Failure, Outcome};
use super::list::{self, Paging};
use super::out::{Column, Out, cut_column, facts, field, full_column};
use super::policy::PolicyFlags;
use super::{health, input, probe, schedule, secrets};

/// What can be done with endpoints.
#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// List them
    List(Paging),
    /// Show one with all its settings
    Show { id: String },
    /// Create one; prints its secret
    Create {
        /// Where deliveries go
        #[arg(long)]
        url: String,
        /// A secret of your own, `whsec_…` or `whsk_…`; without it one is made
        #[arg(long)]
        secret: Option<String>,
        #[command(flatten)]
        settings: Box<EndpointFlags>,
    },
    /// Change one; what is not given stays
    Update {
        id: String,
        /// Where deliveries go
        #[arg(long)]
        url: Option<String>,
        #[command(flatten)]
        settings: Box<EndpointFlags>,
    },
    /// Delete one; its open deliveries are discarded
    Delete {
        id: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Send nothing to it until it is resumed; its backlog is kept
    Pause { id: String },
    /// Send to it again: switches it on, half-opens its breaker, lifts its Retry-After
    Resume { id: String },
    /// Send one request at once, past breaker and queue, and show what came back
    ///
    /// Exit codes: 0 the request was acknowledged; 1 it was not.
    #[command(verbatim_doc_comment)]
    Probe {
        id: String,
        /// Resume the endpoint if the request is acknowledged
        #[arg(long)]
        resume: bool,
    },
    /// Send a test event to it alone, in its queue
    Test {
        id: String,
        /// The test event's type
        #[arg(long = "type", value_name = "TYPE")]
        event_type: Option<String>,
        /// The test event's payload
        #[arg(long, value_name = "JSON|@FILE|-")]
        data: Option<String>,
    },
    /// Show its health, backlog and lag
    Health { id: String },
    /// Print its planned attempts
    Schedule {
        id: String,
        /// How many
        #[arg(long, default_value_t = 20)]
        attempts: u32,
    },
    /// List its secrets, without their values
    Secrets { id: String },
    /// Make a new secret; the old ones sign too until the overlap ends
    Rotate {
        id: String,
        /// How long the old ones stay active
        #[arg(long, default_value = "24h", value_name = "TIME")]
        overlap: railpost_engine::Span,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Reveal the value of a secret; this adds an audit entry
    Reveal {
        id: String,
        /// `railpost endpoints secrets ID` lists them
        secret: String,
    },
}

const ENVELOPES: [&str; 9] = [
    "raw",
    "cloudevents-structured",
    "cloudevents-binary",
    "event",
    "thin",
    "pagerduty",
    "slack",
    "teams",
    "template",
];

/// What can be set about an endpoint.
#[derive(Debug, Default, clap::Args)]
pub struct EndpointFlags {
    /// Event types it wants, such as `order.paid` or `order.*`; may be given more than once
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// A line for people
    #[arg(long)]
    description: Option<String>,
    /// How events are wrapped: raw, cloudevents-structured, cloudevents-binary, event or thin; for people's tools
    /// pagerduty, slack, teams or template
    #[arg(long, value_parser = ENVELOPES, hide_possible_values = true)]
    envelope: Option<String>,
    /// The routing key of the envelope pagerduty
    #[arg(long, value_name = "KEY")]
    routing_key: Option<String>,
    /// The body of the envelope template: JSON with places such as {{summary}} inside of strings
    #[arg(long, value_name = "JSON|@FILE|-")]
    template: Option<String>,
    /// Deliver payloads of more bytes than this as a reference; `none` takes the bound away
    #[arg(long, value_name = "BYTES|none", value_parser = thin_above)]
    thin_above: Option<ThinAbove>,
    /// Longest that an attempt may take
    #[arg(long, value_name = "TIME")]
    timeout: Option<railpost_engine::Span>,
    /// How old its newest secret may become before the server adds another, such as 90d; `none` ends that
    #[arg(long, value_name = "TIME|none", value_parser = optional_span)]
    rotate_every: Option<OptionalSpan>,
    /// How long the secrets before it still sign then; `none` for the default: 7d, or half of `--rotate-every`
    #[arg(long, value_name = "TIME|none", value_parser = optional_span)]
    rotate_overlap: Option<OptionalSpan>,
    /// A header that every attempt carries; may be given more than once
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Oldest TLS: 1.2 or 1.3
    #[arg(long, value_parser = ["1.2", "1.3"], hide_possible_values = true)]
    tls_min: Option<String>,
    /// Trust these authorities in addition to the public ones
    #[arg(long, value_name = "PEM FILE")]
    authorities: Option<String>,
    #[command(flatten)]
    policy: PolicyFlags,
}

impl EndpointFlags {
    /// What was given, with the policy's part of it as `policy` makes it.
    fn to_json(
        &self,
        policy: impl FnOnce(&PolicyFlags) -> Outcome<Value>,
    ) -> Outcome<Map<String, Value>> {
        let mut body = Map::new();
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                body.insert(name.to_owned(), value);
            }
        };
        set("types", (!self.types.is_empty()).then(|| json!(self.types)));
        set("description", self.description.as_ref().map(|text| json!(text)));
        set("envelope", self.envelope.as_ref().map(|text| json!(text)));
        set("routing_key", self.routing_key.as_ref().map(|key| json!(key)));
        if let Some(template) = &self.template {
            set(
                "template",
                Some(json!(String::from_utf8_lossy(&input::read("--template", template)?))),
            );
        }
        set("thin_above", self.thin_above.map(|bound| json!(bound.0)));
        set("timeout", self.timeout.map(|span| json!(span)));
        set("rotate_every", self.rotate_every.map(|span| json!(span.0)));
        set("rotate_overlap", self.rotate_overlap.map(|span| json!(span.0)));
        set("tls_min", self.tls_min.as_ref().map(|text| json!(text)));
        set("headers", headers(&self.headers)?);
        if let Some(path) = &self.authorities {
            let pem = input::read_file("--authorities", path)?;
            set("authorities_pem", Some(json!(String::from_utf8_lossy(&pem))));
        }
        if self.policy.any_given() {
            set("policy", Some(policy(&self.policy)?));
        }
        Ok(body)
    }
}

/// A bound in bytes, or none.
#[derive(Clone, Copy, Debug)]
struct ThinAbove(Option<u32>);

fn thin_above(text: &str) -> Result<ThinAbove, String> {
    if text == "none" {
        return Ok(ThinAbove(None));
    }
    let bound = text.parse().map_err(|_| "expected a number of bytes, or `none`".to_owned())?;
    Ok(ThinAbove(Some(bound)))
}

/// A length of time, or none.
#[derive(Clone, Copy, Debug)]
struct OptionalSpan(Option<railpost_engine::Span>);

fn optional_span(text: &str) -> Result<OptionalSpan, String> {
    if text == "none" {
        return Ok(OptionalSpan(None));
    }
    let span = text.parse().map_err(|_| "expected a length of time such as `90d`, or `none`");
    Ok(OptionalSpan(Some(span?)))
}

fn headers(lines: &[String]) -> Outcome<Option<Value>> {
    let mut headers = Map::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| {
            Failure::usage(format!("--header: expected `name: value`; got `{line}`"))
        })?;
        headers.insert(name.trim().to_owned(), json!(value.trim()));
    }
    Ok((!headers.is_empty()).then_some(headers.into()))
}

const COLUMNS: [Column; 4] = [
    full_column("id", |item| field(item, "id")),
    full_column("health", health::cell),
    cut_column("types", |item| field(item, "types")),
    cut_column("url", |item| field(item, "url")),
];

pub(super) fn run(action: Action, session: &Session) -> Outcome {
    let (client, out) = (&session.client, session.out);
    let all = client.of_tenant(&["endpoints"]);
    let one = |id: &str| client.of_tenant(&["endpoints", id]);
    let part = |id: &str, part: &str| client.of_tenant(&["endpoints", id, part]);
    match action {
        Action::List(paging) => {
            list::show_with_lines(session, &all, &paging, &COLUMNS, health::below)
        }
        Action::Show { id } => show(out, &client.get(&one(&id))?),
        Action::Create { url, secret, settings } => {
            create(session, &url, secret.as_deref(), &settings)
        }
        Action::Update { id, url, settings } => update(session, &id, url.as_deref(), &settings),
        Action::Delete { id, confirmation } => delete(session, &id, confirmation),
        Action::Pause { id } => {
            status(out, &client.act(&part(&id, "pause"))?)?;
            out.hint(&format!("Its backlog is kept. To go on: railpost endpoints resume {id}"));
            Ok(())
        }
        Action::Resume { id } => probe::resume(session, &id),
        Action::Probe { id, resume } => probe::probe(session, &id, resume),
        Action::Test { id, event_type, data } => test(session, &id, event_type, data.as_deref()),
        Action::Health { id } => show_health(out, &client.get(&part(&id, "health"))?),
        Action::Schedule { id, attempts } => schedule::of_endpoint(session, &id, attempts),
        Action::Secrets { id } => secrets::list(session, &id),
        Action::Rotate { id, overlap, confirmation } => {
            secrets::rotate(session, &id, overlap, confirmation)
        }
        Action::Reveal { id, secret } => secrets::reveal(session, &id, &secret),
    }
}

/// Shows an endpoint: its health first, then its settings.
fn show(out: Out, endpoint: &Value) -> Outcome {
    if out.json {
        return out.value(endpoint);
    }
    let settings = facts(endpoint, &["id", "url", "health", "status", "policy"]);
    let named = |name: &str| (name.to_owned(), field(endpoint, name));
    let mut shown = vec![named("id"), named("url")];
    shown.extend(health::facts(endpoint));
    shown.extend(settings);
    shown.push(("policy".to_owned(), format!("{:#}", endpoint["policy"])));
    out.facts(&shown)
}

/// Shows the health of an endpoint, with the counts of its deliveries.
fn show_health(out: Out, answer: &Value) -> Outcome {
    if out.json {
        return out.value(answer);
    }
    let counts = facts(answer, &HEALTH_FIELDS);
    let shown = health::facts(&json!({ "health": answer }));
    out.facts(&shown.into_iter().chain(counts).collect::<Vec<_>>())
}

/// The fields of an endpoint's health that are told in words.
const HEALTH_FIELDS: [&str; 10] = [
    "state",
    "status",
    "since",
    "waits_for",
    "until",
    "last_error",
    "last_success_at",
    "next",
    "breaker",
    "held_until",
];

fn delete(session: &Session, id: &str, confirmation: Confirmation) -> Outcome {
    let (client, out) = (&session.client, session.out);
    let open = client.get(&client.of_tenant(&["endpoints", id, "health"]))?;
    let open = open["open"].as_u64().unwrap_or(0);
    let closes = count(open, "open delivery", "open deliveries");
    let effect = format!("This deletes endpoint {id} and closes {closes}: they are not sent.");
    confirmation.ask(out, &effect)?;
    let removed = client.delete(&client.of_tenant(&["endpoints", id]))?;
    let closed = removed["open_deliveries"].as_u64().unwrap_or(0);
    let closed = count(closed, "open delivery", "open deliveries");
    let answer = json!({ "deleted": id, "open_deliveries": removed["open_deliveries"] });
    out.done(&answer, &format!("deleted {id}; this closes {closed}"))?;
    out.hint(&format!(
        "This cannot be undone. Create it again with `railpost endpoints create`; `railpost events redeliver` sends events to the new one. What was closed: railpost deliveries list --endpoint {id} --state discarded"
    ));
    Ok(())
}

fn create(session: &Session, url: &str, secret: Option<&str>, settings: &EndpointFlags) -> Outcome {
    let mut body = settings.to_json(|policy| Ok(json!(policy.to_policy()?)))?;
    body.insert("url".to_owned(), json!(url));
    if let Some(secret) = secret {
        body.insert("secret".to_owned(), json!(secret));
    }
    let all = session.client.of_tenant(&["endpoints"]);
    let created = session.client.post(&all, &body.into())?;
    if session.out.json {
        return session.out.value(&created);
    }
    session.out.line(&format!("id      {}", field(&created, "id")))?;
    session.out.line(&format!("url     {}", field(&created, "url")))?;
    session.out.line(&format!("types   {}", field(&created, "types")))?;
    session.out.line(&format!("secret  {}", field(&created["secret"], "value")))?;
    let id = field(&created, "id");
    session.out.hint(&secrets::give_to_receiver(&id, &field(&created["secret"], "id")));
    Ok(())
}

fn update(session: &Session, id: &str, url: Option<&str>, settings: &EndpointFlags) -> Outcome {
    let one = session.client.of_tenant(&["endpoints", id]);
    let mut body = settings.to_json(PolicyFlags::change)?;
    if let Some(url) = url {
        body.insert("url".to_owned(), json!(url));
    }
    if body.is_empty() {
        return Err(Failure::usage("no setting to change").next("railpost endpoints update --help"));
    }
    session.out.record(&session.client.patch(&one, &body.into())?)
}

fn status(out: Out, endpoint: &Value) -> Outcome {
    out.done(endpoint, &format!("{} is {}", field(endpoint, "id"), field(endpoint, "status")))
}

fn test(session: &Session, id: &str, event_type: Option<String>, data: Option<&str>) -> Outcome {
    let mut body = Map::new();
    if let Some(event_type) = event_type {
        body.insert("type".to_owned(), json!(event_type));
    }
    if let Some(data) = data {
        body.insert("payload".to_owned(), input::read_json("--data", data)?);
    }
    let url = session.client.of_tenant(&["endpoints", id, "test"]);
    let sent = session.client.post(&url, &body.into())?;
    session.out.record(&sent)?;
    session
        .out
        .hint(&format!("Watch it: railpost deliveries attempts {}", field(&sent, "delivery")));
    Ok(())
}
