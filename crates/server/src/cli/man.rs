//! `railpost man`: manual pages, made of the same descriptions as `--help`.

use std::path::PathBuf;

use clap_mangen::Man;
use railpost_cli::{Failure, Out, Outcome};
use serde_json::json;

/// The arguments of `man`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Write the pages of all commands into this folder, which is created if it is missing
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments, command: clap::Command, out: Out) -> Outcome {
    let Some(dir) = &arguments.dir else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page)?;
        return out.bytes(&page);
    };
    let written =
        std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(command, dir));
    written.map_err(|error| Failure::new(format!("cannot write to {}: {error}", dir.display())))?;
    out.done(&json!({ "dir": dir }), &format!("wrote the manual pages to {}", dir.display()))
}
