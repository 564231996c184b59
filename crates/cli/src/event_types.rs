//! `railpost event-types`: JSON Schemas for payloads.

use serde_json::{Map, Value, json};

use super::Session;
use super::confirm::Confirmation;
use super::failure::{Failure, Outcome};
use super::input;
use super::list::{self, Paging};
use super::out::{Column, cut_column, field, full_column};

/// What can be done with event types.
#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// List them
    List(Paging),
    /// Show one with its schemas
    Show { name: String },
    /// Create or replace one
    #[command(visible_aliases = ["create", "add", "update", "edit"])]
    Put {
        name: String,
        /// A line for people
        #[arg(long, default_value = "")]
        description: String,
        /// What happens to an event that does not fit: off, warn or reject
        #[arg(long, default_value = "off", value_parser = ["off", "warn", "reject"], hide_possible_values = true)]
        validation: String,
        /// The schema of a version, such as `1=@order.json`; may be given more than once
        #[arg(long = "schema", value_name = "VERSION=JSON|@FILE")]
        schemas: Vec<String>,
    },
    /// Delete one with its schemas
    Delete {
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}

const COLUMNS: [Column; 4] = [
    full_column("name", |item| field(item, "name")),
    full_column("validation", |item| field(item, "validation")),
    full_column("versions", |item| match item["schemas"].as_object() {
        Some(schemas) if !schemas.is_empty() => {
            schemas.keys().cloned().collect::<Vec<_>>().join(",")
        }
        _ => "-".to_owned(),
    }),
    cut_column("description", |item| field(item, "description")),
];

pub(super) fn run(action: Action, session: &Session) -> Outcome {
    let (client, out) = (&session.client, session.out);
    let one = |name: &str| client.of_tenant(&["event-types", name]);
    match action {
        Action::List(paging) => {
            list::show(session, &client.of_tenant(&["event-types"]), &paging, &COLUMNS)
        }
        Action::Show { name } => out.record(&client.get(&one(&name))?),
        Action::Put { name, description, validation, schemas } => {
            let schemas = parse_schemas(&schemas)?;
            let body =
                json!({ "description": description, "validation": validation, "schemas": schemas });
            out.record(&client.put(&one(&name), &body)?)
        }
        Action::Delete { name, confirmation } => {
            let effect = format!(
                "This deletes the event type `{name}` with its schemas: payloads of this type are not validated any more."
            );
            confirmation.ask(out, &effect)?;
            client.delete(&one(&name))?;
            out.done(&json!({ "deleted": name }), &format!("deleted {name}"))?;
            out.hint(&format!(
                "To have it again: railpost event-types put {name} --schema VERSION=@FILE"
            ));
            Ok(())
        }
    }
}

fn parse_schemas(given: &[String]) -> Outcome<Map<String, Value>> {
    let mut schemas = Map::new();
    for schema in given {
        let (version, schema) = schema.split_once('=').ok_or_else(|| {
            Failure::usage(format!(
                "--schema: expected `VERSION=JSON` or `VERSION=@FILE`; got `{schema}`"
            ))
        })?;
        schemas.insert(version.to_owned(), input::read_json("--schema", schema)?);
    }
    Ok(schemas)
}
