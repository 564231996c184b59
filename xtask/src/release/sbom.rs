//! The software bill of materials, as CycloneDX 1.5.

use serde_json::{Value, json};

use super::crates::{Crate, Crates};

/// All crates of the binary, and the standard library that it links. It has no date and no serial number, so that the
/// same sources give the same text.
pub(super) fn text(crates: &Crates, triple: &str, rustc: &str) -> String {
    let (binary, libraries): (Vec<_>, Vec<_>) =
        crates.0.values().partition(|known| known.name == "railpost");
    let mut main = binary.iter().map(|known| {
        json!({
            "type": "application",
            "bom-ref": purl(known),
            "name": known.name,
            "version": known.version,
            "purl": purl(known),
            "licenses": [{ "expression": known.licence }],
            "properties": [{ "name": "railpost:platform", "value": triple }],
        })
    });
    let standard_library = json!({
        "type": "library",
        "bom-ref": "rust-std",
        "name": "rust-std",
        "version": rustc,
        "licenses": [{ "expression": "MIT OR Apache-2.0" }],
    });
    let components = libraries.into_iter().map(component).chain([standard_library]);
    let dependencies = crates.0.values().map(|known| json!({
        "ref": purl(known),
        "dependsOn": known.needs.iter().filter_map(|id| crates.0.get(id)).map(purl).collect::<Vec<_>>(),
    }));
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": main.next() },
        "components": components.collect::<Vec<_>>(),
        "dependencies": dependencies.collect::<Vec<_>>(),
    });
    format!("{document:#}\n")
}

fn component(known: &Crate) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": purl(known),
        "name": known.name,
        "version": known.version,
        "purl": purl(known),
        "licenses": [{ "expression": known.licence }],
    });
    if let Some(checksum) = &known.checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    if let Some(repository) = &known.repository {
        component["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
    }
    component
}

/// Its name among all packages of all ecosystems.
fn purl(known: &Crate) -> String {
    format!("pkg:cargo/{}@{}", known.name, known.version)
}
