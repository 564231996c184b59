//! The crates that are linked into the binary, as cargo resolves them for one platform. Macros, build scripts and what
//! those need are not part of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::output;

/// One of them.
pub(super) struct Crate {
    pub(super) name: String,
    pub(super) version: String,
    /// An SPDX expression.
    pub(super) licence: String,
    pub(super) repository: Option<String>,
    /// The SHA-256 of what the registry has; nothing for crates of the workspace.
    pub(super) checksum: Option<String>,
    /// The folder of its sources.
    pub(super) folder: PathBuf,
    /// The ids of those it uses.
    pub(super) needs: BTreeSet<String>,
}

/// All of them, by cargo's id.
pub(super) struct Crates(pub(super) BTreeMap<String, Crate>);

impl Crates {
    pub(super) fn of_the_binary(root: &Path, triple: &str) -> Result<Self, String> {
        let names = linked(root, triple)?;
        let metadata = metadata(root, triple)?;
        let checksums = checksums(root)?;
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let mut crates = BTreeMap::new();
        for package in packages {
            let name = (text(&package["name"]), text(&package["version"]));
            if names.contains(&name) {
                crates.insert(text(&package["id"]), Crate::new(package, checksums.get(&name)));
            }
        }
        if crates.len() != names.len() {
            return Err(format!(
                "cargo tree has {} crates, cargo metadata {}",
                names.len(),
                crates.len()
            ));
        }
        let ids: BTreeSet<String> = crates.keys().cloned().collect();
        for node in metadata["resolve"]["nodes"].as_array().into_iter().flatten() {
            if let Some(known) = crates.get_mut(&text(&node["id"])) {
                let needs =
                    node["deps"].as_array().into_iter().flatten().filter(|need| is_normal(need));
                known.needs = needs.map(|need| text(&need["pkg"])).collect::<BTreeSet<_>>();
                known.needs.retain(|id| ids.contains(id));
            }
        }
        Ok(Self(crates))
    }

    /// The version of the binary.
    pub(super) fn version(&self) -> &str {
        self.0.values().find(|known| known.name == "railpost").map_or("", |known| &known.version)
    }

    /// Compares them with what cargo says it built for the platform.
    pub(super) fn compare(&self, built: &BTreeSet<String>) -> Result<(), String> {
        let ids: BTreeSet<String> = self.0.keys().cloned().collect();
        if ids == *built {
            println!("   {} crates are linked, and all of them are named", ids.len());
            return Ok(());
        }
        let (more, fewer) = (built.difference(&ids), ids.difference(built));
        Err(format!(
            "built, but not named: {:?}; named, but not built: {:?}",
            more.collect::<Vec<_>>(),
            fewer.collect::<Vec<_>>()
        ))
    }
}

impl Crate {
    fn new(package: &Value, checksum: Option<&String>) -> Self {
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        Self {
            name: text(&package["name"]),
            version: text(&package["version"]),
            // The form that was usual before SPDX.
            licence: text(&package["license"]).replace(" / ", "/").replace('/', " OR "),
            repository: package["repository"].as_str().map(str::to_owned),
            checksum: checksum.cloned(),
            folder: manifest.parent().map(Path::to_owned).unwrap_or_default(),
            needs: BTreeSet::new(),
        }
    }
}

fn cargo(root: &Path, args: &[&str]) -> Result<String, String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    output(cargo.current_dir(root).args(args))
}

/// Names and versions.
fn linked(root: &Path, triple: &str) -> Result<BTreeSet<(String, String)>, String> {
    let tree = ["tree", "--locked", "--package", "railpost", "--edges", "normal,no-proc-macro"];
    let form = ["--target", triple, "--prefix", "none", "--no-dedupe", "--format", "{p}"];
    let lines = cargo(root, &[&tree[..], &form].concat())?;
    let parsed = lines.lines().filter(|line| !line.is_empty()).map(|line| {
        let (name, rest) = line.split_once(" v").ok_or_else(|| format!("cargo tree: {line}"))?;
        let version = rest.split_whitespace().next().unwrap_or_default();
        Ok((name.to_owned(), version.to_owned()))
    });
    parsed.collect()
}

