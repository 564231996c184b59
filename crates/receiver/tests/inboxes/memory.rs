use crate::suite::{InboxUnderTest, follows_the_rules};
use crate::support::{DAY, NOW, event};
use railpost_receiver::wire::{LineId, Received, Seq};
use railpost_receiver::{MemoryInbox, NotedGap, OnGap, Policy, Retention, Verdict};
use std::time::Duration;

impl InboxUnderTest for MemoryInbox {
    async fn offer(&mut self, received: &Received, now: i64, succeeds: bool) -> Verdict {
        let ticket = self.begin(received, now);
        if succeeds { ticket.done(now) } else { ticket.verdict() }
    }

    async fn applied(&mut self, line: &LineId) -> Option<Seq> {
        MemoryInbox::applied(self, line)
    }
}

#[tokio::test]
async fn the_memory_inbox_follows_the_rules() {
    follows_the_rules(async |policy| MemoryInbox::new(policy, Retention::default())).await;
}

#[test]
fn while_an_event_is_applied_its_copies_and_its_line_are_held_off() {
    let inbox = MemoryInbox::default();
    let (first, second) = (event("1", Some(("A", 1))), event("2", Some(("A", 2))));
    inbox.begin(&event("0", None), NOW).done(NOW);
    let ticket = inbox.begin(&first, NOW);
    assert_eq!(inbox.begin(&first, NOW).verdict(), Verdict::Busy);
    let redelivered = event("0", Some(("A", 2)));
    assert_eq!(
        inbox.begin(&redelivered, NOW).verdict(),
        Verdict::Busy,
        "the line does not move yet"
    );
    assert_eq!(inbox.begin(&second, NOW).verdict(), Verdict::Busy);
    assert_eq!(inbox.begin(&second, NOW + DAY).verdict(), Verdict::Busy, "no gap, however long");
    let same_key = Received { line: Some("A-2".parse().unwrap()), ..event("4", Some(("A", 1))) };
    assert_eq!(inbox.begin(&same_key, NOW).verdict(), Verdict::Fresh, "another line");
    assert_eq!(inbox.begin(&event("3", Some(("B", 1))), NOW).verdict(), Verdict::Fresh);
    ticket.done(NOW);
    assert_eq!(inbox.begin(&second, NOW).verdict(), Verdict::Fresh);
}

#[test]
fn an_effect_that_panics_leaves_the_event_to_the_next_attempt() {
    let inbox = MemoryInbox::default();
    let received = event("1", Some(("A", 1)));
    let panicking = std::panic::catch_unwind(|| {
        inbox.apply(&received, NOW, || -> Result<(), ()> { panic!("the effect's own") })
    });
    assert!(panicking.is_err());
    assert_eq!(inbox.apply(&received, NOW, || Ok::<(), ()>(())), Ok(Verdict::Fresh));
}

#[test]
fn what_is_older_than_the_retention_is_forgotten_ids_before_seqs() {
    let retention = Retention::beyond(Duration::from_secs(3 * DAY as u64));
    let inbox = MemoryInbox::new(Policy::default(), retention);
    let (keyed, free) = (event("1", Some(("A", 1))), event("2", None));
    inbox.begin(&keyed, NOW).done(NOW);
    inbox.begin(&free, NOW).done(NOW);
    let soon = NOW + 4 * DAY;
    assert_eq!(inbox.begin(&keyed, soon).verdict(), Verdict::Duplicate);
    assert_eq!(inbox.begin(&free, soon).verdict(), Verdict::Duplicate);
    let later = NOW + 5 * DAY;
    assert!(matches!(inbox.begin(&keyed, later).verdict(), Verdict::Stale { .. }));
    assert_eq!(inbox.begin(&free, later).verdict(), Verdict::Fresh);
    let much_later = NOW + 60 * DAY;
    assert_eq!(inbox.begin(&keyed, much_later).verdict(), Verdict::Fresh);
}

#[test]
fn an_accepted_gap_is_noted() {
    let policy = Policy { on_gap: OnGap::Accept, ..Policy::default() };
    let inbox = MemoryInbox::new(policy, Retention::default());
    inbox.begin(&event("5", Some(("A", 5))), NOW).done(NOW);
    let (line, key) = ("A".to_owned(), Some("A".to_owned()));
    assert_eq!(inbox.gaps(), [NotedGap { line, key, applied: 0, seq: 5, noted_at: NOW }]);
}

#[test]
fn by_default_it_takes_an_unknown_line_from_anywhere_because_a_restart_forgets_all() {
    let inbox = MemoryInbox::default();
    assert_eq!(inbox.begin(&event("5", Some(("A", 5))), NOW).done(NOW), Verdict::Fresh);
    let gap = Verdict::Gap { applied: Seq::new(5), accepted: false };
    assert_eq!(inbox.begin(&event("7", Some(("A", 7))), NOW).verdict(), gap);
    assert_eq!(inbox.begin(&event("6", Some(("A", 6))), NOW).done(NOW), Verdict::Fresh);
}
