use crate::suite::{Desk, follows_the_rules, forgets_what_failed};
use crate::support::{DAY, NOW, event};
use railpost_receiver::sqlite::{SqliteInbox, create_tables};
use railpost_receiver::wire::Received;
use railpost_receiver::{InboxConfig, OnGap, Policy, Verdict};
use rusqlite::Connection;

struct Sqlite {
    database: Connection,
    inbox: SqliteInbox,
}

fn sqlite(policy: Policy) -> Sqlite {
    let database = Connection::open_in_memory().unwrap();
    create_tables(&database).unwrap();
    create_tables(&database).unwrap();
    let inbox = SqliteInbox::new(InboxConfig { policy, ..InboxConfig::named("orders") });
    Sqlite { database, inbox }
}

impl Desk for Sqlite {
    async fn offer(&mut self, received: &Received, succeeds: bool) -> Verdict {
        let transaction = self.database.transaction().unwrap();
        let verdict = self.inbox.admit(&transaction, received, NOW).unwrap();
        if succeeds { transaction.commit() } else { transaction.rollback() }.unwrap();
        verdict
    }
}

#[tokio::test]
async fn the_sqlite_inbox_follows_the_rules() {
    follows_the_rules(async |policy| sqlite(policy)).await;
    forgets_what_failed(sqlite(Policy::default())).await;
}

#[tokio::test]
async fn a_verdict_that_does_not_apply_has_written_nothing() {
    let mut desk = sqlite(Policy::default());
    desk.offer(&event("1", Some(("A", 1))), true).await;
    for (id, seq) in [("1", 1), ("other", 1), ("3", 3)] {
        assert!(!desk.offer(&event(id, Some(("A", seq))), true).await.applies());
    }
    let count = |table: &str| -> i64 {
        let sql = format!("select count(*) from {table}");
        desk.database.query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    assert_eq!((count("railpost_inbox"), count("railpost_lanes")), (1, 1));
}

#[tokio::test]
async fn inboxes_of_one_database_know_nothing_of_each_other() {
    let mut desk = sqlite(Policy::default());
    let received = event("1", None);
    assert_eq!(desk.offer(&received, true).await, Verdict::Fresh);
    desk.inbox = SqliteInbox::new(InboxConfig::named("payments"));
    assert_eq!(desk.offer(&received, true).await, Verdict::Fresh);
}

#[tokio::test]
async fn pruning_goes_in_steps_and_keeps_what_is_young() {
    let policy = Policy { on_gap: OnGap::Accept, ..Policy::default() };
    let mut desk = sqlite(policy);
    for number in 0..1_500 {
        desk.offer(&event(&format!("{number}"), None), true).await;
    }
    desk.offer(&event("gap", Some(("A", 5))), true).await;
    assert_eq!(desk.inbox.gaps(&desk.database).unwrap().len(), 1);
    let later = NOW + 31 * DAY;
    let transaction = desk.database.transaction().unwrap();
    desk.inbox.admit(&transaction, &event("young", Some(("B", 1))), later).unwrap();
    transaction.commit().unwrap();
    let steps: Vec<usize> = std::iter::repeat_with(|| desk.inbox.prune(&desk.database, later))
        .map(Result::unwrap)
        .take_while(|&rows| rows > 0)
        .collect();
    assert_eq!(steps, [1_001, 501], "ids and one gap; the lane outlives them");
    assert_eq!(desk.offer(&event("young", Some(("B", 1))), true).await, Verdict::Duplicate);
    assert!(matches!(desk.offer(&event("gap", Some(("A", 5))), true).await, Verdict::Stale { .. }));
}
