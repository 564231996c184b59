//! Which crate may depend on which: the arrows of ARCHITECTURE.md, checked.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

/// Every crate of the workspace, and the crates of the workspace that it may use.
const ROOMS: [(&str, &[&str]); 22] = [
    ("railpost-wire", &[]),
    ("railpost-engine", &["railpost-wire"]),
    ("railpost-store", &["railpost-wire", "railpost-engine"]),
    ("railpost-sqlite", &["railpost-wire", "railpost-engine", "railpost-store"]),
    ("railpost-postgres", &["railpost-wire", "railpost-engine", "railpost-store"]),
    ("railpost-conformance", &["railpost-wire", "railpost-engine", "railpost-store"]),
    ("railpost-dispatch", &["railpost-wire", "railpost-engine", "railpost-store"]),
    ("railpost-alerts", &["railpost-wire", "railpost-engine", "railpost-store"]),
    (
        "railpost-telemetry",
        &["railpost-wire", "railpost-engine", "railpost-store", "railpost-dispatch"],
    ),
    ("railpost-schema", &["railpost-wire", "railpost-engine", "railpost-store"]),
    (
        "railpost-rest",
        &["railpost-engine", "railpost-store", "railpost-dispatch", "railpost-schema"],
    ),
    (
        "railpost-api",
        &[
            "railpost-wire",
            "railpost-engine",
            "railpost-store",
            "railpost-dispatch",
            "railpost-telemetry",
            "railpost-schema",
            "railpost-rest",
            "railpost-alerts",
        ],
    ),
    (
        "railpost-dashboard",
        &[
            "railpost-wire",
            "railpost-engine",
            "railpost-store",
            "railpost-telemetry",
            "railpost-alerts",
            "railpost-api",
        ],
    ),
    ("railpost-cli", &["railpost-wire", "railpost-engine", "railpost-outbox"]),
    (
        "railpost",
        &[
            "railpost-wire",
            "railpost-engine",
            "railpost-store",
            "railpost-sqlite",
            "railpost-postgres",
            "railpost-dispatch",
            "railpost-alerts",
            "railpost-telemetry",
            "railpost-api",
            "railpost-dashboard",
            "railpost-cli",
            "railpost-schema",
            "railpost-relay",
        ],
    ),
    ("railpost-receiver", &["railpost-wire"]),
    ("railpost-outbox", &["railpost-wire"]),
    (
        "railpost-relay",
        &[
            "railpost-wire",
            "railpost-engine",
            "railpost-store",
            "railpost-outbox",
            "railpost-replication",
        ],
    ),
    ("railpost-sim", &["railpost-wire", "railpost-engine", "railpost-receiver"]),
    ("railpost-bench", &["railpost-wire", "railpost-outbox"]),
    ("railpost-replication", &[]),
    ("xtask", &[]),
];

/// Rooms without I/O, and what would bring it in.
const PURE: [&str; 3] = ["railpost-wire", "railpost-engine", "railpost-alerts"];
const IMPURE: [&str; 10] = [
    "async-std",
    "chrono",
    "getrandom",
    "hyper",
    "mio",
    "rand",
    "reqwest",
    "rusqlite",
    "smol",
    "tokio",
];

/// A crate as `cargo metadata` has it: its name and what it needs to run, by name.
struct Package {
    name: String,
    needs: Vec<String>,
}

pub(crate) fn check() -> Result<(), String> {
    let problems = problems(&packages()?);
    if problems.is_empty() {
        println!("   every dependency follows the arrows");
        return Ok(());
    }
    Err(problems.join("\n       "))
}

fn problems(packages: &[Package]) -> Vec<String> {
    let rooms = BTreeMap::from(ROOMS);
    let mut problems = Vec::new();
    for Package { name, needs } in packages {
        let Some(allowed) = rooms.get(name.as_str()) else {
            problems
                .push(format!("`{name}` is no room of the design: list it in xtask/src/edges.rs"));
            continue;
        };
        for need in needs {
            let is_room = rooms.contains_key(need.as_str());
            if is_room && !allowed.contains(&need.as_str()) {
                problems.push(format!("`{name}` must not depend on `{need}`"));
            }
            if PURE.contains(&name.as_str()) && IMPURE.contains(&need.as_str()) {
                problems.push(format!("`{name}` is pure and must not depend on `{need}`"));
            }
        }
    }
    problems
}

fn packages() -> Result<Vec<Package>, String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(program)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .map_err(|error| format!("cargo metadata could not be run: {error}"))?;
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata printed no JSON: {error}"))?;
    Ok(metadata["packages"].as_array().into_iter().flatten().map(package).collect())
}

fn package(package: &Value) -> Package {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    let needs = dependencies
        .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
        .map(|dependency| text(&dependency["name"]))
        .collect();
    Package { name: text(&package["name"]), needs }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, needs: &[&str]) -> Package {
        Package { name: name.to_owned(), needs: needs.iter().map(|n| (*n).to_owned()).collect() }
    }

    #[test]
    fn an_edge_against_the_arrows_is_found() {
        for (name, need, found) in [
            ("railpost-engine", "railpost-wire", false),
            ("railpost-wire", "railpost-engine", true),
            ("railpost-engine", "railpost-store", true),
            ("railpost-receiver", "railpost-engine", true),
            ("railpost-outbox", "railpost-store", true),
            ("railpost-store", "railpost-sqlite", true),
            ("railpost-sqlite", "railpost-store", false),
            ("railpost-sqlite", "railpost-postgres", true),
            ("railpost-dispatch", "railpost-postgres", true),
            ("railpost-alerts", "railpost-store", false),
            ("railpost-alerts", "railpost-dispatch", true),
            ("railpost-alerts", "tokio", true),
            ("railpost", "railpost-conformance", true),
            ("railpost-dispatch", "railpost", true),
            ("railpost-telemetry", "railpost-api", true),
            ("railpost-schema", "railpost-api", true),
            ("railpost-schema", "railpost-dispatch", true),
            ("railpost-api", "railpost-schema", false),
            ("railpost-api", "railpost-dashboard", true),
            ("railpost-dashboard", "railpost-dispatch", true),
            ("railpost-cli", "railpost-engine", false),
            ("railpost-cli", "railpost-api", true),
            ("railpost-cli", "railpost-store", true),
            ("railpost", "railpost-cli", false),
            ("railpost-engine", "tokio", true),
            ("railpost-wire", "getrandom", true),
            ("railpost-store", "tokio", false),
            ("railpost-utils", "serde", true),
        ] {
            let found_some = !problems(&[package(name, &[need])]).is_empty();
            assert_eq!(found_some, found, "{name} → {need}");
        }
    }

    #[test]
    fn the_workspace_keeps_to_the_arrows() {
        let packages = packages().unwrap();
        assert!(packages.iter().any(|package| package.name == "railpost-engine"));
        assert_eq!(problems(&packages), Vec::<String>::new());
    }
}
