//! `railpost tenants`: the owners of events and endpoints.

use serde_json::{Map, Value, json};

use super::Session;
use super::client::pause;
use super::confirm::{Confirmation, count};
use super::failure::{Failure, Outcome};
use super::list::{self, Paging};
use super::out::{Column, age, cut_column, field, full_column};
use super::policy::{RateArgument, rate_json};

/// What can be done with tenants.
#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// List them
    List(Paging),
    /// Show one
    Show { id: String },
    /// Create one
    Create {
        /// Its id: lowercase letters, digits, `_` and `-`
        id: String,
        #[command(flatten)]
        settings: TenantFlags,
    },
    /// Change one
    Update {
        id: String,
        #[command(flatten)]
        settings: TenantFlags,
    },
    /// Erase one with all its data
    Delete {
        id: String,
        #[command(flatten)]
        confirmation: Confirmation,
        /// Do not wait until it is done
        #[arg(long)]
        no_wait: bool,
    },
}

/// What is set about a tenant.
#[derive(Debug, clap::Args)]
pub struct TenantFlags {
    /// A name, for people
    #[arg(long)]
    name: Option<String>,
    /// Most attempts per period over all its endpoints, such as `100/1s`, or `none`
    #[arg(long, value_name = "COUNT/PERIOD")]
    rate_limit: Option<RateArgument>,
    /// Most open deliveries, or `none` for the server's own bound
    #[arg(long, value_name = "N")]
    backlog_max: Option<String>,
}

impl TenantFlags {
    fn to_json(&self) -> Outcome<Map<String, Value>> {
        let mut body = Map::new();
        if let Some(name) = &self.name {
            body.insert("name".to_owned(), json!(name));
        }
        if let Some(limit) = &self.rate_limit {
            body.insert("rate_limit".to_owned(), rate_json(limit));
        }
        if let Some(max) = &self.backlog_max {
            body.insert("backlog_max".to_owned(), number_or_none("--backlog-max", max)?);
        }
        Ok(body)
    }
}

fn number_or_none(flag: &str, text: &str) -> Outcome<Value> {
    match text {
        "none" => Ok(Value::Null),
        _ => text.parse::<u64>().map(Value::from).map_err(|_| {
            Failure::usage(format!("{flag}: expected a number or `none`; got `{text}`"))
        }),
    }
}

const COLUMNS: [Column; 5] = [
    full_column("id", |item| field(item, "id")),
    cut_column("name", |item| field(item, "name")),
    full_column("rate limit", |item| match &item["rate_limit"] {
        Value::Null => "-".to_owned(),
        limit => format!("{}/{}", field(limit, "count"), field(limit, "per")),
    }),
    full_column("backlog max", |item| field(item, "backlog_max")),
    full_column("created", |item| age(item, "created_at")),
];

pub(super) fn run(action: Action, session: &Session) -> Outcome {
    let (client, out) = (&session.client, session.out);
    let one = |id: &str| client.of_server(&["tenants", id]);
    match action {
        Action::List(paging) => {
            list::show(session, &client.of_server(&["tenants"]), &paging, &COLUMNS)
        }
        Action::Show { id } => out.record(&client.get(&one(&id))?),
        Action::Create { id, settings } => {
            let mut body = settings.to_json()?;
            body.insert("id".to_owned(), json!(id));
            out.record(&client.post(&client.of_server(&["tenants"]), &body.into())?)
        }
        Action::Update { id, settings } => {
            out.record(&client.patch(&one(&id), &settings.to_json()?.into())?)
        }
        Action::Delete { id, confirmation, no_wait } => {
            client.get(&one(&id))?;
            confirmation.ask(out, &erases(session, &id)?)?;
            let erasing = client.delete(&one(&id))?;
            if no_wait {
                let next = format!("erasing {id}; see `railpost tenants show {id}`");
                return out.done(&erasing, &next);
            }
            wait_until_erased(session, &id, erasing)?;
            out.done(&json!({ "id": id, "erased": true }), &format!("erased {id}"))
        }
    }
}

/// What erasing a tenant does, and to how many endpoints.
fn erases(session: &Session, id: &str) -> Outcome<String> {
    let url = session.client.of_server(&["tenants", id, "endpoints"]);
    let page = session.client.get(&list::with_query(url, &[("limit", &Some("500".to_owned()))]))?;
    let endpoints = page["items"].as_array().map_or(0, Vec::len) as u64;
    let more = if page["next"].is_null() { "" } else { "more than " };
    let endpoints = count(endpoints, "endpoint", "endpoints");
    Ok(format!(
        "This erases tenant `{id}` with {more}{endpoints}, and all its events, deliveries and keys. It cannot be undone."
    ))
}

/// Watches the erasing of a tenant until nothing is left of it.
fn wait_until_erased(session: &Session, id: &str, mut tenant: Value) -> Outcome {
    let url = session.client.of_server(&["tenants", id]);
    while tenant["erasing"].is_object() {
        let erased = field(&tenant["erasing"], "erased");
        session.out.progress(&format!("erasing {id}: {erased} entries so far"));
        pause();
        tenant = match session.client.get(&url) {
            Err(failure) if failure.is_not_found() => Value::Null,
            found => found?,
        };
    }
    session.out.progress_done();
    Ok(())
}
