//! `railpost rotate-master-key`: a new master key, over the API.

use serde_json::{Value, json};

use super::Session;
use super::client::pause;
use super::failure::{Failure, Outcome};
use super::out::field;

/// The arguments of `rotate-master-key`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Rotate to the key in this file on the server's machine: 32 bytes that only their owner may read. Without it the
    /// server generates a key
    #[arg(long, value_name = "FILE", conflicts_with = "status")]
    new_key_file: Option<String>,
    /// Show whether the master key is being rotated, and begin nothing
    #[arg(long)]
    status: bool,
    /// Do not wait until everything is re-encrypted
    #[arg(long, conflicts_with = "status")]
    no_wait: bool,
}

pub(super) fn run(arguments: &Arguments, session: &Session) -> Outcome {
    let url = session.client.of_server(&["master-key", "rotation"]);
    if arguments.status {
        let rotation = session.client.get(&url)?;
        return session.out.done(&rotation, &in_words(&rotation));
    }
    let body = json!({ "new_key_file": arguments.new_key_file });
    let mut rotation = session.client.post(&url, &body)?;
    while is_running(&rotation) && !arguments.no_wait {
        session.out.progress(&in_words(&rotation));
        pause();
        rotation = session.client.get(&url)?;
        if let Some(trouble) = rotation["trouble"].as_str() {
            session.out.progress_done();
            return Err(Failure::new(format!("the rotation does not go on: {trouble}")).next(
                "the server tries again; see how far it is: railpost rotate-master-key --status",
            ));
        }
    }
    session.out.progress_done();
    session.out.done(&rotation, &in_words(&rotation))
}

fn is_running(rotation: &Value) -> bool {
    rotation["running"] == true
}

fn in_words(rotation: &Value) -> String {
    let count = field(rotation, "reencrypted");
    match (is_running(rotation), rotation["ended_at"].as_str()) {
        (true, _) => format!("the master key is being rotated: {count} values re-encrypted"),
        (false, Some(at)) => {
            format!(
                "the master key is rotated since {at}: {count} values re-encrypted; keep a copy of the new key"
            )
        }
        (false, None) => "the master key is not being rotated".to_owned(),
    }
}
