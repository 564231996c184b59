//! ARCHITECTURE.md names files; they exist.

use std::path::Path;

/// The files and folders that a page names: what stands between backticks and begins with a folder of the
/// repository.
fn named(page: &str) -> impl Iterator<Item = &str> {
    let quoted = page.split('`').skip(1).step_by(2);
    quoted.filter(|text| {
        let begins = ["crates/", "receivers/", "xtask/", "docs/", "vectors/"];
        begins.iter().any(|folder| text.starts_with(folder)) && !text.contains(' ')
    })
}

#[test]
fn every_file_that_the_map_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = include_str!("../../ARCHITECTURE.md");
    assert!(named(page).count() > 30, "the map names many files");
    let missing: Vec<&str> = named(page).filter(|path| !root.join(path).exists()).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn the_map_says_where_twenty_changes_begin() {
    let (_, rest) =
        include_str!("../../ARCHITECTURE.md").split_once("## Where does it go?").unwrap();
    let (section, _) = rest.split_once("\n## ").unwrap();
    let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() >= 20, "{}", rows.len());
    for row in rows {
        assert_eq!(named(row).count(), 1, "{row}");
    }
}
