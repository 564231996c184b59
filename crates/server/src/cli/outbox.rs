//! `railpost outbox init` and `drop`: set a source up at its database, and take that away again. They read the
//! configuration as the server does. The other commands of `railpost outbox` ask the server.

use railpost_cli::{Failure, Out, Outcome};
use railpost_relay::config::Mode;
use railpost_relay::{SourceConfig, SourceSection, Trouble};
use serde_json::json;
use tokio::runtime::Runtime;

use super::config::{self, ConfigFileArgument};
use crate::config::Config;
use crate::outbox::store_address;
use crate::serve;

/// What can be done with sources.
#[derive(Debug, clap::Subcommand)]
pub(super) enum OutboxAction {
    /// Create what a source needs in its database: table, function, trigger, publication
    ///
    /// The database's own role in the configuration needs no right to create tables: see --url.
    #[command(verbatim_doc_comment)]
    Init(InitArguments),
    #[command(flatten)]
    Client(railpost_cli::outbox::Action),
    /// Remove what Railpost made at a source; the server must be stopped
    ///
    /// Drops the replication slot, the publication and the trigger, and forgets how far the source was read.
    /// The table, its rows and the function stay. Take the section out of the configuration afterwards.
    #[command(verbatim_doc_comment)]
    Drop(DropArguments),
}

/// The arguments of `outbox init`.
#[derive(Debug, clap::Args)]
pub(super) struct InitArguments {
    /// The source, as the configuration names it; may be left out if there is only one
    source: Option<String>,
    /// Print the SQL instead of running it
    #[arg(long)]
    print: bool,
    /// Connect to its database as this user, such as postgres://admin@host/database
    #[arg(long, value_name = "ADMIN_URL", conflicts_with = "print")]
    url: Option<String>,
    #[command(flatten)]
    file: ConfigFileArgument,
}

/// The arguments of `outbox drop`.
#[derive(Debug, clap::Args)]
pub(super) struct DropArguments {
    /// The source, as the configuration names it
    source: String,
    /// Connect to its database as this user, such as postgres://admin@host/database
    #[arg(long, value_name = "ADMIN_URL")]
    url: Option<String>,
    #[command(flatten)]
    file: ConfigFileArgument,
}

pub(super) fn init(arguments: InitArguments, out: Out) -> Outcome {
    let config = load(&arguments.file)?;
    let section = find(&config, arguments.source.as_deref())?;
    let source = with_url(section, arguments.url)?;
    let sql = railpost_relay::init_sql(&source);
    if arguments.print {
        return out.bytes(sql.as_bytes());
    }
    let store = store_address(&config);
    let sql = match sql.is_empty() {
        true => sql,
        false => {
            let made = railpost_relay::init(&source, store.as_ref());
            Runtime::new()?.block_on(made).map_err(|trouble| failed(&trouble))?
        }
    };
    let (name, answer) = (&source.name, json!({ "source": source.name, "sql": sql }));
    match sql.is_empty() {
        true => out.done(&answer, &format!("{name}: nothing to create")),
        false => out.done(&answer, &format!("{name}: created what it needs")),
    }?;
    out.hint(&format!(
        "Next: start the server, then `railpost outbox check {name}`: it prints the GRANTs that are missing."
    ));
    Ok(())
}

pub(super) fn drop(arguments: DropArguments, out: Out) -> Outcome {
    let config = load(&arguments.file)?;
    let source = with_url(find(&config, Some(&arguments.source))?, arguments.url)?;
    let Dropped { objects, unseen } = Runtime::new()?.block_on(drop_source(&config, &source))?;
    let what = match (&unseen, objects.as_slice()) {
        (Some(trouble), _) => format!("forgotten; its database was not looked at: {trouble}"),
        (None, []) => "nothing was left at its database".to_owned(),
        (None, objects) => format!("dropped {}", objects.join(", ")),
    };
    let (name, unseen) = (&source.name, unseen.map(|trouble| trouble.to_string()));
    let answer = json!({ "source": name, "dropped": objects, "database_problem": unseen });
    out.done(&answer, &format!("{name}: {what}"))?;
    out.hint("Take its section out of the configuration before you start the server.");
    Ok(())
}

/// The store is opened first: as long as a server runs, it reads the source and holds its slot.
async fn drop_source(config: &Config, source: &SourceConfig) -> Outcome<Dropped> {
    let store = serve::open_stopped(config).await.map_err(Failure::new)?;
    let parked = store.parked_holds(&source.name).await.map_err(Failure::new)?.summary.rows;
    if parked > 0 {
        let name = &source.name;
        return Err(Failure::new(format!("{parked} rows of {name} are parked")).next(format!(
            "start the server, then retry, skip or discard them: railpost outbox parked list {name}"
        )));
    }
    let dropped = railpost_relay::drop_source(source, store_address(config).as_ref()).await;
    let dropped = match dropped {
        Ok(objects) => Dropped { objects, unseen: None },
        // A trigger may be left, which harms nobody. A slot would keep the log until the disk is full.
        Err(trouble) if source.mode == Mode::Poll => {
            Dropped { objects: Vec::new(), unseen: Some(trouble) }
        }
        Err(trouble) => return Err(failed(&trouble)),
    };
    store.forget_source(&source.name).await.map_err(Failure::new)?;
    Ok(dropped)
}

/// What was dropped at a source's database.
struct Dropped {
    objects: Vec<String>,
    /// Why nobody looked.
    unseen: Option<Trouble>,
}

fn load(file: &ConfigFileArgument) -> Outcome<Config> {
    Ok(config::load(file, Vec::new()).map_err(Failure::usage)?.config)
}

/// The section of a source: the only one if none is named.
fn find<'c>(config: &'c Config, name: Option<&str>) -> Outcome<&'c SourceSection> {
    let names = || {
        let names: Vec<_> = config.outbox.iter().map(|section| section.name.as_str()).collect();
        names.join(", ")
    };
    match (name, config.outbox.as_slice()) {
        (_, []) => Err(Failure::usage("the configuration has no section [[outbox]]")
            .next("`railpost config default` prints one; --config names the file")),
        (None, [only]) => Ok(only),
        (None, _) => Err(Failure::usage(format!("name a source: one of {}", names()))),
        (Some(name), sections) => {
            let found = sections.iter().find(|section| section.name == name);
            found.ok_or_else(|| {
                Failure::usage(format!("there is no source {name}: expected one of {}", names()))
            })
        }
    }
}

fn with_url(section: &SourceSection, url: Option<String>) -> Outcome<SourceConfig> {
    let url = url.unwrap_or_else(|| section.url.clone());
    let section = SourceSection { url, ..section.clone() };
    section.check().map_err(|error| Failure::usage(format!("{}.{error}", section.name)))
}

fn failed(trouble: &Trouble) -> Failure {
    let failure = Failure::new(trouble);
    match trouble.remedy() {
        Some(remedy) => failure.next(remedy),
        None => failure,
    }
}
