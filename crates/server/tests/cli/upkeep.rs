//! `railpost backup`, `prune`, `store verify` and `lines renew`.

use crate::world::{Running, World, run};

#[test]
fn a_backup_is_written_once_inside_its_folder() {
    let world = World::new();
    let written = world.json(&["backup", "monday.db"]);
    let file = world.folder.path().join("backups/monday.db");
    assert_eq!(written["size_bytes"], std::fs::metadata(file).unwrap().len());
    assert!(world.run(&["backup", "monday.db"]).expect(1).err.contains("exists"));
    for path in ["../railpost.db", "/tmp/stolen.db"] {
        let refused = world.run(&["backup", path]).expect(1);
        assert!(refused.err.contains("path:"), "{}", refused.err);
    }
}

#[test]
fn a_series_of_backups_goes_on_and_keeps_the_newest() {
    let world = World::new();
    let mut series = Running::start(world.command(&["backup", "--every", "1s", "--keep", "2"]));
    let written: Vec<String> = (0..3).map(|_| series.line()).collect();
    assert!(written[2].ends_with("; deleted the oldest 1"), "{written:?}");
    drop(series);
    let once = world.json(&["backup", "--keep", "2"]);
    assert_eq!(once["deleted"].as_array().unwrap().len(), 1);
    let folder = world.folder.path().join("backups/scheduled");
    let left = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut left: Vec<String> = left.map(|path| path.display().to_string()).collect();
    left.sort();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left[1].ends_with(once["path"].as_str().unwrap()), "{left:?}");
    for file in left {
        let data_dir = world.folder.path().to_str().unwrap();
        let verified = run(&["backup", "verify", &file, "--data-dir", data_dir]).expect(0);
        assert!(
            verified.out.contains("can be restored: 2 tenants, 0 endpoints"),
            "{}",
            verified.out
        );
    }
}

#[test]
fn a_series_that_cannot_be_meant_or_does_not_start_ends_at_once() {
    let world = World::new();
    for (arguments, said) in [
        (&["backup"][..], "<NAME>"),
        (&["backup", "--every", "6h"], "--keep <N>"),
        (&["backup", "a.db", "--keep", "2"], "cannot be used with"),
        (&["backup", "--keep", "0"], "1..=1000"),
        (&["backup", "--keep", "2", "--every", "10ms"], "at least 1s"),
        (&["backup", "verify"], "<BACKUP>"),
    ] {
        let refused = world.run(arguments).expect(2);
        assert!(refused.err.contains(said), "{}", refused.err);
    }
    let series = ["backup", "--every", "1s", "--keep", "2", "--api-key", "rp_unknown"];
    assert!(world.run(&series).expect(1).err.starts_with("error: "));
}

#[test]
fn pruning_says_what_it_deleted() {
    let world = World::new();
    world.run(&["send", "order.paid"]).expect(0);
    let pruned = world.run(&["prune"]).expect(0);
    assert!(
        pruned.out.starts_with("deleted 0 events, 0 deliveries, 0 lanes, 0 others"),
        "{}",
        pruned.out
    );
    assert_eq!(world.json(&["prune"])["events"], 0);
}

#[test]
fn a_store_is_verified_and_its_lines_are_renewed() {
    let world = World::new();
    world.run(&["send", "order.paid", "--key", "1"]).expect(0);
    assert_eq!(world.run(&["store", "verify"]).expect(0).out, "the store is whole\n");
    assert_eq!(world.json(&["store", "verify"])["whole"], true);
    assert!(world.run(&["lines", "renew"]).expect(2).err.contains("--yes"));
    let renewed = world.run(&["lines", "renew", "--yes"]).expect(0);
    assert!(renewed.out.contains("new line"), "{}", renewed.out);
}
