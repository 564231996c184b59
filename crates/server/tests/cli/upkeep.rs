//! `railpost backup` and `railpost prune`.

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
    assert!(pruned.out.starts_with("deleted 0 events, 0 deliveries"), "{}", pruned.out);
    assert_eq!(world.json(&["prune"])["events"], 0);
}