fn metadata(root: &Path, triple: &str) -> Result<Value, String> {
    let args = ["metadata", "--locked", "--format-version", "1", "--filter-platform", triple];
    serde_json::from_str(&cargo(root, &args)?).map_err(|error| format!("cargo metadata: {error}"))
}

/// Whether a crate needs another one when it runs, not only for its build or tests.
fn is_normal(need: &Value) -> bool {
    need["dep_kinds"].as_array().into_iter().flatten().any(|kind| kind["kind"].is_null())
}

/// The checksums in Cargo.lock.
fn checksums(root: &Path) -> Result<BTreeMap<(String, String), String>, String> {
    let lock = std::fs::read_to_string(root.join("Cargo.lock"));
    let lock = lock.map_err(|error| format!("Cargo.lock: {error}"))?;
    let value = |package: &str, field: &str| {
        let line = package.lines().find_map(|line| line.strip_prefix(&format!("{field} = \"")));
        line.map(|rest| rest.trim_end_matches('"').to_owned())
    };
    let packages = lock.split("[[package]]").skip(1);
    let found = packages.filter_map(|package| {
        let name = (value(package, "name")?, value(package, "version")?);
        Some((name, value(package, "checksum")?))
    });
    Ok(found.collect())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crates() -> Crates {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        Crates::of_the_binary(root, &super::super::host().unwrap()).unwrap()
    }

    #[test]
    fn what_the_binary_links_is_named_with_licence_and_checksum_and_nothing_else_is() {
        let crates = crates();
        let names: BTreeSet<&str> = crates.0.values().map(|known| known.name.as_str()).collect();
        for linked in ["railpost", "railpost-cli", "libsqlite3-sys", "libmimalloc-sys", "ring"] {
            assert!(names.contains(linked), "{linked}");
        }
        for other in ["cc", "proptest", "railpost-sim", "serde_derive", "syn", "xtask"] {
            assert!(!names.contains(other), "{other}");
        }
        for known in crates.0.values() {
            assert!(!known.licence.is_empty(), "{}: no licence", known.name);
            let is_ours = known.name.starts_with("railpost");
            assert_eq!(known.checksum.is_none(), is_ours, "{}", known.name);
        }
    }

    /// Another way to the same: from crate to crate, with the features of the whole workspace.
    #[test]
    fn every_crate_is_reached_from_the_binary_and_knows_its_needs() {
        let crates = crates();
        let first = crates.0.iter().find(|(_, known)| known.name == "railpost").unwrap().0;
        let (mut reached, mut open) = (BTreeSet::from([first]), vec![first]);
        while let Some(id) = open.pop() {
            open.extend(crates.0[id].needs.iter().filter(|need| reached.insert(need)));
        }
        assert_eq!(reached.len(), crates.0.len());
    }

    #[test]
    fn the_bill_of_materials_and_the_licence_list_name_every_crate() {
        let crates = crates();
        let sbom = super::super::sbom::text(&crates, "some-platform", "1.0.0");
        let sbom: Value = serde_json::from_str(&sbom).unwrap();
        let list = super::super::licences::text(&crates).unwrap();
        let components = sbom["components"].as_array().unwrap();
        for known in crates.0.values().filter(|known| known.name != "railpost") {
            let is_it = |c: &&Value| {
                c["name"] == known.name.as_str() && c["version"] == known.version.as_str()
            };
            let component = components.iter().find(is_it).unwrap();
            assert_eq!(component["licenses"][0]["expression"], known.licence.as_str());
            let line = format!("  {} {} (", known.name, known.version);
            assert!(known.checksum.is_none() || list.contains(&line), "{line}");
        }
    }
}
