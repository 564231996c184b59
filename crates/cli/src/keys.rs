//! `railpost keys` and `railpost whoami`: API keys and what they may do.

use serde_json::json;
use url::Url;

use super::Session;
use super::confirm::Confirmation;
use super::failure::Outcome;
use super::list::{self, Paging};
use super::out::{Column, age, cut_column, field, full_column};

/// What can be done with API keys.
#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// List them
    List {
        /// Of all tenants (needs an admin key)
        #[arg(long)]
        everywhere: bool,
        #[command(flatten)]
        paging: Paging,
    },
    /// Create one; it is printed this one time
    Create {
        /// A name, for people
        name: String,
        /// What it may do: admin, tenant, publish-only or read-only
        #[arg(long, default_value = "tenant", value_parser = ["admin", "tenant", "publish-only", "read-only"], hide_possible_values = true)]
        scope: String,
        /// When it ends (RFC 3339)
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
    },
    /// Revoke a key: it stops working at once
    #[command(visible_aliases = ["delete", "rm", "remove"])]
    Revoke {
        id: String,
        #[command(flatten)]
        confirmation: Confirmation,
        /// A key of another tenant, or an admin key (needs an admin key)
        #[arg(long)]
        everywhere: bool,
    },
}

const COLUMNS: [Column; 5] = [
    full_column("id", |item| field(item, "id")),
    cut_column("name", |item| field(item, "name")),
    full_column("scope", |item| field(item, "scope")),
    full_column("last used", |item| age(item, "last_used_at")),
    full_column("state", |item| {
        match (item["revoked_at"].is_null(), item["expires_at"].is_null()) {
            (false, _) => format!("revoked {}", age(item, "revoked_at")),
            (true, false) => format!("expires {}", age(item, "expires_at")),
            (true, true) => "active".to_owned(),
        }
    }),
];

pub(super) fn run(action: Action, session: &Session) -> Outcome {
    let (client, out) = (&session.client, session.out);
    match action {
        Action::List { everywhere, paging } => {
            list::show(session, &keys(session, everywhere, &[]), &paging, &COLUMNS)
        }
        Action::Create { name, scope, expires_at } => {
            let mut body = json!({ "name": name, "scope": scope });
            if let Some(at) = expires_at {
                body["expires_at"] = at.into();
            }
            let created = client.post(&keys(session, scope == "admin", &[]), &body)?;
            out.record(&created)?;
            out.hint("Keep the key: it is not shown again.");
            Ok(())
        }
        Action::Revoke { id, confirmation, everywhere } => {
            let effect = format!("This revokes the API key {id} at once and for good.");
            confirmation.ask(out, &effect)?;
            client.delete(&keys(session, everywhere, &[&id]))?;
            out.done(&json!({ "revoked": id }), &format!("revoked {id}"))?;
            out.hint("It cannot be undone; `railpost keys create` makes another key.");
            Ok(())
        }
    }
}

/// Keys of the tenant, or all.
fn keys(session: &Session, everywhere: bool, rest: &[&str]) -> Url {
    let segments = [&["keys"], rest].concat();
    if everywhere {
        session.client.of_server(&segments)
    } else {
        session.client.of_tenant(&segments)
    }
}

pub(super) fn whoami(session: &Session) -> Outcome {
    let answer = session.client.get(&session.client.of_server(&["whoami"]))?;
    if session.out.json {
        return session.out.value(&answer);
    }
    session.out.record(&answer["key"])
}
