//! `railpost backup`, `prune`, `store verify` and `lines renew`.

use crate::world::World;

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
